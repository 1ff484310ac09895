"""A person with a password, for the tests of sign-in."""

from __future__ import annotations

import pytest
from django.core.cache import cache

from portal.models import User
from tests import builders as make

PASSWORD = "correct horse battery"


@pytest.fixture
def alice(db: None) -> User:
    cache.clear()  # failed logins of other tests
    alice = make.user("alice")
    alice.set_password(PASSWORD)
    alice.save()
    return alice
