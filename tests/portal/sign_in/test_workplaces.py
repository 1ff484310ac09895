"""Login by Feishu, DingTalk and WeCom, with the services played as their documents describe them (workplace_servers.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from allauth.socialaccount.models import SocialAccount
from django.core.cache import cache
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from portal.access import Actor
from portal.infra.providers import workplaces
from portal.models import Department, Membership, SeenGroups, User
from portal.sign_in import adapters, group_rules
from tests import builders as make
from tests.portal.sign_in.workplace_servers import APP, CODE, SECRET, Played, playing

pytestmark = pytest.mark.django_db(transaction=True)
SERVICES = ["feishu", "dingtalk", "wecom"]


def text_of(service: str, played: Played, more: str = "") -> str:
    hosts = "".join(f'{name} = "{played.url}"\n' for name in workplaces.URLS)
    tenant = {"wecom": 'agent_id = "7"\n', "feishu": 'tenant = "ours"\n'}.get(service, "")
    return f'[company]\nservice = "{service}"\nclient_id = "{APP}"\nclient_secret = "{SECRET}"\n{tenant}{hosts}{more}'


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def played(service: str, settings: Any) -> Iterator[Played]:
    cache.clear()
    with playing() as played:
        settings.IDENTITY_PROVIDERS = workplaces.read(text_of(service, played))
        yield played


@pytest.fixture
def vision() -> Department:
    return make.department("vision")


def rule(pattern: str, department: Department, role: str = "member") -> None:
    root = Actor(make.user(is_operator=True, is_superuser=True))
    made = group_rules.checked(provider="company", pattern=pattern, department=department, role=role)
    group_rules.add_rule(actor=root, rule=made)


def begun(client: Client, **fields: str) -> dict[str, str]:
    """The query that the service's login page is opened with."""
    answer = client.post("/login/with/company/", fields)
    assert answer.status_code == 302, answer.content.decode()
    return {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["Location"]).query).items()}


def came_back(client: Client, code: str = CODE, name: str = "code", **fields: str) -> Any:
    asked = begun(client, **fields)
    assert urlsplit(asked["redirect_uri"]).path == "/login/with/company/callback/"
    return client.get("/login/with/company/callback/", {name: code, "state": asked["state"]})


def roles() -> dict[str, str]:
    return dict(Membership.objects.values_list("department__slug", "role"))


def is_in(client: Client) -> bool:
    return client.get("/profile/").status_code == 200


def test_the_first_login_makes_an_account_with_the_roles_of_its_departments(played: Played, vision: Department) -> None:
    rule("/研发部/*", vision)
    client = Client()
    answer = came_back(client)
    assert answer.status_code == 302, answer.content.decode()
    assert is_in(client)
    mia = User.objects.get(socialaccount__provider="company")
    assert mia.get_full_name() == "Mia Wong"
    assert mia.email == "mia@example.org"
    assert not mia.has_usable_password()
    assert roles() == {"vision": "member"}
    assert sorted(SeenGroups.objects.get().groups) == ["/研发部/视觉组", "id:20"]
    played.departments = []
    assert came_back(Client()).status_code == 302
    assert User.objects.filter(socialaccount__isnull=False).get() == mia
    assert roles() == {}


def test_what_is_not_told_changes_nothing(played: Played, service: str, vision: Department) -> None:
    rule("id:20", vision)
    came_back(Client())
    assert roles() == {"vision": "member"}
    played.refuses = {
        "feishu": "/open-apis/contact/", "dingtalk": "/topapi/v2/department", "wecom": "/cgi-bin/department",
    }[service]  # fmt: skip
    client = Client()
    assert came_back(client).status_code == 302
    assert is_in(client)
    assert roles() == {"vision": "member"}


@pytest.mark.parametrize("fact", ["outsider", "left"])
def test_who_is_not_in_the_organisation_does_not_come_in(played: Played, fact: str) -> None:
    setattr(played, fact, True)
    client = Client()
    assert came_back(client).status_code == 502
    assert not is_in(client)
    assert not User.objects.exists()


def test_an_equal_name_and_address_open_nobodys_account(played: Played) -> None:
    mia = make.user("mia", email="mia@example.org")
    client = Client()
    came_back(client)
    assert SocialAccount.objects.get().user != mia
    assert User.objects.count() == 2


