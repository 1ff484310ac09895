"""Members of departments: inviting, joining, changing a role, leaving."""

from __future__ import annotations

import datetime as dt
import secrets
import unicodedata

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.utils import timezone

from portal import audit, names
from portal.access import Actor, NotVisible, Right
from portal.accounts.bearer_tokens import digest_of
from portal.accounts.tokens import end_unbacked_tokens
from portal.accounts.users import require_free
from portal.errors import N_, Invalid, Problem
from portal.infra import versions
from portal.infra.locks import durable
from portal.models import Department, Invitation, Membership, Role, User
from portal.notify import notices
from portal.notify.events import emit
from portal.text.words import sentences

INVITATION_LIVES = dt.timedelta(days=7)


class NoSuchUser(Problem):
    status = 422
    code = "no_such_user"
    message = N_("There is no user %(username)s. Send an invitation link instead.")


class AlreadyMember(Problem):
    code = "already_member"
    message = N_("%(username)s is already a member of %(department)s with the role %(role)s.")


class LastOwner(Problem):
    code = "last_owner"
    message = N_("%(username)s is the last quota owner of %(department)s. Assign another quota owner first.")


class InvitationOver(Problem):
    status = 410
    code = "invitation_over"
    message = N_("This invitation was used or withdrawn, or has expired. Ask %(inviter)s for a new one.")


class InvitationRevoked(InvitationOver):
    message = N_(
        "The person who created this invitation may no longer invite. Ask a quota owner of "
        "%(department)s for a new one."
    )


def role_named(role: str) -> Role:
    """The role of this name. Raises Invalid."""
    if role not in Role.values:
        raise Invalid(N_("Choose one of the roles %(roles)s."), field="role", roles=", ".join(Role.values))
    return Role(role)


def invite(*, actor: Actor, department: Department, role: str, email: str = "") -> tuple[Invitation, str]:
    """Creates an invitation; returns the row and the secret of its link, which is shown only once.

    Raises Invalid, Forbidden, NotVisible.
    """
    actor.require(Right.STEER, department)
    chosen = role_named(role)
    if actor.user is None:
        raise NotVisible
    secret = secrets.token_urlsafe(32)
    with durable():
        invitation = Invitation.objects.create(
            department=department,
            role=chosen,
            email=email,
            digest=digest_of(secret),
            created_by=actor.user,
            expires_at=timezone.now() + INVITATION_LIVES,
        )
        after = {"role": chosen.value, "email": email}
        audit.record(actor, "member.invited", f"invitation {invitation.pk}", department=department, after=after)
    return invitation, secret


def withdraw_invitation(*, actor: Actor, invitation: Invitation) -> None:
    """Invalidates the link at once. Withdrawing twice is harmless; an accepted invitation stays accepted."""
    actor.require(Right.STEER, invitation.department)
    with durable():
        withdrawn, _rows = Invitation.objects.filter(pk=invitation.pk, accepted_at=None).delete()
        if withdrawn:
            before = {"role": invitation.role, "email": invitation.email}
            target = f"invitation {invitation.pk}"
            audit.record(actor, "invitation.withdrawn", target, department=invitation.department, before=before)


def invitation_for(secret: str) -> Invitation:
    """The live invitation of this link. Raises NotVisible, InvitationOver."""
    try:
        row = Invitation.objects.select_related("department", "created_by").get(digest=digest_of(secret))
    except Invitation.DoesNotExist:
        raise NotVisible from None
    if row.accepted_at is not None or row.expires_at <= timezone.now():
        raise InvitationOver(inviter=row.created_by.label)
    if not is_still_valid(row):
        raise InvitationRevoked(department=row.department.name)
    return row


def is_still_valid(invitation: Invitation) -> bool:
    """Whether the person who sent the invitation may still invite: an invitation does not outlast that right."""
    return Actor(User.objects.get(pk=invitation.created_by_id)).may(Right.STEER, invitation.department)


def accept(*, actor: Actor, secret: str) -> Membership:
    """Joins the invitation's department; the link works once. Raises NotVisible, InvitationOver, AlreadyMember."""
    invitation = invitation_for(secret)
    if actor.user is None or actor.token is not None:
        raise NotVisible
    with durable():
        return _join_by(invitation, actor.user)


def accept_as_new(*, secret: str, username: str, password: str, full_name: str = "") -> User:
    """Creates an account for somebody who has none, and joins the department. Raises Invalid (username, password),
    InvitationOver."""
    invitation = invitation_for(secret)
    first, _space, last = names.checked(full_name, field="full_name").partition(" ")
    user = User(username=names.login(username), email=invitation.email, first_name=first[:150], last_name=last[:150])
    try:
        user.clean_fields(exclude=["password"])
        validate_password(password, user)
    except ValidationError as error:
        wrong = next(iter(getattr(error, "error_dict", {"password": error})))
        raise Invalid(sentences(error.messages).replace("%", "%%"), field=wrong) from error
    user.set_password(password)
    with durable():
        require_free(user.username)
        user.save()
        _join_by(invitation, user)
    return user


