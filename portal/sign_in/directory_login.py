"""Logins with passwords of LDAP directories, and the accounts of their entries. Called only after the attempt was counted."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator

import structlog
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.utils import timezone

from portal.access import Actor
from portal.errors import N_, Problem
from portal.infra.providers import ldap_client
from portal.infra.providers.directories import Directory
from portal.infra.providers.ldap_client import DirectoryAway, Person
from portal.models import User
from portal.sign_in import group_rules, identities
from portal.sign_in.claims import cleaned, groups_of

log = structlog.get_logger(__name__)


class DirectoryDown(Problem):
    status = 503
    code = "directory_away"
    message = N_("%(directory)s does not respond, so your password cannot be checked. Try again later.")


def directories() -> list[Directory]:
    return [each for each in settings.IDENTITY_PROVIDERS if isinstance(each, Directory)]


def authenticate(login: str, password: str) -> User | None:
    """The person with this login name and password in a directory; their account is created at the first login.

    Raises DirectoryDown if no directory accepts them and one did not answer.
    """
    down: DirectoryDown | None = None
    for directory in directories():
        asked = timezone.now()
        try:
            with _answering(directory):
                person = ldap_client.verified(directory, login, password)
        except DirectoryDown as problem:
            down = down or problem
            continue
        if person is not None:
            return _logged_in(directory, person, asked)
    if down is not None:
        raise down
    return None


@contextlib.contextmanager
def _answering(directory: Directory) -> Iterator[None]:
    """Logs DirectoryAway and raises DirectoryDown instead, which is shown to people."""
    try:
        yield
    except DirectoryAway as error:
        log.warning("directory.away", directory=directory.key, error=str(error))
        raise DirectoryDown(directory=directory.label) from error


def _logged_in(directory: Directory, person: Person, asked: dt.datetime) -> User:
    account = account_of(directory, person)
    if account.pk is None:
        identities.create(account)
    group_rules.signed_in(account, groups_of(directory, account.extra_data), asked)
    return User.objects.get(pk=account.user_id)


def account_of(directory: Directory, person: Person) -> SocialAccount:
    """The account of this entry, updated from the directory; a new row that is not stored if there is none."""
    data = cleaned({"userinfo": dict(person.claims), "dn": person.dn})
    row = SocialAccount.objects.filter(provider=directory.key, uid=person.subject).first()
    if row is None:
        return SocialAccount(provider=directory.key, uid=person.subject, extra_data=data)
    if row.extra_data != data:
        row.extra_data = data
        row.save(update_fields=["extra_data"])
    return row


def confirms(user: User, password: str) -> bool:
    """Whether a directory that this person's account is linked to accepts the password. Raises DirectoryDown."""
    for directory, person in _entries(user):
        with _answering(directory):
            if ldap_client.password_is_right(directory, person.dn, password):
                return True
    return False


def admits(user: User) -> bool:
    """Whether this person may still log in through a directory, the password apart; updates their groups as a login does.
    Raises DirectoryDown."""
    asked = timezone.now()
    for directory, person in _entries(user):
        _logged_in(directory, person, asked)
        user.refresh_from_db(fields=["sessions_ended"])  # losing a group has changed it
        return True
    return False


def _entries(user: User) -> Iterator[tuple[Directory, Person]]:
    """The entries that this person's account is linked to and that may still log in, each read only when it is needed. Raises
    DirectoryDown."""
    known = {each.key: each for each in directories()}
    for account in user.directory_accounts():
        directory = known[account.provider]
        with _answering(directory), ldap_client.connected(directory) as connection:
            person = connection.person_of(account.uid)
        if person is not None:
            yield directory, person


def link(user: User, directory: Directory, login: str, password: str) -> bool:
    """Links the entry with this name and password to the person, who is logged in. False: there is none, or the password
    is wrong. Raises DirectoryDown, LinkedElsewhere."""
    asked = timezone.now()
    with _answering(directory):
        person = ldap_client.verified(directory, login, password)
    if person is None:
        return False
    account = account_of(directory, person)
    row = identities.link(actor=Actor(user), user=user, account=account)
    group_rules.signed_in(row, groups_of(directory, account.extra_data), asked)
    return True
