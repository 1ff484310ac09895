"""Whether a session is still valid, for connections that outlast a request: event streams and notebooks.

A session ends by logout (its row is gone), by time, and by whatever changes the person's session hash: another password, a
lock, "log out everywhere" (User.sessions_ended).
"""

from __future__ import annotations

from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.models import Session
from django.db.models import F
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from portal.models import User


def is_live(key: str, user: User) -> bool:
    """Whether the session exists and still belongs to this person, as their account is in the database now."""
    row = Session.objects.filter(session_key=key, expire_date__gt=timezone.now()).first()
    data = row.get_decoded() if row is not None else {}
    given = str(data.get(HASH_SESSION_KEY, ""))
    hashes = [user.get_session_auth_hash(), *user.get_session_auth_fallback_hash()]
    return data.get(SESSION_KEY) == str(user.pk) and any(constant_time_compare(given, each) for each in hashes)


def end_all(user: User) -> None:
    """Ends all of the person's sessions, and with them their event streams and open notebooks. Tokens stay valid."""
    User.objects.filter(pk=user.pk).update(sessions_ended=F("sessions_ended") + 1)