def _join_by(invitation: Invitation, user: User) -> Membership:
    if not is_still_valid(invitation):
        raise InvitationRevoked(department=invitation.department.name)
    used = Invitation.objects.filter(pk=invitation.pk, accepted_at=None, expires_at__gt=timezone.now()).update(
        accepted_at=timezone.now(), accepted_by=user
    )
    if not used:
        raise InvitationOver(inviter=invitation.created_by.label)
    return _join(Actor(user), invitation.department, user, Role(invitation.role))


def add_member(*, actor: Actor, department: Department, username: str, role: str) -> Membership:
    """Adds somebody who has an account. Raises NoSuchUser, AlreadyMember, Invalid, Forbidden, NotVisible."""
    actor.require(Right.STEER, department)
    chosen = role_named(role)
    with durable():
        username = unicodedata.normalize("NFKC", username).strip()
        user = User.objects.filter(username=username, is_active=True, service_of=None).first()
        if user is None:
            raise NoSuchUser(username=username, field="username")
        return _join(actor, department, user, chosen)


def _join(actor: Actor, department: Department, user: User, role: Role) -> Membership:
    membership, made = Membership.objects.get_or_create(user=user, department=department, defaults={"role": role})
    if not made:
        raise AlreadyMember(username=user.username, department=department.name, role=membership.role, field="username")
    audit.record(actor, "member.added", f"user {user.username}", department=department, after={"role": role.value})
    emit("member.added", department=department, user=user.username, role=role.value)
    if actor.user != user:  # people who followed a link need no notice
        notices.send("member.invited", to=[user], department=department, role=role.value)
    return membership


def change_role(*, actor: Actor, membership: Membership, role: str, seen: str = "") -> Membership:
    """Changes a member's role; the same role again changes nothing. Raises Conflict, LastOwner, Invalid, Forbidden,
    NotVisible."""
    department = membership.department
    actor.require(Right.STEER, department)
    chosen = role_named(role)
    with durable():
        members = _locked(department)
        row = members.get(membership.pk)
        if row is None:
            raise NotVisible
        versions.check({"role": row.role}, seen)
        if row.role == chosen:
            return row
        _keep_an_owner(actor, members, row)
        before, row.role = row.role, chosen
        row.from_rules = False  # chosen by hand: group rules do not change it any more
        row.save(update_fields=["role", "from_rules"])
        ended = end_unbacked_tokens(row.user)
        target = f"user {row.user.username}"
        after = {"role": chosen.value, "tokens_ended": ended}
        audit.record(actor, "member.role_changed", target, department=department, before={"role": before}, after=after)
        emit("member.changed", department=department, user=row.user.username, role=chosen.value)
    return row


def remove_member(*, actor: Actor, membership: Membership, seen: str = "") -> int:
    """Ends the membership and every token that depended on it; running work goes on. Returns how many tokens ended.

    Raises Conflict (the role), LastOwner, Forbidden, NotVisible. Removing somebody twice changes nothing.
    """
    department, user = membership.department, membership.user
    actor.require(Right.STEER, department)
    with durable():
        members = _locked(department)
        row = members.get(membership.pk)
        if row is None:
            return 0
        versions.check({"role": row.role}, seen)
        _keep_an_owner(actor, members, row)
        row.delete()
        ended = end_unbacked_tokens(user)
        before = {"role": row.role, "tokens_ended": ended}
        audit.record(actor, "member.removed", f"user {user.username}", department=department, before=before)
        emit("member.removed", department=department, user=user.username)
        notices.send("member.removed", to=[user], department=department)
    return ended


def _locked(department: Department) -> dict[int, Membership]:
    """All memberships of the department, locked, so that two owners cannot remove each other at once."""
    Department.objects.select_for_update(no_key=True).get(pk=department.pk)
    return {row.pk: row for row in Membership.objects.filter(department=department).select_related("user")}


def _keep_an_owner(actor: Actor, members: dict[int, Membership], row: Membership) -> None:
    """Raises LastOwner if the department would have no owner. Operators may leave it without one, because they can act for
    owners."""
    others = [each for each in members.values() if each.role == Role.OWNER and each.pk != row.pk]
    if row.role == Role.OWNER and not others and not actor.may(Right.OPERATE, row.department_id):
        raise LastOwner(username=row.user.username, department=row.department.name)
