"""Creating and revoking API tokens and service accounts.

Creating or revoking a token needs a session, or a token with the scope `tokens`. A token created by such a token is its child:
it has no more than its parent (scopes except `tokens`, addresses, department, lifetime) and ends with it. A service account's
token ends when the person who created it may no longer manage the department.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Callable, Sequence

from django.db.models import Q, QuerySet
from django.utils import timezone

from portal import audit, names
from portal.access import Actor, NotVisible, Right, ScopeMissing
from portal.accounts.bearer_tokens import is_backed, may_be_used, new_secret
from portal.errors import N_, Invalid, Problem
from portal.infra.locks import durable
from portal.models import ApiToken, Department, Membership, Role, TokenPeriod, User
from portal.notify import notices
from portal.notify.events import emit

MOST_GPU_HOURS = 1_000_000_000
LONGEST = dt.timedelta(days=366)
MOST_TOKENS = 100
MOST_ADDRESSES = 100  # of one token: each request with it compares them all
MOST_ACCOUNTS = 100  # service accounts of a department, each with its own tokens and rate limit
MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
ACCOUNT = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


class TooManyTokens(Problem):
    code = "too_many_tokens"
    message = N_("%(holder)s already has %(count)s active tokens, the maximum. Revoke one first.")


class TooManyAccounts(Problem):
    code = "too_many_accounts"
    message = N_("%(department)s already has %(count)s service accounts, the maximum. Remove one first.")


class ParentEnded(Problem):
    code = "token_ended"
    message = N_("The token used for this request is no longer valid.")


def create_token(
    *,
    actor: Actor,
    department: Department | None,
    name: str,
    scopes: Sequence[str],
    expires_at: dt.datetime,
    addresses: Sequence[str] = (),
    holder: User | None = None,
    gpu_hours: int | None = None,
    gpu_hours_per: str = TokenPeriod.MONTH,
    on_commit_row: Callable[[ApiToken, str], None] | None = None,
) -> tuple[ApiToken, str]:
    """Creates a token; returns the row and the whole token, which is shown only once.

    `holder` None: the actor. `department` None: valid in the whole installation, for operators. `gpu_hours`: what its workloads
    may use, None for no limit; its parent's limit applies as well. Raises Invalid (name, scopes, expires_at,
    addresses, gpu_hours), Forbidden, NotVisible, TooManyTokens, ParentEnded.
    """
    holder = holder or actor.user
    if holder is None:
        raise NotVisible
    require_making(actor, department, holder)
    name = names.checked(name)
    if not name:
        raise Invalid(N_("Enter a name for the token."), field="name")
    wanted = checked_scopes(actor, department, holder, scopes)
    networks = checked_addresses(actor, addresses)
    check_expiry(actor, expires_at)
    check_gpu_hours(gpu_hours)
    prefix, secret, digest = new_secret()
    with durable():
        User.objects.select_for_update(no_key=True).get(pk=holder.pk)  # the count below must hold until commit
        if actor.token is not None:  # a concurrent revocation waits for this transaction, or is seen here
            parent = ApiToken.objects.select_for_update(no_key=True, of=("self",)).get(pk=actor.token.pk)
            if not may_be_used(parent):
                raise ParentEnded
        count = ApiToken.objects.filter(holder=holder, revoked_at=None, expires_at__gt=timezone.now()).count()
        if count >= MOST_TOKENS:
            raise TooManyTokens(holder=holder.username, count=count)
        token = ApiToken.objects.create(
            holder=holder, department=department, name=name, prefix=prefix, digest=digest, scopes=wanted,
            addresses=networks, expires_at=expires_at, made_by=person_behind(actor), parent=actor.token,
            gpu_hours=gpu_hours, gpu_hours_per=gpu_hours_per,
        )  # fmt: skip
        audit.record(actor, "token.created", prefix, department=department, after=_audited(token))
        if on_commit_row:
            on_commit_row(token, secret)
    return token, secret


def _audited(token: ApiToken) -> dict[str, object]:
    after = {"name": token.name, "holder": token.holder.username, "scopes": token.scopes, "addresses": token.addresses}
    if token.gpu_hours is not None:
        after |= {"gpu_hours": token.gpu_hours, "gpu_hours_per": str(token.gpu_hours_per)}
    return after | ({"parent": token.parent.prefix} if token.parent else {})


def person_behind(actor: Actor) -> User | None:
    """The person whose right a new token depends on: the actor, or for a service account the person who created the token it
    uses."""
    service = actor.user is not None and actor.user.service_of_id is not None
    return actor.token.made_by if service and actor.token is not None else actor.user


def require_making(actor: Actor, department: Department | None, holder: User) -> None:
    """Requires that the actor may create such a token. Raises NotVisible, ScopeMissing, Forbidden, Invalid."""
    if department is None:
        if not actor.is_operator or actor.bound is not None or holder != actor.user:
            raise NotVisible
        if Right.MAKE_TOKENS not in actor.scopes:
            raise ScopeMissing(scope=Right.MAKE_TOKENS.value)
        return
    actor.require(Right.SEE, department)
    actor.require(Right.MAKE_TOKENS, department)
    if holder != actor.user:
        require_service_account(actor, department, holder)


def require_service_account(actor: Actor, department: Department, holder: User) -> None:
    """Requires that the actor owns the department and that `holder` is one of its service accounts. Raises Forbidden,
    Invalid."""
    actor.require(Right.STEER, department)
    if holder.service_of_id != department.pk:
        raise Invalid(
            N_("%(holder)s is not a service account of this department."), field="holder", holder=holder.username
        )


def checked_scopes(actor: Actor, department: Department | None, holder: User, scopes: Sequence[str]) -> list[str]:
    """The scopes in their usual order. Raises Invalid for unknown ones and for any that the actor or the holder does
    not have."""
    known = [right.value for right in Right]
    wanted = [scope for scope in known if scope in scopes]
    unknown = sorted(set(scopes) - set(known))
    if unknown or not wanted:
        raise Invalid(N_("Choose from the scopes %(known)s."), field="scopes", known=", ".join(known), unknown=unknown)
    beyond = [scope for scope in wanted if Right(scope) not in Actor(holder).rights_in(department)]
    given = actor.rights_in(department) if holder == actor.user else actor.scopes
    missing = [scope for scope in wanted if Right(scope) not in given]
    if actor.token is not None and Right.MAKE_TOKENS in wanted:
        raise Invalid(N_("A token created by a token cannot create tokens: omit “tokens”."), field="scopes")
    if beyond:
        raise Invalid(
            N_("%(holder)s currently does not have these scopes in this department: %(scopes)s."),
            field="scopes", holder=holder.username, scopes=", ".join(beyond),
        )  # fmt: skip
    if missing:
        raise Invalid(
            N_("A token can create tokens with its own scopes only. This one does not have %(scopes)s; it has %(own)s."),
            field="scopes", scopes=", ".join(missing), own=", ".join(each for each in known if Right(each) in actor.scopes),
        )  # fmt: skip
    return wanted


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def checked_addresses(actor: Actor, addresses: Sequence[str]) -> list[str]:
    """The networks in canonical form; a single address is a network of one.

    For an actor with a token they must lie inside that token's networks, which are also the default. Raises Invalid.
    """
    networks, bounds = list[str](), actor.token.addresses if actor.token else []
    if len(addresses) > MOST_ADDRESSES:
        raise Invalid(
            N_("A token can have at most %(most)s addresses, not %(count)s: use networks such as 10.0.0.0/8."),
            field="addresses", most=MOST_ADDRESSES, count=len(addresses),
        )  # fmt: skip
    for text in addresses:
        network = _network(text.strip())
        if bounds and not any(_lies_in(network, ipaddress.ip_network(bound)) for bound in bounds):
            raise Invalid(
                N_("%(text)s is outside the addresses allowed for the token that creates this one: %(bounds)s."),
                field="addresses", text=text, bounds=", ".join(bounds),
            )  # fmt: skip
        if str(network) not in networks:
            networks.append(str(network))
    return networks or list(bounds)


def _network(text: str) -> Network:
    """The parsed network; an IPv4-mapped one as IPv4, because clients' addresses are compared so. Raises Invalid."""
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise Invalid(N_("%(text)s is not an IP address or network."), field="addresses", text=text[:100]) from None
    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise Invalid(
            N_("%(text)s is an address within a network: write %(network)s for all of that network, or the address alone."),
            field="addresses", text=text[:100], network=str(network),
        ) from None  # fmt: skip
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(MAPPED):
        inner = int(network.network_address) & 0xFFFF_FFFF
        return ipaddress.IPv4Network((inner, network.prefixlen - 96))
    return network


