"""People's accounts at identity providers, and which account here each belongs to. One rule: an account at a provider opens the
account here that was created for it, or that its person linked to it while signed in; equal names or e-mail addresses do not
count."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError

from portal import audit, names
from portal.access import SYSTEM, Actor, NotVisible
from portal.accounts.users import require_free
from portal.errors import N_, Invalid, Problem
from portal.infra.locks import durable
from portal.infra.providers.identity_providers import IdentityProvider
from portal.models import User
from portal.sign_in import group_rules
from portal.sign_in.claims import text_of

MOST_TRIES = 50
LONGEST_SUBJECT = 191


class LinkedElsewhere(Problem):
    code = "linked_elsewhere"
    message = N_("This account at %(provider)s belongs to another user here. An operator can unlink it there.")


class LastWayIn(Problem):
    code = "last_way_in"
    message = N_("%(username)s has no password and no other linked account: unlinking this one would lock them out.")


def provider_of(key: str) -> IdentityProvider | None:
    """The configured provider with this key; None if there is none (any more)."""
    return next((each for each in settings.IDENTITY_PROVIDERS if each.key == key), None)


def label_of(key: str) -> str:
    provider = provider_of(key)
    return provider.label if provider else key


def accounts_of(user: User) -> list[SocialAccount]:
    return list(SocialAccount.objects.filter(user=user).order_by("provider", "pk"))


def create(account: SocialAccount) -> User:
    """Creates a person without a password for a provider's account that is not linked yet, and links the two. Raises
    Invalid."""
    provider, data = provider_of(account.provider), account.extra_data
    if provider is None:
        raise NotVisible
    wanted = text_of(data, provider.username_claim) or text_of(data, "email")
    for username in _usernames(wanted, provider.key):
        user = User(username=username, email=_email(text_of(data, "email")), **_names(data))
        user.set_unusable_password()
        try:
            with durable():
                require_free(user.username)
                user.save()
                account.user = user
                account.save()
                after = {"provider": provider.key, "subject": account.uid[:100]}
                audit.record(SYSTEM, "user.created", f"user {user.username}", after=after)
            return user
        except Invalid:
            continue
        except IntegrityError:  # created concurrently: an account of this name, or this very one by another login
            row = SocialAccount.objects.filter(provider=account.provider, uid=account.uid).first()
            if row is not None:
                account.pk, account.user = row.pk, row.user
                return User.objects.get(pk=row.user_id)
    raise Invalid(N_("The login name %(username)s is taken."), field="username", username=wanted)


def _usernames(wanted: str, provider: str) -> Iterator[str]:
    """Candidates in order: the name at the provider up to an @; with the provider's key appended; then numbered."""
    name = re.sub(r"[^\w.+-]", "-", wanted.partition("@")[0].strip()).strip("-.")[:100]
    try:
        name = names.login(name)
    except Invalid:
        name = ""
    yield from filter(None, [name])
    base = f"{name or 'user'}-{provider}"
    yield base
    yield from (f"{base}-{number}" for number in range(2, MOST_TRIES))


def _email(text: str) -> str:
    try:
        validate_email(text)
    except ValidationError:
        return ""
    return text[:254]


def _names(data: Mapping[str, Any]) -> dict[str, str]:
    """First and last name; a name that is not allowed here is left empty."""
    columns = {}
    whole = text_of(data, "name").partition(" ")
    for column, claim, other in (("first_name", "given_name", whole[0]), ("last_name", "family_name", whole[2])):
        try:
            columns[column] = names.checked((text_of(data, claim) or other)[:150])
        except Invalid:
            columns[column] = ""
    return columns


def link(*, actor: Actor, user: User, account: SocialAccount) -> SocialAccount:
    """Links a provider's account to this person: by the person, who has just signed in there, or by an operator.

    Linking twice changes nothing. Raises LinkedElsewhere, NotVisible.
    """
    if actor.token is not None or actor.user != user:
        actor.require_operator()
    try:
        with durable():
            User.objects.select_for_update(no_key=True).get(pk=user.pk)
            row, made = SocialAccount.objects.get_or_create(
                provider=account.provider, uid=account.uid, defaults={"user": user, "extra_data": account.extra_data}
            )
            if row.user_id != user.pk:
                raise LinkedElsewhere(provider=label_of(account.provider))
            if made:
                after = {"provider": account.provider, "subject": account.uid[:100]}
                audit.record(actor, "user.linked", f"user {user.username}", after=after)
    except IntegrityError:  # linked concurrently
        raise LinkedElsewhere(provider=label_of(account.provider)) from None
    return row


def named(provider: str, subject: str) -> SocialAccount:
    """The provider's account with this subject (`sub`), as an operator writes it. Raises Invalid (provider, subject)."""
    subject = subject.strip()
    if provider_of(provider) is None:
        known = ", ".join(each.key for each in settings.IDENTITY_PROVIDERS) or "–"
        raise Invalid(N_("Choose one of the providers %(known)s."), field="provider", known=known)
    if not subject or len(subject) > LONGEST_SUBJECT or not subject.isprintable():
        raise Invalid(
            N_("Enter the user's identifier at the provider (sub), of at most 191 characters."), field="subject"
        )
    return SocialAccount(provider=provider, uid=subject, extra_data={})


def unlink(*, actor: Actor, user: User, account: int) -> None:
    """Removes the link, and the roles that groups there gave. Unlinking twice changes nothing. Raises LastWayIn, NotVisible."""
    if actor.token is not None or actor.user != user:
        actor.require_operator()
    with durable():
        locked = User.objects.select_for_update(no_key=True).get(pk=user.pk)
        row = SocialAccount.objects.filter(pk=account, user=locked).first()
        if row is None:
            return
        others = SocialAccount.objects.filter(user=locked).exclude(pk=row.pk)
        if actor.user == user and not locked.has_own_password and not others.exists():
            raise LastWayIn(username=locked.username)
        before = {"provider": row.provider, "subject": row.uid[:100]}
        row.delete()
        audit.record(actor, "user.unlinked", f"user {locked.username}", before=before)
        group_rules.apply_to(locked)
