"""Login by Feishu, DingTalk and WeCom, which are simulated as their documentation describes them (workplace_servers.py)."""

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
from tests.portal.sign_in.workplace_servers import APP, CODE, SECRET, Simulation, simulated

pytestmark = pytest.mark.django_db(transaction=True)
SERVICES = ["feishu", "dingtalk", "wecom"]


def text_of(service: str, simulation: Simulation, more: str = "") -> str:
    hosts = "".join(f'{name} = "{simulation.url}"\n' for name in workplaces.URLS)
    tenant = {"wecom": 'agent_id = "7"\n', "feishu": 'tenant = "ours"\n'}.get(service, "")
    return f'[company]\nservice = "{service}"\nclient_id = "{APP}"\nclient_secret = "{SECRET}"\n{tenant}{hosts}{more}'


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def simulation(service: str, settings: Any) -> Iterator[Simulation]:
    cache.clear()
    with simulated() as simulation:
        settings.IDENTITY_PROVIDERS = workplaces.read(text_of(service, simulation))
        yield simulation


@pytest.fixture
def vision() -> Department:
    return make.department("vision")


def rule(pattern: str, department: Department, role: str = "member") -> None:
    root = Actor(make.user(is_operator=True, is_superuser=True))
    checked = group_rules.checked(provider="company", pattern=pattern, department=department, role=role)
    group_rules.add_rule(actor=root, rule=checked)


def start_login(client: Client, **fields: str) -> dict[str, str]:
    """The query that the service's login page is opened with."""
    answer = client.post("/login/with/company/", fields)
    assert answer.status_code == 302, answer.content.decode()
    return {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["Location"]).query).items()}


def return_with_code(client: Client, code: str = CODE, name: str = "code", **fields: str) -> Any:
    query = start_login(client, **fields)
    assert urlsplit(query["redirect_uri"]).path == "/login/with/company/callback/"
    return client.get("/login/with/company/callback/", {name: code, "state": query["state"]})


def roles() -> dict[str, str]:
    return dict(Membership.objects.values_list("department__slug", "role"))


def is_logged_in(client: Client) -> bool:
    return client.get("/profile/").status_code == 200


def test_first_login_creates_an_account_with_the_roles_of_its_departments(
    simulation: Simulation, vision: Department
) -> None:
    rule("/研发部/*", vision)
    client = Client()
    answer = return_with_code(client)
    assert answer.status_code == 302, answer.content.decode()
    assert is_logged_in(client)
    mia = User.objects.get(socialaccount__provider="company")
    assert mia.get_full_name() == "Mia Wong"
    assert mia.email == "mia@example.org"
    assert not mia.has_usable_password()
    assert roles() == {"vision": "member"}
    assert sorted(SeenGroups.objects.get().groups) == ["/研发部/视觉组", "id:20"]
    simulation.departments = []
    assert return_with_code(Client()).status_code == 302
    assert User.objects.filter(socialaccount__isnull=False).get() == mia
    assert roles() == {}


def test_memberships_stay_when_the_service_withholds_departments(
    simulation: Simulation, service: str, vision: Department
) -> None:
    rule("id:20", vision)
    return_with_code(Client())
    assert roles() == {"vision": "member"}
    simulation.refuses = {
        "feishu": "/open-apis/contact/", "dingtalk": "/topapi/v2/department", "wecom": "/cgi-bin/department",
    }[service]  # fmt: skip
    client = Client()
    assert return_with_code(client).status_code == 302
    assert is_logged_in(client)
    assert roles() == {"vision": "member"}


@pytest.mark.parametrize("fact", ["outsider", "left"])
def test_person_outside_the_organisation_cannot_log_in(simulation: Simulation, fact: str) -> None:
    setattr(simulation, fact, True)
    client = Client()
    assert return_with_code(client).status_code == 502
    assert not is_logged_in(client)
    assert not User.objects.exists()


def test_equal_name_and_address_do_not_open_an_existing_account(simulation: Simulation) -> None:
    mia = make.user("mia", email="mia@example.org")
    client = Client()
    return_with_code(client)
    assert SocialAccount.objects.get().user != mia
    assert User.objects.count() == 2


