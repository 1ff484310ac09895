"""The parameters of a report: a period in the reader's time zone, the grouping, and filters."""

from __future__ import annotations

import calendar
import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace

from django.utils import timezone

from portal.access import Actor, NotVisible, department_for
from portal.errors import N_, Invalid
from portal.models import Department
from quotas.models import Pool

GROUPS = {"department": N_("Department"), "person": N_("Person"), "pool": N_("Pool"), "kind": N_("Kind")}
RANGES = {
    "this_month": N_("This month"), "last_month": N_("Last month"), "7d": N_("Last 7 days"), "30d": N_("Last 30 days"),
}  # fmt: skip
KINDS = {  # of workloads, with the words of workloads.models.Kind
    "job": N_("job"), "notebook": N_("notebook"), "distributed": N_("distributed job"), "service": N_("service"),
    "external": N_("submitted elsewhere"),
}  # fmt: skip
FIRST_YEAR = 2000
LONGEST = 5 * 366
"""The most days that one report covers."""


@dataclass(frozen=True, slots=True)
class Asked:
    """`start` is included, `end` is not; both are whole seconds. Empty texts and None do not filter."""

    start: dt.datetime
    end: dt.datetime
    by: tuple[str, ...] = ("pool",)
    department: Department | None = None  # with all below it
    person: str = ""
    pool: Pool | None = None
    kind: str = ""
    range: str = ""  # the name of the period, if it is one of RANGES

    @property
    def last_day(self) -> dt.date:
        return timezone.localdate(self.end - dt.timedelta(seconds=1))

    def until(self, now: dt.datetime) -> Asked:
        """The same, without what is in the future."""
        now = now.replace(microsecond=0)
        return replace(self, end=max(self.start, min(self.end, now)))


def midnight(day: dt.date) -> dt.datetime:
    """The beginning of a day in the reader's time zone, as UTC."""
    return timezone.make_aware(dt.datetime.combine(day, dt.time())).astimezone(dt.UTC)


def month_of(day: dt.date) -> tuple[dt.datetime, dt.datetime]:
    """Beginning and end of the month of this day, in the reader's time zone."""
    first = day.replace(day=1)
    return midnight(first), midnight(first + dt.timedelta(days=calendar.monthrange(day.year, day.month)[1]))


def named_range(name: str) -> tuple[dt.datetime, dt.datetime]:
    """Beginning and end of one of RANGES. Raises Invalid (range)."""
    today = timezone.localdate()
    if name == "this_month":
        return month_of(today)
    if name == "last_month":
        return month_of(today.replace(day=1) - dt.timedelta(days=1))
    if name in RANGES:
        days = int(name.removesuffix("d"))
        return midnight(today - dt.timedelta(days=days - 1)), midnight(today + dt.timedelta(days=1))
    raise Invalid(
        N_("“%(given)s” is not a range. Use one of %(choices)s, or from and until."), field="range", given=name[:40],
        choices=", ".join(RANGES),
    )  # fmt: skip


def asked_of(actor: Actor, values: Mapping[str, str], *, by: str = "pool") -> Asked:
    """Read the parameters of a URL. `by`: the default grouping. Raises Invalid (with the field), NotVisible."""
    given = {name: values.get(name, "").strip() for name in ("from", "until", "range", *GROUPS, "group")}
    if given["from"] or given["until"]:
        if given["range"] not in ("", "custom"):
            raise Invalid(N_("Give either a range, or from and until."), field="range")
        start, end = _between(given["from"], given["until"])
        name = ""
    else:
        name = "this_month" if given["range"] in ("", "custom") else given["range"]
        start, end = named_range(name)
    department = department_for(actor, given["department"]) if given["department"] else None
    pool = Pool.objects.filter(slug=given["pool"]).first() if given["pool"] else None
    if given["pool"] and pool is None:
        raise NotVisible
    if given["kind"] and given["kind"] not in KINDS:
        raise Invalid(
            N_("“%(given)s” is not a kind of workload. Use one of %(choices)s."), field="kind", given=given["kind"][:40],
            choices=", ".join(KINDS),
        )  # fmt: skip
    groups = _groups(given["group"] or by)
    return Asked(start, end, groups, department, given["person"][:150], pool, given["kind"], name)


def _groups(text: str) -> tuple[str, ...]:
    """Read names of GROUPS, separated by commas. Raises Invalid (group)."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    wrong = [name for name in names if name not in GROUPS]
    if wrong or not names:
        raise Invalid(
            N_("“%(given)s” cannot be grouped by. Use one or several of %(choices)s, separated by commas."),
            field="group", given=(wrong or [text])[0][:40], choices=", ".join(GROUPS),
        )  # fmt: skip
    return names


def _between(first: str, last: str) -> tuple[dt.datetime, dt.datetime]:
    """Read `from` and `until`; both are required. Each is a day in the reader's time zone, the last one included, or a time with
    its zone. Raises Invalid."""
    for name, text in (("from", first), ("until", last)):
        if not text:
            raise Invalid(N_("Enter both from and until."), field=name)
    start, end = _moment("from", first, 0), _moment("until", last, 1)
    if end <= start:
        raise Invalid(N_("The end is before the beginning: until must be later than from."), field="until")
    days = (end - start).total_seconds() / 86_400
    if days > LONGEST + 1:
        raise Invalid(
            N_("The time is %(days)s days long; a report covers at most %(most)s days."), field="until",
            days=round(days), most=LONGEST,
        )  # fmt: skip
    return start, end


def _moment(name: str, text: str, days: int) -> dt.datetime:
    """A time in whole seconds; for a day, its beginning plus `days`. Raises Invalid."""
    wrong = Invalid(
        N_("“%(given)s” is neither a day such as 2026-01-31 nor a time with its zone such as 2026-01-31T18:00:00Z."),
        field=name, given=text[:40],
    )  # fmt: skip
    try:
        is_day = len(text) == 10
        moment = dt.datetime.fromisoformat(text.replace(" ", "+"))  # in a URL, the + of a zone becomes a space
    except ValueError:
        raise wrong from None
    last = timezone.localdate().year + 20
    if not FIRST_YEAR <= moment.year <= last:
        raise Invalid(
            N_("The year %(year)s is out of range: enter a time from %(first)s to %(last)s."), field=name,
            year=moment.year, first=FIRST_YEAR, last=last,
        )  # fmt: skip
    if is_day:
        return midnight(moment.date() + dt.timedelta(days=days))
    if moment.tzinfo is None:
        raise wrong
    return moment.astimezone(dt.UTC).replace(microsecond=0)
