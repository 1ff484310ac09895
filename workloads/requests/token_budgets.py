"""GPU-hours that the workloads submitted with a token may use, in each calendar month or in the token's whole life.

Use is computed from the ledger, as for every budget, and not counted separately. A token's use includes the workloads of its
child tokens, so creating tokens does not increase the limit. Nothing is reserved: at 100 % no workload can be submitted or
extended with it, and those submitted before continue (docs/adr/0063).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from django.db.models import Q
from django.utils.translation import gettext as _

from portal.access import Actor
from portal.errors import N_, Invalid
from portal.models import ApiToken, TokenPeriod
from quotas.models import Pool
from quotas.spending.budgets import HOUR, month_of
from quotas.spending.metering import whole_second
from quotas.spending.source import of_ledger
from quotas.wording import clock_of
from workloads.models import Workload
from workloads.requests.request import WorkloadRequest


@dataclass(frozen=True, slots=True)
class TokenUse:
    """How much of a token's GPU-hours is used. `resets_at` is None if the limit is for the token's whole life."""

    token: ApiToken
    limit: int  # GPU-hours
    start: dt.datetime
    resets_at: dt.datetime | None
    seconds: Fraction  # of whole cards

    @property
    def hours(self) -> float:
        return float(self.seconds / HOUR)

    @property
    def left(self) -> float:
        return max(0.0, self.limit - self.hours)

    @property
    def is_used_up(self) -> bool:
        return self.seconds >= self.limit * HOUR

    @property
    def sentence(self) -> str:
        """The use as a sentence, in the reader's language and time zone."""
        numbers = {"token": self.token.name, "used": f"{self.hours:,.1f}", "limit": f"{self.limit:,}"}
        if self.resets_at is None:
            return _("Token “%(token)s”: %(used)s of %(limit)s GPU-hours are used.") % numbers
        text = _("Token “%(token)s”: %(used)s of %(limit)s GPU-hours are used, until %(resets_at)s.")
        return text % {**numbers, "resets_at": clock_of(self.resets_at)}


class TokenUsedUp(Invalid):
    """A token's GPU-hours are used up. `limit` and `used` are in GPU-hours."""

    code = "token_used_up"
    message = N_(
        "The token “%(token)s” may use %(limit)s GPU-hours in all and has used %(used)s: it submits and extends nothing more. "
        "Its holder can make another token."
    )


EACH_MONTH = N_(
    "The token “%(token)s” may use %(limit)s GPU-hours each month and has used %(used)s: it submits and extends nothing more "
    "until %(until)s. Its holder can make another token."
)


def use_of(token: ApiToken, *, now: dt.datetime) -> TokenUse | None:
    """The token's use; None if it has no limit."""
    if token.gpu_hours is None:
        return None
    start, resets_at = month_of(now) if token.gpu_hours_per == TokenPeriod.MONTH else (token.created_at, None)
    start, end = whole_second(start), whole_second(now)
    own = Workload.objects.filter(Q(token=token) | Q(token__parent=token)).values("public_id")
    units: dict[int, int] = {}
    for _span, row, spent in of_ledger([(start, end)], Q(claim__workload__in=own), {"pool": "pool_id"}):
        units[row["pool"]] = units.get(row["pool"], 0) + spent
    per_card = dict(Pool.objects.filter(pk__in=units).values_list("pk", "units_per_card"))
    seconds = sum((Fraction(spent, per_card[pool]) for pool, spent in units.items()), Fraction(0))
    return TokenUse(token, token.gpu_hours, start, resets_at, seconds)


def uses_of(actor: Actor, *, now: dt.datetime) -> Iterator[TokenUse]:
    """The use of the actor's token and of its parent, each if it has a limit."""
    if actor.token is not None:
        for token in (actor.token, actor.token.parent):
            if token is not None and (use := use_of(token, now=now)) is not None:
                yield use


def refuse_used_up(actor: Actor, *, now: dt.datetime) -> None:
    """Raises TokenUsedUp. It takes no lock: two concurrent submissions just below the limit both pass, as they would in turn."""
    for use in uses_of(actor, now=now):
        if use.is_used_up:
            numbers: dict[str, Any] = {"token": use.token.name, "limit": use.limit, "used": round(use.hours, 1)}
            if use.resets_at is None:
                raise TokenUsedUp(**numbers)
            raise TokenUsedUp(EACH_MONTH, **numbers, resets_at=use.resets_at, until=clock_of(use.resets_at))


def token_sentences(actor: Actor, request: WorkloadRequest, *, now: dt.datetime) -> Iterator[str]:
    """Sentences for a verdict: what the token has used, and the most that this request would use."""
    for use in uses_of(actor, now=now):
        yield use.sentence
        if request.max_runtime is None:
            yield _("It has no maximum runtime, so it may use any number of GPU-hours: set one.")
        else:
            cards = Fraction(request.pods * request.charge, request.pool.units_per_card)
            most = float(cards * request.max_runtime / HOUR)
            yield _("This attempt would use at most %(most)s GPU-hours.") % {"most": f"{most:,.1f}"}
