"""Of several watchers, only one follows a cluster."""

from __future__ import annotations

import pytest
from django.utils import timezone

from portal.models import Heartbeat
from workloads.reconciler.watch import LONG_AGO, Lease

pytestmark = pytest.mark.django_db(transaction=True)


def test_one_of_two_watchers_holds_the_lease_until_it_expires_or_is_released() -> None:
    first, second = Lease("watch:here"), Lease("watch:here")
    assert (first.take(), second.take(), first.take()) == (True, False, True)
    row = Heartbeat.objects.get(name="watch:here")
    assert row.data == {"holder": first.holder}
    Heartbeat.objects.update(at=timezone.now() - timezone.timedelta(seconds=11))
    assert (second.take(), first.take()) == (True, False)
    second.give_up()
    assert Heartbeat.objects.get().at == LONG_AGO
    assert first.take()
