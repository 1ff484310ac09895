"""Prices of pools, for reports. Each change is a new row and applies from its time on."""

from __future__ import annotations

from decimal import Decimal

from django.utils import timezone

from portal import audit
from portal.access import Actor
from portal.errors import N_, Invalid
from portal.infra.locks import durable
from portal.infra.versions import check_fresh
from portal.notify.events import emit
from quotas.models import Pool, PoolPrice

HIGHEST = Decimal(1_000_000)
PLACES = 6


def price_of(pool: Pool) -> PoolPrice:
    """The current price; if none was ever set, an unsaved one without amounts, number 0."""
    return pool.prices.order_by("number").last() or PoolPrice(pool=pool, number=0, own=None, borrowed=None)


def set_price(
    *, actor: Actor, pool: Pool, own: Decimal | None, borrowed: Decimal | None, expected_version: int
) -> PoolPrice:
    """Set what an hour costs from now on; None: no charge. Raises NotVisible, Stale, Invalid (own, borrowed)."""
    actor.require_operator()
    for field, amount in (("own", own), ("borrowed", borrowed)):
        _check(field, amount)
    with durable():
        Pool.objects.select_for_update(no_key=True).get(pk=pool.pk)
        last = price_of(pool)
        check_fresh(last.number, expected_version)
        if (last.own, last.borrowed) == (own, borrowed):
            return last
        now = timezone.now().replace(microsecond=0)
        price = PoolPrice.objects.create(
            pool=pool, number=last.number + 1, own=own, borrowed=borrowed, set_by=actor.name,
            since=max(now, last.since) if last.number else now,
        )  # fmt: skip
        audit.record(actor, "pool.price_changed", pool.slug, before=_values(last), after=_values(price))
        emit("pool.price_changed", pool=pool.slug)
    return price


def _check(field: str, amount: Decimal | None) -> None:
    if amount is None:
        return
    if not amount.is_finite() or not 0 <= amount <= HIGHEST:
        raise Invalid(N_("A price is from 0 to %(highest)s, or empty."), field=field, highest=f"{HIGHEST:,}")
    if amount != round(amount, PLACES):
        raise Invalid(N_("A price has at most %(places)s decimal places."), field=field, places=PLACES)


def _values(price: PoolPrice) -> dict[str, str | None]:
    amounts = {"own_price": price.own, "borrowed_price": price.borrowed}
    return {name: None if amount is None else f"{amount.normalize():f}" for name, amount in amounts.items()}
