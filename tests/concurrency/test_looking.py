"""Two processes that look at the nodes of a new cluster at once make one pool of what they find: one asks the other to wait.

The negative control leaves the lock out and must make two: a later look would move all cards to the older one, and
whoever was promised something of the other would have nothing.
"""

from __future__ import annotations

import threading

import pytest
from django.db import connections

from quotas.models import Cluster, Pool
from tests import builders as make
from tests.workloads.nodes.test_inventory import Listing, whole
from workloads.nodes import inventory, pools

pytestmark = [pytest.mark.concurrency, pytest.mark.django_db(transaction=True)]


def look_at_once(monkeypatch: pytest.MonkeyPatch, processes: int = 2) -> list[tuple[str, int]]:
    """Each knows of no pool when it meets the first card. Returns the pools in the end, with what is nominal."""
    cluster = make.cluster()
    together = threading.Barrier(processes)

    def ensure_pools(*given: object) -> object:
        together.wait(10)
        return met(*given)  # type: ignore[arg-type]

    met = pools.ensure_pools
    monkeypatch.setattr(inventory, "driver_for", lambda _cluster: Listing(whole("n1")))
    monkeypatch.setattr(inventory, "ensure_pools", ensure_pools)

    def look() -> None:
        try:
            inventory.refresh(Cluster.objects.get(pk=cluster.pk))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=look) for _ in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return [*Pool.objects.order_by("pk").values_list("slug", "nominal")]


def test_one_pool_is_made_of_what_both_found(monkeypatch: pytest.MonkeyPatch) -> None:
    ((_, nominal),) = look_at_once(monkeypatch)
    assert nominal == 8


def test_without_the_lock_there_are_two_and_one_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have read before either writes, which the lock alone forbids."""
    together = threading.Barrier(2)

    def each_its_own(cluster: Cluster, offer: pools.Offer, beside: Pool | None) -> Pool:
        slug = f"{pools.slug_of(offer)}-{threading.get_ident()}"[-50:]
        together.wait(10)
        return pools._make(cluster, offer, beside, slug, slug)

    monkeypatch.setattr(pools, "_the_only", each_its_own)
    assert sorted(nominal for _, nominal in look_at_once(monkeypatch)) == [0, 8]
