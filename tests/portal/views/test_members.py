"""The pages of members, invitations, the inbox and webhooks."""

from __future__ import annotations

import re

import pytest

from portal.infra.crypt import decrypt
from portal.models import InboxItem, Invitation, Membership, NoticePreference, Role, User, Webhook
from portal.notify import notices
from tests import builders as make

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world():
    vision, other = make.department("vision"), make.department("other")
    return {
        "vision": vision,
        "olga": make.member(vision, Role.OWNER, "olga", email="olga@example.org"),
        "mia": make.member(vision, Role.MEMBER, "mia"),
        "sam": make.member(other, Role.OWNER, "sam"),
    }


def text(response, status=200):
    assert response.status_code == status, response.content.decode()[:3000]
    return response.content.decode()


def test_members_see_each_other_owners_see_buttons_and_strangers_get_404(client, world):
    client.force_login(world["mia"])
    page = text(client.get("/d/vision/members/"))
    assert "olga" in page
    assert "Remove" not in page
    client.force_login(world["olga"])
    assert "Remove" in text(client.get("/d/vision/members/"))
    client.force_login(world["sam"])
    text(client.get("/d/vision/members/"), 404)


@pytest.mark.parametrize("username", ["mia", "sam"])
@pytest.mark.parametrize("path", ["add/", "invite/", "service/", "mia/role/", "mia/remove/"])
def test_only_owners_can_change_members(client, world, username, path):
    client.force_login(world[username])
    before = list(Membership.objects.values_list("user", "role"))
    answer = client.post(f"/d/vision/members/{path}", {"role": "owner", "add-username": "sam", "add-role": "owner"})
    assert answer.status_code == (403 if username == "mia" else 404)
    assert list(Membership.objects.values_list("user", "role")) == before
    assert not Invitation.objects.exists()


def test_invitation_link_is_shown_once_mailed_and_creates_an_account(client, world, mailoutbox):
    client.force_login(world["olga"])
    form = {"invite-email": "nina@example.org", "invite-role": "member"}
    page = text(client.post("/d/vision/members/invite/", form, follow=True))
    link = re.search(r"/invite/[\w-]+/", page).group()
    assert link in mailoutbox[0].body
    assert link not in text(client.get("/d/vision/members/"))
    client.logout()
    assert "olga invites you to Vision as member" in text(client.get(link))
    short = {"username": "nina", "full_name": "Nina Li", "password": "short"}
    assert "at least 10" in text(client.post(link, short), 422)
    assert client.post(link, {**short, "password": "correct horse battery"}).headers["Location"] == "/"
    nina = User.objects.get(username="nina")
    assert client.session["_auth_user_id"] == str(nina.pk)
    assert Membership.objects.get(user=nina).role == Role.MEMBER
    assert "was used or withdrawn, or has expired" in text(client.get(link), 410)


def test_user_with_an_account_joins_with_one_click(client, world):
    client.force_login(world["olga"])
    page = text(client.post("/d/vision/members/invite/", {"invite-email": "", "invite-role": "viewer"}, follow=True))
    link = re.search(r"/invite/[\w-]+/", page).group()
    client.force_login(world["sam"])
    assert "Join as sam" in text(client.get(link))
    assert client.post(link).headers["Location"] == "/"
    assert Membership.objects.get(user=world["sam"], department=world["vision"]).role == Role.VIEWER
    assert text(client.get("/invite/nonsense/"), 404)


def test_withdrawn_invitation_link_gets_404(client, world):
    client.force_login(world["olga"])
    page = text(client.post("/d/vision/members/invite/", {"invite-email": "", "invite-role": "viewer"}, follow=True))
    link = re.search(r"/invite/[\w-]+/", page).group()
    client.post(f"/d/vision/invitations/{Invitation.objects.get().pk}/withdraw/")
    assert text(client.get(link), 404)


def test_invalid_input_is_shown_again_with_an_error(client, world):
    client.force_login(world["olga"])
    page = text(client.post("/d/vision/members/add/", {"add-username": "nobody", "add-role": "member"}), 422)
    assert "There is no user nobody" in page
    assert 'value="nobody"' in page
    assert "last quota owner" in text(client.post("/d/vision/members/olga/role/", {"role": "member"}), 409)
    assert text(client.post("/d/vision/members/mia/role/", {"role": "king"}), 422)


