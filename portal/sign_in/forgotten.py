"""A forgotten password: a link by mail, which the sender of mails makes when it sends (portal/notify/outbox.py)."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.tokens import default_token_generator
from django.db.models import QuerySet

from portal.infra.locks import durable
from portal.models import User
from portal.notify import notices

TOKENS = default_token_generator


def is_possible() -> bool:
    """Whether links can be mailed at all."""
    return "dummy" not in settings.EMAIL_BACKEND


def may_reset(user: User) -> bool:
    """Whether the person signs in by a password here: not who is locked, and not whom only a provider vouches for."""
    allowed = settings.PASSWORD_SIGN_IN or user.is_break_glass
    return allowed and user.is_active and user.service_of_id is None and user.has_own_password


def people_with(email: str) -> QuerySet[User]:
    return User.objects.filter(email__iexact=email, is_active=True, service_of=None)


def send_links(email: str) -> None:
    """Sends a link to everybody who has this address. Who may not reset is sent nothing."""
    if not is_possible():
        return
    with durable():
        for user in filter(may_reset, people_with(email)):
            notices.tell("user.password_forgotten", to=[user], username=user.username)
