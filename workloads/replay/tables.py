"""The figures of replays as tables of text: all ways side by side, in total and then for each department."""

from collections.abc import Callable, Iterator, Mapping

from workloads.replay.figures import Figures


def part(value: float | None, decimals: int = 2) -> str:
    """A part in percent; "–" for a part of nothing."""
    return "–" if value is None else f"{value:.{decimals}%}"


def _hours(value: float) -> str:
    return f"{value:,.0f} h"


def _wait(waits: Figures) -> str:
    """p50, p95, p99 and the longest wait, in minutes."""
    if not waits["jobs"]:
        return "–"
    return " / ".join(f"{waits[name] / 60:,.0f}" for name in ("p50", "p95", "p99", "max"))


def _number(value: int) -> str:
    return f"{value:,}"


SUMMARY: list[tuple[str, str, Callable[..., str]]] = [
    ("cards used", "utilisation", part),
    ("used usefully", "useful_utilisation", part),
    ("guarantees served", "guarantee_served", part),
    ("used", "gpu_hours_used", _hours),
    ("borrowed", "gpu_hours_borrowed", _hours),
    ("lent", "gpu_hours_lent", _hours),
    ("lost", "gpu_hours_lost", _hours),
    ("lost of borrowed", "lost_of_borrowed", part),
    ("stops", "stops", _number),
    ("most stops of one job", "most_stops_of_a_job", _number),
    ("waits inside a guarantee that were late", "late_of_waits_inside", part),
    ("latest by (s)", "latest_by_s", _number),
    ("started after the promise", "started_after_promise", _number),
    ("wait inside, min: p50 / p95 / p99 / max", "wait_inside_s", _wait),
    ("wait above, min: p50 / p95 / p99 / max", "wait_above_s", _wait),
    ("jobs", "jobs", _number),
    ("never started", "never_started", _number),
    ("refused, or ended by recalls", "refused_or_ended", _number),
]
OF_DEPARTMENTS = [row for row in SUMMARY if row[1] in (
    "gpu_hours_used", "guarantee_served", "gpu_hours_borrowed", "gpu_hours_lent", "gpu_hours_lost", "stops",
    "late_of_waits_inside", "wait_inside_s", "wait_above_s",
)]  # fmt: skip


def lines_of(results: Mapping[str, Figures]) -> Iterator[str]:
    """The lines of the tables; `results` is name of the way → figures."""
    some = next(iter(results.values()))
    yield f"{some['all']['cards']:g} cards, {some['days']:g} days, {some['all']['jobs']:,} jobs"
    yield from _table({way: figures["all"] for way, figures in results.items()}, SUMMARY)
    for way, figures in results.items():
        if figures["all"]["jobs_by_stops"]:
            yield f"jobs by number of stops, {way}: " + ", ".join(
                f"{jobs} × {times}" for times, jobs in figures["all"]["jobs_by_stops"].items()
            )
    yield from _idle({way: figures["all"] for way, figures in results.items()}, "somebody")
    for department in some["departments"]:
        yield ""
        yield f"{department}, {some['departments'][department]['guaranteed_cards']:g} cards guaranteed"
        of_all = {way: figures["departments"].get(department) for way, figures in results.items()}
        each = {way: figures for way, figures in of_all.items() if figures}
        yield from _table(each, OF_DEPARTMENTS)
        yield from _idle(each, "it")


def _idle(columns: Mapping[str, Figures], who: str) -> Iterator[str]:
    """For each way, the GPU-hours idle while `who` waited, by the rule that kept them so."""
    for way, figures in columns.items():
        idle = figures["idle_while_waiting_gpu_hours"]
        if idle:
            yield f"idle while {who} waited, {way}: " + ", ".join(
                f"{rule} {hours:,.0f} h" for rule, hours in idle.items()
            )


def _table(columns: Mapping[str, Figures], rows: list[tuple[str, str, Callable[..., str]]]) -> Iterator[str]:
    cells = [["", *columns]]
    cells += [[title, *(shown_as(figures[name]) for figures in columns.values())] for title, name, shown_as in rows]
    widths = [max(len(row[n]) for row in cells) for n in range(len(cells[0]))]
    for title, *values in cells:
        aligned = (value.rjust(width) for value, width in zip(values, widths[1:], strict=True))
        yield f"{title.ljust(widths[0])}  {'  '.join(aligned)}".rstrip()
