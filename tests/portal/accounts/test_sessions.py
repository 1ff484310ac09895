"""What ends a session ends all that was opened through it; and an invitation ends with the right of who made it."""

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


def change_the_password(_client: Client, user: User, _operator: Actor) -> None:
    """In another browser, or in this one: the session that goes on is another one."""
    other, _key = browser(user)
    new = {
        "form": "password",
        "old_password": PASSWORD,
        "new_password1": PASSWORD + "!",
        "new_password2": PASSWORD + "!",
    }
    assert other.post("/profile/", new).status_code == 302


def change_the_password_here(client: Client, _user: User, _operator: Actor) -> None:
    new = {
        "form": "password",
        "old_password": PASSWORD,
        "new_password1": PASSWORD + "!",
        "new_password2": PASSWORD + "!",
    }
    assert client.post("/profile/", new).status_code == 302
    assert client.get("/profile/").status_code == 200


def be_given_a_password(_client: Client, user: User, operator: Actor) -> None:
    users.reset_password(actor=operator, user=user)


def log_out_everywhere(_client: Client, user: User, _operator: Actor) -> None:
    other, _key = browser(user)
    assert other.post("/profile/sessions/end/").status_code == 302


def be_logged_out_by_an_operator(_client: Client, user: User, operator: Actor) -> None:
    assert operator.user is not None
    desk, _key = browser(operator.user)
    assert desk.post(f"/operator/users/{user.username}/", {"change": "sessions"}).status_code == 302


def be_locked_and_unlocked(_client: Client, user: User, operator: Actor) -> None:
    users.set_active(actor=operator, user=user, active=False)
    users.set_active(actor=operator, user=user, active=True)


def expire(_client: Client, _user: User, _operator: Actor) -> None:
    Session.objects.update(expire_date=timezone.now())


ENDS = [
    log_out, change_the_password, change_the_password_here, be_given_a_password, log_out_everywhere,
    be_logged_out_by_an_operator, be_locked_and_unlocked, expire,
]  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
def test_what_was_opened_through_a_session_ends_with_it(
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


def test_another_persons_session_is_none_of_theirs(mia: User, operator: Actor) -> None:
    assert operator.user is not None
    _client, key = browser(operator.user)
    assert not sessions.is_live(key, mia)
    assert not sessions.is_live("", mia)


def test_logging_out_everywhere_ends_every_browser_and_no_token(mia: User, vision: Department) -> None:
    here, there = browser(mia)[0], browser(mia)[0]
    token = program(mia, vision)
    dialog = (
        here.get("/profile/").content.decode().partition('action="/profile/sessions/end/"')[2].partition("</form>")[0]
    )
    assert "Log out everywhere" in dialog
    assert "csrfmiddlewaretoken" in dialog
    page = here.post("/profile/sessions/end/", follow=True)
    assert "You were logged out everywhere." in page.content.decode()
    for client in (here, there):
        assert client.get("/profile/").headers["Location"].startswith("/login/")
    assert token.get("/api/v1/departments/").status_code == 200
    assert AuditEntry.objects.filter(action="user.sessions_ended", actor=mia).count() == 1
    assert browser(mia)[0].get("/profile/").status_code == 200, "a new login works"


def test_nobody_logs_others_out(mia: User) -> None:
    client, _key = browser(make.member(make.department("nlp"), Role.OWNER))
    assert client.post("/operator/users/mia/", {"change": "sessions"}).status_code == 404


# Invitations -------------------------------------------------------------------------------------------------------------


def _removed(operator: Actor, row: Membership) -> None:
    members.remove_member(actor=operator, membership=row)


def _made_member(operator: Actor, row: Membership) -> None:
    members.change_role(actor=operator, membership=row, role="member")


def _locked(operator: Actor, row: Membership) -> None:
    users.set_active(actor=operator, user=row.user, active=False)


@pytest.mark.parametrize("end", [_removed, _made_member, _locked])
def test_an_invitation_ends_with_the_right_of_who_made_it(
    vision: Department, operator: Actor, mia: User, end: Callable[[Actor, Membership], None]
) -> None:
    olga, otto = make.member(vision, Role.OWNER, "olga"), make.member(vision, Role.OWNER, "otto")
    _row, secret = members.invite(actor=Actor(olga), department=vision, role="owner", email="new@example.org")
    _row, others = members.invite(actor=Actor(otto), department=vision, role="viewer")
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
    assert members.accept(actor=Actor(stranger), secret=others).role == "viewer"


def test_the_right_is_looked_at_again_when_the_invitation_is_used(
    vision: Department, operator: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends between the page and the click."""
    olga, stranger = make.member(vision, Role.OWNER, "olga"), make.user("stranger")
    _row, secret = members.invite(actor=Actor(olga), department=vision, role="owner")
    known = Invitation.objects.select_related("department", "created_by").get()
    monkeypatch.setattr(members, "invitation_for", lambda _secret: known)
    _removed(operator, Membership.objects.get(user=olga))
    with pytest.raises(members.InvitationOver):
        members.accept(actor=Actor(stranger), secret=secret)
    assert Invitation.objects.get().accepted_at is None