def test_member_is_added_changed_and_removed_and_notified(client, world):
    client.force_login(world["olga"])
    assert client.post("/d/vision/members/add/", {"add-username": "sam", "add-role": "viewer"}).status_code == 302
    client.post("/d/vision/members/sam/role/", {"role": "member"})
    assert Membership.objects.get(user=world["sam"], department=world["vision"]).role == Role.MEMBER
    assert "Tokens revoked at once" in text(client.get("/d/vision/members/sam/remove/"))
    client.post("/d/vision/members/sam/remove/")
    assert not Membership.objects.filter(user=world["sam"], department=world["vision"]).exists()
    assert [item.kind for item in InboxItem.objects.order_by("pk")] == ["member.invited", "member.removed"]
    client.force_login(world["sam"])
    page = text(client.get("/inbox/"))
    assert "You are no longer a member of Vision." in page
    assert "2 unread" in page


def test_service_account_is_created_and_removed(client, world):
    client.force_login(world["olga"])
    assert (
        client.post("/d/vision/members/service/", {"service-name": "ci", "service-role": "member"}).status_code == 302
    )
    assert "service account" in text(client.get("/d/vision/members/"))
    client.post("/d/vision/members/vision.ci/remove/")
    assert not User.objects.get(username="vision.ci").is_active


def test_owner_pauses_and_resumes_the_department(client, world):
    client.force_login(world["olga"])
    assert client.post("/d/vision/pause/", {"paused": "1", "version": "1"}).headers["Location"] == "/d/vision/"
    world["vision"].refresh_from_db()
    assert world["vision"].paused
    assert text(client.post("/d/vision/pause/", {"paused": "", "version": "1"}), 409)
    client.post("/d/vision/pause/", {"paused": "", "version": "2"})
    world["vision"].refresh_from_db()
    assert not world["vision"].paused


def test_marking_as_read_affects_only_the_readers_own_messages(client, world):
    for user in ("mia", "olga"):
        notices.send(
            "workload.succeeded", to=[world[user]], department=world["vision"], workload="w1", name=f"of-{user}"
        )
    theirs = InboxItem.objects.get(user=world["olga"])
    client.force_login(world["mia"])
    page = text(client.get("/inbox/"))
    assert "of-mia succeeded." in page
    assert "of-olga" not in page
    client.post("/inbox/read/", {"item": theirs.pk})
    client.post("/inbox/read/", {"up_to": theirs.pk + 100})
    theirs.refresh_from_db()
    assert theirs.read_at is None
    assert not InboxItem.objects.filter(user=world["mia"], read_at=None).exists()
    assert "No unread messages" in text(client.get("/inbox/?show=unread"))


def test_notices_are_chosen_by_kind(client, world):
    client.force_login(world["mia"])
    page = text(client.get("/inbox/settings/"))
    order = ["A workload failed", "Quotas and budgets", "A quota was changed", "Added to a department"]
    assert [page.rindex(words) for words in order] == sorted(page.rindex(words) for words in order)
    client.post("/inbox/settings/", {"inbox:workload.failed": "on"})
    chosen = NoticePreference.objects.get(user=world["mia"], kind="workload.failed")
    assert (chosen.inbox, chosen.mail) == (True, False)
    notices.send("workload.succeeded", to=[world["mia"]], department=world["vision"], name="quiet")
    assert not InboxItem.objects.exists()


def test_each_user_chooses_among_the_notices_they_can_get(client, world):
    operators = {kind for kind, known in notices.KINDS.items() if known.audience is notices.Audience.OPERATORS}
    for user, expected in ((world["mia"], set()), (make.user("root", is_operator=True), operators)):
        client.force_login(user)
        page = text(client.get("/inbox/settings/"))
        shown = {kind for kind in notices.SETTABLE if f'"inbox:{kind}"' in page}
        assert shown == set(notices.SETTABLE) - operators | expected
    client.force_login(world["mia"])
    client.post("/inbox/settings/", {f"inbox:{kind}": "on" for kind in ["workload.failed", *operators]})
    assert not NoticePreference.objects.filter(user=world["mia"], kind__in=operators).exists()
    User.objects.filter(pk=world["mia"].pk).update(is_operator=True)
    notices.send("node.quarantined", to=User.operators().filter(pk=world["mia"].pk), place="n1", why="fan")
    assert InboxItem.objects.filter(user=world["mia"], kind="node.quarantined").exists()


