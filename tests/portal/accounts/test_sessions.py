"""The end of a session ends all streams opened through it, and an invitation ends with its author's right to invite."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from portal.access import Actor
from portal.accounts import members, sessions, users
from portal.models import AuditEntry, Department, Invitation, Membership, Role, User
from portal.server import streams
from portal.server.streams import Standing
from portal.views.live import feed_of, hints
from tests import builders as make
from tests.clients import program

pytestmark = pytest.mark.django_db(transaction=True)
PASSWORD = "correct horse battery"


@pytest.fixture
def vision() -> Department:
    return make.department("vision")


@pytest.fixture
def mia(vision: Department) -> User:
    mia = make.member(vision, Role.MEMBER, "mia")
    mia.set_password(PASSWORD)
    mia.save()
    return mia


@pytest.fixture
def operator() -> Actor:
    make.user("second", is_operator=True)
    return Actor(make.user("root", is_operator=True))


def browser(user: User) -> tuple[Client, str]:
    client = Client()
    client.force_login(User.objects.get(pk=user.pk), backend="django.contrib.auth.backends.ModelBackend")
    return client, str(client.session.session_key)


def log_out(client: Client, _user: User, _operator: Actor) -> None:
    client.post("/logout/")


def change_password_elsewhere(_client: Client, user: User, _operator: Actor) -> None:
    """In another browser, whose session continues."""
    other, _key = browser(user)
    new = {
        "form": "password",
        "old_password": PASSWORD,
        "new_password1": PASSWORD + "!",
        "new_password2": PASSWORD + "!",
    }
    assert other.post("/profile/", new).status_code == 302


def change_password_here(client: Client, _user: User, _operator: Actor) -> None:
    """In this browser, which continues with a new session."""
    new = {
        "form": "password",
        "old_password": PASSWORD,
        "new_password1": PASSWORD + "!",
        "new_password2": PASSWORD + "!",
    }
    assert client.post("/profile/", new).status_code == 302
    assert client.get("/profile/").status_code == 200


def reset_password_by_operator(_client: Client, user: User, operator: Actor) -> None:
    users.reset_password(actor=operator, user=user)


def log_out_everywhere(_client: Client, user: User, _operator: Actor) -> None:
    other, _key = browser(user)
    assert other.post("/profile/sessions/end/").status_code == 302


def log_out_by_operator(_client: Client, user: User, operator: Actor) -> None:
    assert operator.user is not None
    operators_browser, _key = browser(operator.user)
    assert operators_browser.post(f"/operator/users/{user.username}/", {"change": "sessions"}).status_code == 302


def lock_and_unlock(_client: Client, user: User, operator: Actor) -> None:
    users.set_active(actor=operator, user=user, active=False)
    users.set_active(actor=operator, user=user, active=True)


def expire(_client: Client, _user: User, _operator: Actor) -> None:
    Session.objects.update(expire_date=timezone.now())


ENDS = [
    log_out, change_password_elsewhere, change_password_here, reset_password_by_operator, log_out_everywhere,
    log_out_by_operator, lock_and_unlock, expire,
]  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
def test_stream_ends_when_its_session_ends(
    mia: User, operator: Actor, end: Callable[[Client, User, Actor], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, key = browser(mia)
    assert client.get("/").status_code == 200
    actor = Actor(mia, session=key)
    assert sessions.is_live(key, mia)
    assert Standing(actor, checked=False).actor() is not None
    monkeypatch.setattr(streams, "CHECK_EVERY", 0.0)
    monkeypatch.setattr(streams, "LOOK_EVERY", 0.05)

    @async_to_sync
    async def stream_ends() -> bool:
        stream = hints(feed_of(actor, ""))
        assert b"event: open" in await anext(stream)  # type: ignore[call-overload]
        await sync_to_async(end)(client, mia, operator)
        try:
            while True:
                await asyncio.wait_for(anext(stream), 10)  # type: ignore[call-overload]
        except StopAsyncIteration:
            return True

    assert stream_ends()
    assert not sessions.is_live(key, User.objects.get(pk=mia.pk))
    assert Standing(actor, checked=False).actor() is None


def test_session_is_not_live_for_another_user(mia: User, operator: Actor) -> None:
    assert operator.user is not None
    _client, key = browser(operator.user)
    assert not sessions.is_live(key, mia)
    assert not sessions.is_live("", mia)


def test_logging_out_everywhere_ends_all_sessions_but_no_tokens(mia: User, vision: Department) -> None:
    here, elsewhere = browser(mia)[0], browser(mia)[0]
    token = program(mia, vision)
    dialog = (
        here.get("/profile/").content.decode().partition('action="/profile/sessions/end/"')[2].partition("</form>")[0]
    )
    assert "Log out everywhere" in dialog
    assert "csrfmiddlewaretoken" in dialog
    page = here.post("/profile/sessions/end/", follow=True)
    assert "You were logged out everywhere." in page.content.decode()
    for client in (here, elsewhere):
        assert client.get("/profile/").headers["Location"].startswith("/login/")
    assert token.get("/api/v1/departments/").status_code == 200
    assert AuditEntry.objects.filter(action="user.sessions_ended", actor=mia).count() == 1
    assert browser(mia)[0].get("/profile/").status_code == 200, "a new login works"


def test_only_operators_can_end_other_users_sessions(mia: User) -> None:
    client, _key = browser(make.member(make.department("nlp"), Role.OWNER))
    assert client.post("/operator/users/mia/", {"change": "sessions"}).status_code == 404


# Invitations -------------------------------------------------------------------------------------------------------------


def _remove(operator: Actor, row: Membership) -> None:
    members.remove_member(actor=operator, membership=row)


def _demote(operator: Actor, row: Membership) -> None:
    members.change_role(actor=operator, membership=row, role="member")


def _lock(operator: Actor, row: Membership) -> None:
    users.set_active(actor=operator, user=row.user, active=False)


@pytest.mark.parametrize("end", [_remove, _demote, _lock])
def test_invitation_ends_when_its_author_loses_the_right_to_invite(
    vision: Department, operator: Actor, mia: User, end: Callable[[Actor, Membership], None]
) -> None:
    olga, otto = make.member(vision, Role.OWNER, "olga"), make.member(vision, Role.OWNER, "otto")
    _row, secret = members.invite(actor=Actor(olga), department=vision, role="owner", email="new@example.org")
    _row, ottos_secret = members.invite(actor=Actor(otto), department=vision, role="viewer")
    stranger = make.user("stranger")
    end(operator, Membership.objects.get(user=olga))
    page = Client().get(f"/invite/{secret}/")
    assert page.status_code == 410
    assert "may no longer invite. Ask a quota owner of Vision" in page.content.decode()
    with pytest.raises(members.InvitationOver):
        members.accept(actor=Actor(stranger), secret=secret)
    with pytest.raises(members.InvitationOver):
        members.accept_as_new(secret=secret, username="new", password="a long enough one")
    assert not Membership.objects.filter(user=stranger).exists()
    assert "new@example.org" not in browser(otto)[0].get("/d/vision/members/").content.decode()
    assert members.accept(actor=Actor(stranger), secret=ottos_secret).role == "viewer"


def test_authors_right_is_checked_again_when_the_invitation_is_accepted(
    vision: Department, operator: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The right ends between opening the page and accepting."""
    olga, stranger = make.member(vision, Role.OWNER, "olga"), make.user("stranger")
    _row, secret = members.invite(actor=Actor(olga), department=vision, role="owner")
    known = Invitation.objects.select_related("department", "created_by").get()
    monkeypatch.setattr(members, "invitation_for", lambda _secret: known)
    _remove(operator, Membership.objects.get(user=olga))
    with pytest.raises(members.InvitationOver):
        members.accept(actor=Actor(stranger), secret=secret)
    assert Invitation.objects.get().accepted_at is None