def test_account_linked_by_a_logged_in_user_opens_that_users_account(simulation: Simulation) -> None:
    alice, client = make.user("alice"), Client()
    client.force_login(alice, backend="django.contrib.auth.backends.ModelBackend")
    assert return_with_code(client, process="connect").headers["Location"] == "/profile/"
    assert SocialAccount.objects.get().user == alice
    other = Client()
    return_with_code(other)
    assert other.session["_auth_user_id"] == str(alice.pk)


def test_department_named_like_a_path_or_an_id_does_not_match_its_rule(
    simulation: Simulation, vision: Department
) -> None:
    rule("/研发部/视觉组", vision)
    rule("id:20", make.department("nlp"))
    simulation.tree, simulation.departments = {"5": ("研发部/视觉组", ""), "6": ("id:20", "")}, ["5", "6"]
    return_with_code(Client())
    assert roles() == {}


@pytest.mark.parametrize("code", ["stolen", ""])
def test_invalid_code_or_state_of_another_browser_does_not_log_in(simulation: Simulation, code: str) -> None:
    client = Client()
    assert return_with_code(client, code).status_code == 502
    query = start_login(Client())
    answer = client.get("/login/with/company/callback/", {"code": CODE, "state": query["state"]})
    assert answer.status_code == 502
    assert not is_logged_in(client)
    assert not User.objects.exists()


def test_unreachable_or_malformed_service_gives_502_and_no_secret_is_logged(
    simulation: Simulation, settings: Any, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(adapters.log, "warning", lambda *words, **facts: logged.append(f"{words} {facts}"))
    hosts = text_of(service, simulation).replace(simulation.url, "http://127.0.0.1:9")
    settings.IDENTITY_PROVIDERS = workplaces.read(hosts)
    page = return_with_code(Client())
    assert page.status_code == 502
    assert "did not confirm who you are" in page.content.decode()
    settings.IDENTITY_PROVIDERS = workplaces.read(text_of(service, simulation))
    simulation.answer = lambda *_: (200, [])  # type: ignore[method-assign,assignment,return-value]
    assert return_with_code(Client()).status_code == 502
    assert len(logged) == 2
    for line in logged:
        assert "provider.failed" in line
        assert SECRET not in line
        assert CODE not in line


@pytest.mark.parametrize("service", ["dingtalk"], indirect=True)
def test_dingtalk_can_return_the_code_under_its_own_name(simulation: Simulation) -> None:
    client = Client()
    assert return_with_code(client, name="authCode").status_code == 302
    assert is_logged_in(client)


def test_department_names_are_not_requested_when_switched_off(
    simulation: Simulation, service: str, settings: Any, vision: Department
) -> None:
    settings.IDENTITY_PROVIDERS = workplaces.read(text_of(service, simulation, "department_names = false\n"))
    rule("id:20", vision)
    return_with_code(Client())
    assert SeenGroups.objects.get().groups == ["id:20"]
    assert roles() == {"vision": "member"}
    assert not any("department" in path for path in simulation.asked)


def test_login_page_has_a_button_for_the_service(simulation: Simulation, service: str) -> None:
    page = Client().get("/login/").content.decode()
    assert 'action="/login/with/company/"' in page
    assert {"feishu": "飞书", "dingtalk": "钉钉", "wecom": "企业微信"}[service] in page


GOOD = '[feishu]\nclient_id = "cli_1"\nclient_secret = "x"\n'


def test_key_can_name_the_service_and_omitted_settings_get_defaults() -> None:
    (found,) = workplaces.read(GOOD)
    assert (found.service, found.label, found.api_url) == ("feishu", "飞书", "https://open.feishu.cn")
    assert found.origins[0] == "https://accounts.feishu.cn"
    assert "'x'" not in repr(found)


@pytest.mark.parametrize(
    ("text", "message"),
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
def test_invalid_setting_stops_the_start_and_is_named_with_the_variable(text: str, message: str) -> None:
    with pytest.raises(ImproperlyConfigured) as error:
        workplaces.read(text)
    assert str(error.value).startswith("WORKPLACE_PROVIDERS ")
    assert message in str(error.value)