def test_it_is_linked_to_who_is_logged_in_and_opens_that_account(played: Played) -> None:
    alice, client = make.user("alice"), Client()
    client.force_login(alice, backend="django.contrib.auth.backends.ModelBackend")
    assert came_back(client, process="connect").headers["Location"] == "/profile/"
    assert SocialAccount.objects.get().user == alice
    other = Client()
    came_back(other)
    assert other.session["_auth_user_id"] == str(alice.pk)


def test_a_department_cannot_be_called_as_another_ones_path(played: Played, vision: Department) -> None:
    rule("/研发部/视觉组", vision)
    rule("id:20", make.department("nlp"))
    played.tree, played.departments = {"5": ("研发部/视觉组", ""), "6": ("id:20", "")}, ["5", "6"]
    came_back(Client())
    assert roles() == {}


@pytest.mark.parametrize("code", ["stolen", ""])
def test_a_code_that_is_none_and_a_state_of_another_browser_open_nothing(played: Played, code: str) -> None:
    client = Client()
    assert came_back(client, code).status_code == 502
    asked = begun(Client())
    answer = client.get("/login/with/company/callback/", {"code": CODE, "state": asked["state"]})
    assert answer.status_code == 502
    assert not is_in(client)
    assert not User.objects.exists()


def test_one_that_is_down_or_talks_nonsense_is_told_and_no_secret_is_logged(
    played: Played, settings: Any, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(adapters.log, "warning", lambda *words, **facts: logged.append(f"{words} {facts}"))
    hosts = text_of(service, played).replace(played.url, "http://127.0.0.1:9")
    settings.IDENTITY_PROVIDERS = workplaces.read(hosts)
    page = came_back(Client())
    assert page.status_code == 502
    assert "did not confirm who you are" in page.content.decode()
    settings.IDENTITY_PROVIDERS = workplaces.read(text_of(service, played))
    played.answer = lambda *_: (200, [])  # type: ignore[method-assign,assignment,return-value]
    assert came_back(Client()).status_code == 502
    assert len(logged) == 2
    for line in logged:
        assert "provider.failed" in line
        assert SECRET not in line
        assert CODE not in line


@pytest.mark.parametrize("service", ["dingtalk"], indirect=True)
def test_dingtalk_may_call_the_code_by_its_own_name(played: Played) -> None:
    client = Client()
    assert came_back(client, name="authCode").status_code == 302
    assert is_in(client)


def test_departments_by_id_only_need_no_names(played: Played, service: str, settings: Any, vision: Department) -> None:
    settings.IDENTITY_PROVIDERS = workplaces.read(text_of(service, played, "department_names = false\n"))
    rule("id:20", vision)
    came_back(Client())
    assert SeenGroups.objects.get().groups == ["id:20"]
    assert roles() == {"vision": "member"}
    assert not any("department" in path for path in played.asked)


def test_the_login_page_has_a_button(played: Played, service: str) -> None:
    page = Client().get("/login/").content.decode()
    assert 'action="/login/with/company/"' in page
    assert {"feishu": "飞书", "dingtalk": "钉钉", "wecom": "企业微信"}[service] in page


GOOD = '[feishu]\nclient_id = "cli_1"\nclient_secret = "x"\n'


def test_the_key_may_name_the_service_and_what_is_left_out_is_usual() -> None:
    (found,) = workplaces.read(GOOD)
    assert (found.service, found.label, found.api_url) == ("feishu", "飞书", "https://open.feishu.cn")
    assert found.origins[0] == "https://accounts.feishu.cn"
    assert "'x'" not in repr(found)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (GOOD.replace("[feishu]", "[lark]"), "set service to feishu, dingtalk, wecom"),
        (GOOD.replace('client_id = "cli_1"\n', ""), "has no client_id"),
        (GOOD.replace('client_secret = "x"', ""), "needs client_secret_file or client_secret"),
        (GOOD.replace("[feishu]", "[wecom]"), "has no agent_id for wecom"),
        (GOOD + 'api_url = "http://open.feishu.cn"', "without TLS"),
        (GOOD + 'tenent = "x"', "did you mean tenant?"),
        (GOOD + 'department_names = "no"', "neither true nor false"),
    ],
)
def test_a_mistake_stops_the_start_and_says_where(text: str, told: str) -> None:
    with pytest.raises(ImproperlyConfigured) as error:
        workplaces.read(text)
    assert str(error.value).startswith("WORKPLACE_PROVIDERS ")
    assert told in str(error.value)
