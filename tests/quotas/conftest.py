"""A pool, two departments guaranteed half of it each, and an operator; files that need other numbers define their own."""

from __future__ import annotations

import pytest

from portal.models import Department, User
from quotas.models import Pool
from tests import builders as make


@pytest.fixture
def pool(db: None) -> Pool:
    return make.pool("a100", cards=8, notice=600, grace=120)


@pytest.fixture
def vision(pool: Pool) -> Department:
    vision = make.department("vision")
    make.quota(vision, pool, 4)
    return vision


@pytest.fixture
def nlp(pool: Pool) -> Department:
    nlp = make.department("nlp")
    make.quota(nlp, pool, 4)
    return nlp


@pytest.fixture
def root(db: None) -> User:
    return make.user("root", is_operator=True)
