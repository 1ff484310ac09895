"""Two processes that discover the nodes of a new cluster at once create one pool: one waits for the other.

The negative control leaves out the lock and must create two: a later discovery would move all cards to the older one, and a
quota in the other would be worthless.
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


def discover_at_once(monkeypatch: pytest.MonkeyPatch, processes: int = 2) -> list[tuple[str, int]]:
    """Neither process knows a pool when it discovers the first card. Returns the pools in the end, with their nominal
    capacity."""
    cluster = make.cluster()
    together = threading.Barrier(processes)

    def ensure_pools(*given: object) -> object:
        together.wait(10)
        return met(*given)  # type: ignore[arg-type]

    met = pools.ensure_pools
    monkeypatch.setattr(inventory, "driver_for", lambda _cluster: Listing(whole("n1")))
    monkeypatch.setattr(inventory, "ensure_pools", ensure_pools)

    def discover() -> None:
        try:
            inventory.refresh(Cluster.objects.get(pk=cluster.pk))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=discover) for _ in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return [*Pool.objects.order_by("pk").values_list("slug", "nominal")]


def test_two_discoveries_at_once_create_one_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    ((_, nominal),) = discover_at_once(monkeypatch)
    assert nominal == 8


def test_two_pools_are_created_without_the_lock_and_one_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both read before either writes, which only the lock prevents."""
    together = threading.Barrier(2)

    def each_its_own(cluster: Cluster, offer: pools.Offer, beside: Pool | None) -> Pool:
        slug = f"{pools.slug_of(offer)}-{threading.get_ident()}"[-50:]
        together.wait(10)
        return pools._make(cluster, offer, beside, slug, slug)

    monkeypatch.setattr(pools, "_the_only", each_its_own)
    assert sorted(nominal for _, nominal in discover_at_once(monkeypatch)) == [0, 8]