def _lies_in(network: Network, bound: Network) -> bool:
    if isinstance(network, ipaddress.IPv4Network) and isinstance(bound, ipaddress.IPv4Network):
        return network.subnet_of(bound)
    if isinstance(network, ipaddress.IPv6Network) and isinstance(bound, ipaddress.IPv6Network):
        return network.subnet_of(bound)
    return False


def check_expiry(actor: Actor, expires_at: dt.datetime) -> None:
    """Raises Invalid for an expiry in the past, more than a year ahead, or later than that of the token used to
    create it."""
    now = timezone.now()
    if expires_at <= now:
        raise Invalid(N_("The expiry is in the past."), field="expires_at")
    if expires_at > now + LONGEST:
        raise Invalid(N_("A token is valid for at most one year."), field="expires_at", latest=now + LONGEST)
    if actor.token is not None and expires_at > actor.token.expires_at:
        raise Invalid(
            N_("A token created by a token cannot expire later than that token."),
            field="expires_at",
            latest=actor.token.expires_at,
        )


def check_gpu_hours(hours: int | None) -> None:
    """Raises Invalid."""
    if hours is not None and not 1 <= hours <= MOST_GPU_HOURS:
        raise Invalid(
            N_("Enter whole GPU-hours from 1 to %(most)s."), field="gpu_hours", most=f"{MOST_GPU_HOURS:,}", given=hours
        )


