"""Secrets at rest (kubeconfigs, secret environment values, webhook secrets): Fernet, keys from ENCRYPTION_KEYS."""

from __future__ import annotations

import base64
import hashlib

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured


class Undecryptable(Exception):
    """The value was encrypted with a key that is no longer in ENCRYPTION_KEYS."""


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


def decrypt(token: str) -> str:
    """Raises Undecryptable."""
    try:
        return _fernet().decrypt(token.encode()).decode() if token else ""
    except InvalidToken:
        raise Undecryptable("encrypted with a key that is not in ENCRYPTION_KEYS") from None
