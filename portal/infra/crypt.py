"""Secrets at rest (kubeconfigs, secret environment values, webhook secrets): Fernet, keys from ENCRYPTION_KEYS.

The first key encrypts, all decrypt. `manage.py reencrypt` encrypts everything again with the first one.
"""

from __future__ import annotations

import base64
import hashlib

import structlog
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext

from portal.errors import N_, Problem

log = structlog.get_logger(__name__)

COLUMNS = (
    ("quotas.Cluster", "connection"),
    ("portal.Webhook", "secret"),
    ("portal.IdempotencyKey", "body"),
    ("workloads.Workload", "secret_env"),
    ("workloads.Attempt", "secrets"),
    ("workloads.MetricsSource", "secret"),
    ("workloads.ExternalWork", "manifest"),
)
"""Every column that holds encrypted text: (model, field). Empty text is not encrypted."""

INSIDE = (("mfa.Authenticator", "data", ("secret", "seed")),)
"""JSON columns in which some members are encrypted: (model, field, members)."""


class Undecryptable(Problem):
    """The value is encrypted with a key that is not in ENCRYPTION_KEYS any more. Only what needs the value fails."""

    status = 409
    code = "undecryptable"
    message = N_(
        "%(what)s cannot be read: it is encrypted with a key that is no longer configured. An "
        "operator can restore the old key in ENCRYPTION_KEYS; otherwise it must be entered again."
    )

    @property
    def detail(self) -> str:
        what: str = self.numbers["what"]
        return gettext(self.message) % {"what": gettext(what) % self.numbers}


def _fernet() -> MultiFernet:
    keys = list(settings.ENCRYPTION_KEYS)
    if not keys:
        if not settings.DEBUG:
            raise ImproperlyConfigured(
                "ENCRYPTION_KEYS is not set: secrets cannot be kept without it (see .env.example)"
            )
        keys = [base64.urlsafe_b64encode(hashlib.sha256(settings.SECRET_KEY.encode()).digest()).decode()]
    return MultiFernet([Fernet(key) for key in keys])


def encrypt(text: str) -> str:
    return _fernet().encrypt(text.encode()).decode() if text else ""


def decrypt(token: str, what: str = N_("A secret"), name: str = "") -> str:
    """The decrypted text. `what` describes the value for the error message: marked by N_, with the placeholder %(name)s.

    Raises Undecryptable.
    """
    try:
        return _fernet().decrypt(token.encode()).decode() if token else ""
    except InvalidToken:
        log.warning("undecryptable", what=what % {"name": name})
        raise Undecryptable(what=what, name=name) from None


def reencrypted(token: str) -> str | None:
    """The text encrypted with the first key; None if no key can decrypt it."""
    try:
        return _fernet().rotate(token.encode()).decode()
    except InvalidToken:
        return None