def revoke_token(*, actor: Actor, token: ApiToken) -> ApiToken:
    """Ends a token and all tokens created with it; revoking twice is harmless.

    For its holder, the department's owners and operators. An actor with a token may revoke only that very token,
    unless it has the scope `tokens`. Raises NotVisible, ScopeMissing, Forbidden.
    """
    if token.holder != actor.user:
        if token.department is None:
            actor.require_operator()
        else:
            actor.require(Right.STEER, token.department)
    if actor.token is not None and actor.token != token and Right.MAKE_TOKENS not in actor.scopes:
        raise ScopeMissing(scope=Right.MAKE_TOKENS.value)
    with durable():
        if ended := end_tokens(ApiToken.objects.filter(pk=token.pk)):
            before = {"name": token.name, "holder": token.holder.username, "children_ended": ended - 1}
            audit.record(actor, "token.revoked", token.prefix, department=token.department, before=before)
    token.refresh_from_db()
    return token


def end_tokens(tokens: QuerySet[ApiToken]) -> int:
    """Ends the live tokens among these and all that were created with them; returns how many. Call it in a
    transaction."""
    locked = tokens.filter(revoked_at=None).select_for_update(no_key=True, of=("self",)).order_by("pk")
    live = list(locked.values_list("pk", flat=True))
    rows = ApiToken.objects.filter(Q(pk__in=live) | Q(parent__in=live), revoked_at=None)
    return rows.update(revoked_at=timezone.now())


def end_unbacked_tokens(user: User) -> int:
    """Ends the tokens that depended on a right which `user` has just lost; returns how many.

    Those are the person's own tokens where they have no role any more, and tokens they created for service accounts
    that they may not manage any more. The remaining owners are notified of the latter. Call it after the right has
    ended, in the same transaction.
    """
    now, person = timezone.now(), User.objects.get(pk=user.pk)
    live = ApiToken.objects.filter(Q(holder=person) | Q(made_by=person), revoked_at=None, expires_at__gt=now)
    unbacked = [
        token for token in live.select_related("holder", "department", "made_by") if not _is_still_backed(token)
    ]
    ended = end_tokens(ApiToken.objects.filter(pk__in=[token.pk for token in unbacked]))
    services: dict[int, list[ApiToken]] = {}
    for token in unbacked:
        if token.department_id is not None and token.holder_id != person.pk:
            services.setdefault(token.department_id, []).append(token)
    for tokens in services.values():
        _notify_owners(person, tokens)
    return ended


def _is_still_backed(token: ApiToken) -> bool:
    return is_backed(token) and bool(Actor(token.holder).rights_in(token.department_id))


def _notify_owners(person: User, tokens: Sequence[ApiToken]) -> None:
    department = tokens[0].department
    if department is not None:
        names_of = ", ".join(f"{token.holder.username}: {token.name}" for token in tokens)
        people = [owner for owner in notices.owners_of(department) if owner != person]
        notices.send("token.ended", to=people, department=department, person=person.label, tokens=names_of[:300])


def create_service_account(*, actor: Actor, department: Department, name: str, role: str = Role.MEMBER) -> User:
    """Creates a member of the department that cannot log in and acts through tokens only. Raises Invalid, Forbidden."""
    actor.require(Right.STEER, department)
    if not ACCOUNT.fullmatch(name):
        raise Invalid(N_("Use 1 to 40 lowercase letters, digits and hyphens."), field="name")
    username = f"{department.slug}.{name}"
    if role not in {Role.VIEWER, Role.MEMBER}:
        raise Invalid(N_("A service account can only be a viewer or a member."), field="role")
    with durable():
        Department.objects.select_for_update(no_key=True).get(pk=department.pk)  # the count must hold until commit
        if existing := User.objects.filter(username=username).first():
            message = (
                N_("Service account %(username)s already exists.")
                if existing.is_active
                else N_(
                    "%(username)s is the name of a removed service account and stays in the audit log. Choose another name."
                )
            )
            raise Invalid(message, field="name", username=username)
        count = User.objects.filter(service_of=department, is_active=True).count()
        if count >= MOST_ACCOUNTS:
            raise TooManyAccounts(department=department.name, count=count)
        account = User(username=username, service_of=department)
        account.set_unusable_password()
        account.save()
        Membership.objects.create(user=account, department=department, role=role)
        audit.record(actor, "service_account.created", username, department=department, after={"role": role})
        emit("member.added", department=department, user=username, role=role)
    return account


def remove_service_account(*, actor: Actor, account: User) -> None:
    """Deactivates the account and ends its tokens; its workloads keep running. Raises NotVisible, Forbidden."""
    department = account.service_of
    if department is None:
        raise NotVisible
    actor.require(Right.STEER, department)
    with durable():
        end_tokens(ApiToken.objects.filter(holder=account))
        Membership.objects.filter(user=account).delete()
        if User.objects.filter(pk=account.pk, is_active=True).update(is_active=False):
            audit.record(actor, "service_account.removed", account.username, department=department)
            emit("member.removed", department=department, user=account.username)
