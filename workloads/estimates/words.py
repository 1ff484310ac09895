"""Estimates of starts as sentences, and as a few words for lists."""

from __future__ import annotations

import datetime as dt

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from portal.text.words import percent
from quotas.wording import clock_of
from workloads.estimates.forward import CONFIDENCE, LOW
from workloads.estimates.runtimes import Class
from workloads.models import StartEstimate

NO_ESTIMATE = {
    "runtimes_unknown": gettext_lazy(
        "No estimate of its start: too little is known of how long the workloads before it run. A maximum runtime makes it known."
    ),
    "beyond_horizon": gettext_lazy("No estimate of its start: probably not within 7 days, as things are now."),
    "too_many": gettext_lazy("No estimate of its start: the queue is too long."),
    "failed": gettext_lazy("No estimate of its start: the simulation failed. Operators find the reason in the log."),
    "being_made": gettext_lazy("Its start is being estimated; this takes a few seconds."),
}
IN_A_LIST = {
    "runtimes_unknown": gettext_lazy("no estimate: runtimes unknown"),
    "beyond_horizon": gettext_lazy("no estimate: not within 7 days"),
    "too_many": gettext_lazy("no estimate: queue too long"),
}
BASIS = {
    Class.DEPARTMENT: gettext_lazy(
        "Too few workloads like those that run now have ended: their runtimes are taken from all of their departments."
    ),
    Class.KIND: gettext_lazy(
        "Too few workloads like those that run now have ended: their runtimes are taken from all of their kind."
    ),
    Class.ANY: gettext_lazy(
        "Too few workloads like those that run now have ended: their runtimes are taken from all that have ended here."
    ),
    Class.LIMIT: gettext_lazy(
        "Too few workloads have ended: running workloads are assumed to run to their maximum runtime."
    ),
}
ABOUT = dt.timedelta(minutes=2)  # a range up to this length is shown as one time


def start_lines(estimate: StartEstimate) -> list[str]:
    """Sentences: when it will probably start, when at the latest, and the basis of the runtimes; or why there is no estimate."""
    if estimate.low is None or estimate.median is None:
        return [str(NO_ESTIMATE[estimate.why])]
    now = timezone.now()
    lines = [_range(estimate.low, estimate.median, estimate.high, now)] if is_range(estimate) else []
    if estimate.latest is not None and (estimate.latest > now or not lines):
        text = _(
            "At the latest %(latest)s, if everything before it runs to its maximum runtime and nobody else comes first."
        )
        if not lines:
            text = _(
                "Estimated start: at the latest %(latest)s, if everything before it runs to its maximum runtime and nobody else "
                "comes first."
            )
        lines.append(text % {"latest": _time_of(estimate.latest, now)})
    return [*lines, str(BASIS[Class(estimate.basis)])] if estimate.basis in BASIS else lines


def is_range(estimate: StartEstimate) -> bool:
    """Whether the estimate is a range; else there is none, or only the latest time is known, as it depends on maximum runtimes
    only."""
    return estimate.low is not None and not (estimate.latest is not None and estimate.latest - estimate.low <= ABOUT)


def _range(low: dt.datetime, median: dt.datetime, high: dt.datetime | None, now: dt.datetime) -> str:
    words = {"low": _time_of(low, now), "median": _time_of(median, now), "part": percent(CONFIDENCE)}
    if high is None:
        text = _(
            "Estimated start: not before %(low)s (in %(part)s of cases), as likely as not by %(median)s; perhaps later than in "
            "7 days."
        )
        return text % {**words, "part": percent(1 - LOW)}
    if high - low <= ABOUT:
        return _("Estimated start: about %(median)s (in %(part)s of cases), as things are now.") % words
    words["high"] = _time_of(high, now)
    text = _(
        "Estimated start: usually (in %(part)s of cases) between %(low)s and %(high)s, as likely as not by %(median)s."
    )
    return text % words


def in_a_list(estimate: StartEstimate) -> str:
    """ "14:10 to 15:30", or why there is no estimate."""
    if estimate.low is None or estimate.median is None:
        return str(IN_A_LIST[estimate.why])
    now = timezone.now()
    if not is_range(estimate) and estimate.latest is not None:
        return _("%(latest)s at the latest") % {"latest": _time_of(estimate.latest, now)}
    times = {"low": _time_of(estimate.low, now), "median": _time_of(estimate.median, now)}
    if estimate.high is None:
        return _("from %(low)s on") % times
    if estimate.high - estimate.low <= ABOUT:
        return _("about %(median)s") % times
    return _("%(low)s to %(high)s") % {**times, "high": _time_of(estimate.high, now)}


def _time_of(when: dt.datetime, now: dt.datetime) -> str:
    """The time `when`, or `now` if that has passed."""
    return clock_of(max(when, now))
