"""Reads the directories again, so that people who lose a group there lose here what it gave, without having to log in.

Nothing is concluded from a directory that is unreachable or answers incompletely, nor if most people would lose all their
groups at once: that is the sign of a wrong search base or missing read rights. An operator must confirm it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

import structlog
from allauth.socialaccount.models import SocialAccount
from django.utils import timezone

from portal import audit
from portal.access import SYSTEM
from portal.accounts import sessions
from portal.accounts.tokens import end_tokens
from portal.infra.locks import durable
from portal.infra.providers import ldap_client
from portal.infra.providers.directories import Directory
from portal.infra.providers.ldap_client import DirectoryAway, Person
from portal.models import ApiToken, DirectoryReading, SeenGroups, User
from portal.notify import notices
from portal.sign_in import group_rules
from portal.sign_in.claims import groups_of
from portal.sign_in.directory_login import account_of, directories

NOTIFY_AFTER = dt.timedelta(minutes=30)  # without a reading; if there never was one, operators are notified at once
MANY = 5  # people; fewer may lose all their groups at once, unless nobody at all is left
GONE = "gone"  # in an account's extra_data: the entry was missing at the last reading
log = structlog.get_logger(__name__)


class TooManyLose(Exception):
    def __init__(self, people: Sequence[User]) -> None:
        super().__init__(f"{len(people)} people would lose all their groups")
        self.people = people


def read_all() -> None:
    """Reads every directory, then applies the rules: roles from a provider that has long been missing in the settings end."""
    for directory in directories():
        try:
            read(directory)
        except DirectoryAway as error:
            log.warning("directory.away", directory=directory.key, error=str(error))
        except TooManyLose as error:
            log.warning("directory.too_many_lose", directory=directory.key, people=len(error.people))
    group_rules.note_missing(timezone.now())
    group_rules.apply_to_all()


def read(directory: Directory, *, sure: bool = False) -> int:
    """Updates the groups of everybody who has logged in through the directory; returns for how many people they changed.

    `sure`: even if most would lose all their groups. Raises DirectoryAway, TooManyLose; then only the directory's
    DirectoryReading has changed.
    """
    asked = timezone.now()
    accounts = list(SocialAccount.objects.filter(provider=directory.key).select_related("user").order_by("pk"))
    try:
        persons = _persons(directory, accounts)
    except DirectoryAway as error:
        _note(directory, asked, problem=str(error), losing=0)
        raise
    seen = dict(SeenGroups.objects.filter(account__in=accounts).values_list("account_id", "groups"))
    losers = [each.user for each in accounts if seen.get(each.pk) and not _groups(directory, persons[each.pk])]
    most = len(losers) >= MANY and 2 * len(losers) > sum(map(bool, seen.values()))
    nobody = len(accounts) > 1 and not any(persons.values())
    if not sure and losers and (most or nobody):
        _note(directory, asked, problem="", losing=len(losers))
        raise TooManyLose(losers)
    changed = 0
    for account in accounts:
        person = persons[account.pk]
        if person is None:
            _mark_gone(account, asked)
        else:
            account_of(directory, person)
        if seen.get(account.pk) != (groups := _groups(directory, person)):
            group_rules.signed_in(account, groups, asked)
            changed += 1
    _note(directory, asked, problem="", losing=0, read_at=asked, people=len(accounts))
    log.info("directory.read", directory=directory.key, people=len(accounts), changed=changed)
    return changed


def _persons(directory: Directory, accounts: Sequence[SocialAccount]) -> Mapping[int, Person | None]:
    with ldap_client.connected(directory) as connection:
        connection.require_whole()
        return {each.pk: connection.person_of(each.uid) for each in accounts}


def _groups(directory: Directory, person: Person | None) -> list[str]:
    return groups_of(directory, {"userinfo": dict(person.claims)}) or [] if person is not None else []


def _note(directory: Directory, tried_at: dt.datetime, **facts: object) -> None:
    """Stores the result of the reading and notifies operators in the same transaction: once when the directory cannot be read,
    and once when it can be read again."""
    with durable():
        DirectoryReading.objects.get_or_create(provider=directory.key, defaults={"tried_at": tried_at})
        row = DirectoryReading.objects.select_for_update(no_key=True).get(provider=directory.key)
        row.tried_at = tried_at
        for name, value in facts.items():
            setattr(row, name, value)
        since = row.read_at or tried_at
        if not row.problem and not row.losing:
            if row.notified_at is not None:
                notices.send("directory.read_again", to=User.operators(), directory=directory.label)
            row.notified_at = None
        elif row.notified_at is None and (row.losing or row.read_at is None or tried_at - since >= NOTIFY_AFTER):
            if row.losing:
                notices.send(
                    "directory.too_many_lose", to=User.operators(), directory=directory.label, people=row.losing
                )
            else:
                notices.send(
                    "directory.away", to=User.operators(), directory=directory.label, since_at=since.isoformat(),
                    why=row.problem[:300],
                )  # fmt: skip
            row.notified_at = tried_at
        row.save()


def _mark_gone(account: SocialAccount, asked: dt.datetime) -> None:
    """Records that the entry is gone or may not log in any more. A person without another way to log in is logged out, and
    their tokens end."""
    with durable():
        user = User.objects.select_for_update(no_key=True).get(pk=account.user_id)
        row = SocialAccount.objects.filter(pk=account.pk).first()
        later = SeenGroups.objects.filter(account=account.pk, said_at__gt=asked).exists()  # has logged in meanwhile
        if row is None or later or row.extra_data.get(GONE):
            return
        row.extra_data[GONE] = True
        row.save(update_fields=["extra_data"])
        others = SocialAccount.objects.filter(user=user).exclude(pk=row.pk)
        if user.has_own_password or any(not each.extra_data.get(GONE) for each in others):
            return
        end_tokens(ApiToken.objects.filter(holder=user))
        sessions.end_all(user)
        audit.record(SYSTEM, "user.left_directory", f"user {user.username}", before={"provider": account.provider})
