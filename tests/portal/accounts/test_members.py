"""Joining, changing and leaving a department."""

from __future__ import annotations

import datetime as dt

import pytest
from django.utils import timezone

from portal.access import Actor, Forbidden, NotVisible
from portal.accounts import members
from portal.errors import Invalid
from portal.models import ApiToken, AuditEntry, Invitation, Membership, Role, User
from tests import builders as make

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def vision():
    return make.department("vision")


@pytest.fixture
def owner(vision):
    return Actor(make.member(vision, Role.OWNER, "olga"))


def token(holder, department, **fields):
    expires = timezone.now() + dt.timedelta(days=1)
    return ApiToken.objects.create(
        holder=holder,
        department=department,
        name="ci",
        prefix=f"p{ApiToken.objects.count()}",
        expires_at=expires,
        **fields,
    )


def test_an_invitation_link_makes_its_first_user_a_member(owner, vision):
    invitation, secret = members.invite(actor=owner, department=vision, role="member", email="n@example.org")
    assert secret not in str(Invitation.objects.values().get())
    newcomer = Actor(make.user("newcomer"))
    joined = members.accept(actor=newcomer, secret=secret)
    assert (joined.department, joined.role) == (vision, Role.MEMBER)
    invitation.refresh_from_db()
    assert invitation.accepted_by == newcomer.user
    with pytest.raises(members.InvitationOver):
        members.accept(actor=Actor(make.user()), secret=secret)


def test_existing_member_does_not_use_up_the_invitation_link(owner, vision):
    _, secret = members.invite(actor=owner, department=vision, role="viewer")
    with pytest.raises(members.AlreadyMember):
        members.accept(actor=owner, secret=secret)
    assert members.invitation_for(secret).accepted_at is None
    assert Membership.objects.get(user=owner.user).role == Role.OWNER


def test_expired_withdrawn_and_invented_links_do_not_work(owner, vision):
    invitation, secret = members.invite(actor=owner, department=vision, role="member")
    Invitation.objects.update(expires_at=timezone.now())
    with pytest.raises(members.InvitationOver, match="olga"):
        members.accept(actor=Actor(make.user()), secret=secret)
    members.withdraw_invitation(actor=owner, invitation=invitation)
    members.withdraw_invitation(actor=owner, invitation=invitation)
    for invalid in (secret, "invented"):
        with pytest.raises(NotVisible):
            members.accept(actor=Actor(make.user()), secret=invalid)
    assert AuditEntry.objects.filter(action="invitation.withdrawn").count() == 1


def test_person_without_an_account_creates_one_through_the_invitation_link(owner, vision):
    _, secret = members.invite(actor=owner, department=vision, role="member", email="n@example.org")
    created = members.accept_as_new(
        secret=secret, username="nina", password="correct horse battery", full_name="Nina Li"
    )
    assert created.check_password("correct horse battery")
    assert (created.email, created.get_full_name(), created.is_operator, created.is_staff) == (
        "n@example.org",
        "Nina Li",
        False,
        False,
    )
    assert Membership.objects.get(user=created).department == vision


@pytest.mark.parametrize(
    ("username", "password", "field"),
    [
        ("nina", "short", "password"),
        ("not a name!", "correct horse battery", "username"),
        ("OLGA", "correct horse battery", "username"),
    ],
)
def test_invalid_name_or_password_leaves_the_invitation_link_usable(owner, vision, username, password, field):
    _, secret = members.invite(actor=owner, department=vision, role="member")
    with pytest.raises(Invalid) as refused:
        members.accept_as_new(secret=secret, username=username, password=password)
    assert refused.value.field == field
    assert refused.value.detail
    assert members.invitation_for(secret)
    assert User.objects.count() == 1


def test_existing_user_is_added_by_login_name(owner, vision):
    make.user("bob")
    added = members.add_member(actor=owner, department=vision, username=" bob ", role="viewer")
    assert added.role == Role.VIEWER
    entry = AuditEntry.objects.get(action="member.added")
    assert (entry.actor_name, entry.target, entry.after) == ("olga", "user bob", {"role": "viewer"})
    with pytest.raises(members.AlreadyMember):
        members.add_member(actor=owner, department=vision, username="bob", role="member")
    with pytest.raises(members.NoSuchUser) as unknown:
        members.add_member(actor=owner, department=vision, username="nobody", role="member")
    assert unknown.value.field == "username"
    with pytest.raises(Invalid):
        members.add_member(actor=owner, department=vision, username="bob", role="king")


def test_only_owners_manage_members_and_strangers_cannot_see_the_department(vision):
    member, stranger = Actor(make.member(vision)), Actor(make.member(make.department()))
    row = Membership.objects.get(user=member.user)
    with pytest.raises(Forbidden):
        members.change_role(actor=member, membership=row, role="owner")
    for call in (
        lambda: members.invite(actor=stranger, department=vision, role="owner"),
        lambda: members.add_member(actor=stranger, department=vision, username="x", role="member"),
        lambda: members.remove_member(actor=stranger, membership=row),
    ):
        with pytest.raises(NotVisible):
            call()


def test_only_an_operator_can_remove_the_last_owner(owner, vision):
    row = Membership.objects.get(user=owner.user)
    with pytest.raises(members.LastOwner):
        members.change_role(actor=owner, membership=row, role="member")
    with pytest.raises(members.LastOwner):
        members.remove_member(actor=owner, membership=row)
    make.member(vision, Role.OWNER)
    assert members.change_role(actor=owner, membership=row, role="member").role == Role.MEMBER
    operator = Actor(make.user(is_operator=True))
    last = Membership.objects.get(role=Role.OWNER)
    assert members.remove_member(actor=operator, membership=last) == 0


def test_removing_a_member_revokes_their_tokens_in_the_department_and_its_teams(owner, vision):
    other = make.department()
    team = make.department(parent=vision)
    boss = make.member(vision, Role.OWNER, "boss")
    Membership.objects.create(user=boss, department=other, role=Role.MEMBER)
    here, below, elsewhere = token(boss, vision), token(boss, team), token(boss, other)
    row = Membership.objects.get(user=boss, department=vision)
    assert members.remove_member(actor=owner, membership=row) == 2
    for ended in (here, below):
        ended.refresh_from_db()
        assert ended.revoked_at is not None
    elsewhere.refresh_from_db()
    assert elsewhere.revoked_at is None
    assert members.remove_member(actor=owner, membership=row) == 0
