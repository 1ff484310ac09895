"""Resetting a forgotten password by a mailed link, which is created when the mail is sent (portal/notify/outbox.py)."""

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
    """Whether the person signs in with a password of the portal: not if they are locked or only sign in through a provider."""
    allowed = settings.PASSWORD_SIGN_IN or user.is_break_glass
    return allowed and user.is_active and user.service_of_id is None and user.has_own_password


def people_with(email: str) -> QuerySet[User]:
    return User.objects.filter(email__iexact=email, is_active=True, service_of=None)


def send_links(email: str) -> None:
    """Sends a link to everybody who has this address. People who may not reset a password get nothing."""
    if not is_possible():
        return
    with durable():
        for user in filter(may_reset, people_with(email)):
            notices.send("user.password_forgotten", to=[user], username=user.username)