def test_only_owners_can_add_webhooks_and_only_for_allowed_hosts(client, world):
    client.force_login(world["mia"])
    text(client.get("/d/vision/webhooks/"), 403)
    client.force_login(world["olga"])
    form = {"name": "room", "url": "https://evil.example/x", "shape": "generic", "secret": "hush", "language": "en"}
    text(client.post("/d/vision/webhooks/", form), 422)
    assert not Webhook.objects.exists()
    form["url"] = "https://open.feishu.cn/hook/abc"
    assert client.post("/d/vision/webhooks/", form).status_code == 302
    hook = Webhook.objects.get()
    page = text(client.get("/d/vision/webhooks/"))
    assert "room" in page
    assert "hush" not in page
    assert "hook/abc" not in page  # chat services put their key into the address
    client.post(f"/d/vision/webhooks/{hook.pk}/switch/", {"active": ""})
    hook.refresh_from_db()
    assert not hook.active
    client.post(f"/d/vision/webhooks/{hook.pk}/remove/")
    assert not Webhook.objects.exists()


def test_signed_json_webhook_without_a_secret_gets_one_shown_once(client, world):
    client.force_login(world["olga"])
    form = {"name": "ci", "url": "https://open.feishu.cn/x", "shape": "generic", "language": "en"}
    shown = client.post("/d/vision/webhooks/", form)["Location"]
    secret = re.search(r'id="secret"[^>]*>(whsec_[^<]+)<', text(client.get(shown)))
    assert secret is not None
    assert decrypt(Webhook.objects.get().secret) == secret[1]
    assert "whsec_" not in text(client.get("/d/vision/webhooks/"))
    client.post("/d/vision/webhooks/", form | {"shape": "slack"})
    assert Webhook.objects.get(shape="slack").secret == ""


def test_editing_a_webhook_shows_neither_address_nor_secret(client, world):
    client.force_login(world["olga"])
    form = {"name": "ci", "url": "https://open.feishu.cn/hook/abc", "shape": "generic", "language": "en"}
    client.post("/d/vision/webhooks/", form)
    hook = Webhook.objects.get()
    path, secret = f"/d/vision/webhooks/{hook.pk}/", decrypt(hook.secret)
    page = text(client.get(path))
    assert "open.feishu.cn" in page
    assert not any(hidden in page for hidden in ("hook/abc", secret))
    seen = re.search(r'name="seen" value="(\w+)"', page)[1]
    wrong = client.post(path, {"name": "", "shape": "generic", "seen": seen})
    text(wrong, 422)
    changed = {"name": "nightly", "url": "", "shape": "generic", "language": "zh-hans", "active": "on", "seen": seen}
    assert client.post(path, changed | {"kinds": ["workload.failed"]}).status_code == 302
    hook.refresh_from_db()
    assert (hook.name, hook.url, hook.language, hook.kinds, hook.active) == (
        "nightly", form["url"], "zh-hans", ["workload.failed"], True,
    )  # fmt: skip
    assert decrypt(hook.secret) == secret
    late = text(client.post(path, changed | {"name": "late"}), 409)
    assert "data-conflict" in late
    assert "nightly" in late
    elsewhere = {"url": "https://qyapi.weixin.qq.com/x", "seen": re.search(r'name="seen" value="(\w+)"', late)[1]}
    assert "For another host, enter the secret again." in text(client.post(path, changed | elsewhere), 422)


def test_a_webhooks_secret_is_replaced_and_shown_once(client, world):
    client.force_login(world["olga"])
    form = {"name": "ci", "url": "https://open.feishu.cn/x", "shape": "generic", "language": "en"}
    client.post("/d/vision/webhooks/", form)
    old = decrypt(Webhook.objects.get().secret)
    path = f"/d/vision/webhooks/{Webhook.objects.get().pk}/"
    shown = client.post(f"{path}rotate/")["Location"]
    new = re.search(r'id="secret"[^>]*>(whsec_[^<]+)<', text(client.get(shown)))[1]
    assert decrypt(Webhook.objects.get().secret) == new != old
    assert "whsec_" not in text(client.get(path))
