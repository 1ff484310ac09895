"""People's accounts, as operators manage them. Locking an account ends all its sessions and tokens at once."""

from __future__ import annotations

import secrets

from django.core.exceptions import ValidationError

from portal import audit, names
from portal.access import Actor
from portal.accounts import sessions
from portal.accounts.tokens import end_tokens, end_unbacked_tokens
from portal.errors import N_, Invalid, Problem
from portal.infra import versions
from portal.infra.locks import durable
from portal.models import ApiToken, User
from portal.text.words import sentences


class LastOperator(Problem):
    code = "last_operator"
    message = N_("%(username)s is the last operator. Assign another operator first.")


def create_user(*, actor: Actor, username: str, email: str = "", operator: bool = False) -> tuple[User, str]:
    """Creates an account; returns it and its first password, which is shown only once.

    Raises Invalid, NotVisible for anybody but operators.
    """
    actor.require_operator()
    user = User(username=names.login(username), email=email.strip(), is_operator=operator, is_staff=operator)
    try:
        user.clean_fields(exclude=["password"])
    except ValidationError as error:
        wrong = next(iter(error.message_dict))
        raise Invalid(sentences(error.messages).replace("%", "%%"), field=wrong) from error
    password = secrets.token_urlsafe(12)
    user.set_password(password)
    with durable():
        require_free(user.username)
        user.save()
        audit.record(actor, "user.created", f"user {user.username}", after={"operator": operator})
    return user, password


def require_free(username: str) -> None:
    """Raises Invalid if the login name exists already, ignoring case and letters that look the same."""
    taken = User.objects.filter(username__iexact=username).values_list("username", flat=True).first()
    if taken is None and not username.isascii():
        beyond_ascii = User.objects.filter(username__regex="[^ -~]").values_list("username", flat=True)
        taken = names.same_looking(username, beyond_ascii) or None
    if taken is not None:
        raise Invalid(N_("The login name %(username)s is taken."), field="username", username=taken)


def reset_password(*, actor: Actor, user: User) -> str:
    """Sets a new password and returns it, to be shown only once; the person's sessions end."""
    actor.require_operator()
    password = secrets.token_urlsafe(12)
    with durable():
        row = User.objects.select_for_update(no_key=True).get(pk=user.pk)
        row.set_password(password)
        row.save(update_fields=["password"])
        audit.record(actor, "user.password_reset", f"user {row.username}")
    return password


def set_active(*, actor: Actor, user: User, active: bool, seen: str = "") -> None:
    """Locks or unlocks an account. Locking ends its tokens and sessions; what runs goes on. Raises LastOperator,
    Conflict."""
    actor.require_operator()
    with durable():
        _check_seen(user, seen)
        if not active:
            _keep_an_operator(user)
            end_tokens(ApiToken.objects.filter(holder=user))
            sessions.end_all(user)
        if User.objects.filter(pk=user.pk, is_active=not active).update(is_active=active):
            audit.record(actor, "user.unlocked" if active else "user.locked", f"user {user.username}")
            end_unbacked_tokens(user)


def end_sessions(*, actor: Actor, user: User) -> None:
    """Logs a person out everywhere; for the person and for operators. Tokens stay valid. Raises NotVisible."""
    if actor.token is not None or actor.user != user:
        actor.require_operator()
    with durable():
        sessions.end_all(user)
        audit.record(actor, "user.sessions_ended", f"user {user.username}")


def set_operator(*, actor: Actor, user: User, operator: bool, seen: str = "") -> None:
    """Grants or removes the operator role. Raises LastOperator, Conflict."""
    actor.require_operator()
    with durable():
        _check_seen(user, seen)
        if not operator:
            _keep_an_operator(user)
        changed = User.objects.filter(pk=user.pk, is_operator=not operator)
        if changed.update(is_operator=operator, is_staff=operator, operator_from_rules=False):
            audit.record(actor, "user.operator" if operator else "user.no_operator", f"user {user.username}")
            end_unbacked_tokens(user)


def mark_of(user: User) -> str:
    """The version mark that a form about the account carries."""
    return versions.mark(_stored_flags(user))


def _stored_flags(user: User) -> dict[str, bool]:
    return {"active": user.is_active, "operator": user.is_operator}


def check_seen(user: User, seen: str) -> None:
    """Raises Conflict if the account has changed since `seen`. In a transaction the row stays locked until that ends."""
    with durable():
        _check_seen(user, seen)


def _check_seen(user: User, seen: str) -> None:
    versions.check(_stored_flags(User.objects.select_for_update(no_key=True).get(pk=user.pk)), seen)


def _keep_an_operator(user: User) -> None:
    """Raises LastOperator."""
    if user.is_last_operator():
        raise LastOperator(username=user.username)
