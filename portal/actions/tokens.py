"""Making and ending API tokens and service accounts."""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Callable, Sequence

from django.utils import timezone

from portal import audit, names
from portal.access import Actor, NotVisible, Right
from portal.errors import N_, Invalid, Problem
from portal.events import emit
from portal.locks import durable
from portal.models import ApiToken, Department, Membership, Role, User
from portal.tokens import new_secret

LONGEST = dt.timedelta(days=366)
MOST_TOKENS = 100
ACCOUNT = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


class TooManyTokens(Problem):
    code = "too_many_tokens"
    message = N_("%(holder)s has %(count)s live tokens, which is the most. Revoke one first.")


def create_token(
    *,
    actor: Actor,
    department: Department,
    name: str,
    scopes: Sequence[str],
    expires_at: dt.datetime,
    addresses: Sequence[str] = (),
    holder: User | None = None,
    on_commit_row: Callable[[ApiToken, str], None] | None = None,
) -> tuple[ApiToken, str]:
    """The row and the whole token, which is shown this once. `holder` None: the actor's own.

    Raises Invalid (name, scopes, expires_at, addresses), Forbidden, NotVisible, TooManyTokens.
    """
    holder = holder or actor.user
    if holder is None:
        raise NotVisible
    actor.require(Right.SEE, department)
    if holder != actor.user:
        require_service_account(actor, department, holder)
    name = names.checked(name)
    if not name:
        raise Invalid(N_("A token needs a name."), field="name")
    wanted = checked_scopes(actor, department, holder, scopes)
    networks = checked_addresses(addresses)
    check_expiry(actor, expires_at)
    prefix, secret, digest = new_secret()
    with durable():
        User.objects.select_for_update(no_key=True).get(pk=holder.pk)  # the count below must hold until commit
        count = ApiToken.objects.filter(holder=holder, revoked_at=None, expires_at__gt=timezone.now()).count()
        if count >= MOST_TOKENS:
            raise TooManyTokens(holder=holder.username, count=count)
        token = ApiToken.objects.create(
            holder=holder, department=department, name=name, prefix=prefix, digest=digest, scopes=wanted,
            addresses=networks, expires_at=expires_at,
        )  # fmt: skip
        after = {"name": token.name, "holder": holder.username, "scopes": wanted, "addresses": networks}
        audit.record(actor, "token.created", prefix, department=department, after=after)
        if on_commit_row:
            on_commit_row(token, secret)
    return token, secret


def require_service_account(actor: Actor, department: Department, holder: User) -> None:
    """Tokens of others are made only for the department's own service accounts, by its owners."""
    actor.require(Right.STEER, department)
    if holder.service_of_id != department.pk:
        raise Invalid(
            N_("%(holder)s is not a service account of this department."), field="holder", holder=holder.username
        )


def checked_scopes(actor: Actor, department: Department, holder: User, scopes: Sequence[str]) -> list[str]:
    known = [right.value for right in Right]
    wanted = [scope for scope in known if scope in scopes]
    unknown = sorted(set(scopes) - set(known))
    if unknown or not wanted:
        raise Invalid(N_("Choose from the scopes %(known)s."), field="scopes", known=", ".join(known), unknown=unknown)
    theirs = actor if holder == actor.user else Actor(holder)
    beyond = [scope for scope in wanted if Right(scope) not in theirs.rights_in(department)]
    beyond += [scope for scope in wanted if Right(scope) not in actor.scopes and scope not in beyond]
    if beyond:
        raise Invalid(
            N_("%(holder)s may not %(scopes)s in this department at present."),
            field="scopes", holder=holder.username, scopes=", ".join(beyond),
        )  # fmt: skip
    return wanted


def checked_addresses(addresses: Sequence[str]) -> list[str]:
    """Networks in canonical form; a single address is a network of one."""
    networks = []
    for text in addresses:
        try:
            networks.append(str(ipaddress.ip_network(text.strip())))
        except ValueError:
            raise Invalid(N_("%(text)s is not an address or network."), field="addresses", text=text) from None
    return networks


def check_expiry(actor: Actor, expires_at: dt.datetime) -> None:
    now = timezone.now()
    if expires_at <= now:
        raise Invalid(N_("The expiry lies in the past."), field="expires_at")
    if expires_at > now + LONGEST:
        raise Invalid(N_("A token lives at most one year."), field="expires_at", latest=now + LONGEST)
    if actor.token is not None and expires_at > actor.token.expires_at:
        raise Invalid(
            N_("A token made by a token cannot outlive it."), field="expires_at", latest=actor.token.expires_at
        )


def revoke_token(*, actor: Actor, token: ApiToken) -> ApiToken:
    """Ends it at once; revoking twice is harmless. Its holder, the department's owners and operators may."""
    if token.holder != actor.user:
        actor.require(Right.STEER, token.department)
    with durable():
        if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now()):
            before = {"name": token.name, "holder": token.holder.username}
            audit.record(actor, "token.revoked", token.prefix, department=token.department, before=before)
    token.refresh_from_db()
    return token


def create_service_account(*, actor: Actor, department: Department, name: str, role: str = Role.MEMBER) -> User:
    """A member of the department that cannot log in and acts through tokens only. Raises Invalid, Forbidden."""
    actor.require(Right.STEER, department)
    if not ACCOUNT.fullmatch(name):
        raise Invalid(N_("Use 1 to 40 small letters, digits and dashes."), field="name")
    username = f"{department.slug}.{name}"
    if role not in {Role.VIEWER, Role.MEMBER}:
        raise Invalid(N_("A service account is a viewer or a member."), field="role")
    with durable():
        if User.objects.filter(username=username).exists():
            raise Invalid(N_("There is a service account %(username)s already."), field="name", username=username)
        account = User(username=username, service_of=department)
        account.set_unusable_password()
        account.save()
        Membership.objects.create(user=account, department=department, role=role)
        audit.record(actor, "service_account.created", username, department=department, after={"role": role})
        emit("member.added", department=department, user=username, role=role)
    return account


def remove_service_account(*, actor: Actor, account: User) -> None:
    """Its tokens end at once; its workloads keep running and stay in the history."""
    department = account.service_of
    if department is None:
        raise NotVisible
    actor.require(Right.STEER, department)
    with durable():
        ApiToken.objects.filter(holder=account, revoked_at=None).update(revoked_at=timezone.now())
        Membership.objects.filter(user=account).delete()
        if User.objects.filter(pk=account.pk, is_active=True).update(is_active=False):
            audit.record(actor, "service_account.removed", account.username, department=department)
            emit("member.removed", department=department, user=account.username)
