"""Somebody with a password, for the tests of what comes beside it or against guessing it."""

from __future__ import annotations

import pytest
from django.core.cache import cache

from portal.models import User
from tests import builders as make

PASSWORD = "correct horse battery"


@pytest.fixture
def alice(db: None) -> User:
    cache.clear()  # failures that other tests counted
    alice = make.user("alice")
    alice.set_password(PASSWORD)
    alice.save()
    return alice
