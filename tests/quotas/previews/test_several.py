"""Many changes are previewed in one transaction, which PostgreSQL must not end as idle."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from portal.access import SYSTEM
from quotas.models import PoolGroup, Quota
from quotas.previews import policy, several
from tests import builders as make

pytestmark = pytest.mark.django_db


def test_database_is_queried_between_two_computations(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = list[str]()
    for slug in ("a100", "h100", "l40"):
        pool = make.pool(slug, cards=8)
        for department in ("vision", "nlp"):
            make.quota(make.department(f"{department}-{slug}"), pool, 4)
    what_if, call = several.what_if, policy.Call.of

    def planned(*given: Any) -> Any:
        steps.append("plan")
        return what_if(*given)

    def probed(*given: Any) -> Any:
        steps.append("probe")
        return call(*given)

    def queried(execute: Any, *given: Any) -> Any:
        steps.append("query")
        return execute(*given)

    foresight = several.Foresight(SYSTEM, list(PoolGroup.objects.order_by("pk")), now=timezone.now())
    Quota.objects.update(guaranteed=2)
    monkeypatch.setattr(several, "what_if", planned)
    monkeypatch.setattr(policy.Call, "of", probed)
    with connection.execute_wrapper(queried):
        foresight.preview()
    assert (steps.count("plan"), steps.count("probe")) == (3, 12)
    pieces = "".join({"plan": "P", "probe": "C", "query": " "}[each] for each in steps).split()
    assert set(pieces) == {"P", "CC"}  # a call is probed before and after the change
