"""The command line: its arguments, and how amounts and times are written."""

from __future__ import annotations

import argparse
import datetime as dt
import math
import os
import re
from collections.abc import Callable
from typing import Any

SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
MEBIBYTES = {"MiB": 1, "M": 1, "GiB": 1024, "G": 1024, "TiB": 2**20}
BARE_GIB = 4096  # a number this large without a unit is probably meant in MiB


def duration(text: str) -> int:
    """ "90s", "45m", "8h", "1d" → seconds; a number without a unit is in seconds."""
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text)
    if not found or found[2] not in {"", *SECONDS}:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 90s, 45m, 8h or 1d")
    return int(found[1]) * SECONDS.get(found[2], 1)


def memory(text: str) -> int:
    """ "512MiB", "8GiB" → MiB; a number without a unit is in GiB, as on the page."""
    found = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", text)
    if not found or found[2] not in {"", *MEBIBYTES}:
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount of memory such as 512MiB or 8GiB")
    if not found[2] and int(found[1]) >= BARE_GIB:
        raise argparse.ArgumentTypeError(
            f"{text} GiB is more than a machine has: write {text}MiB, or the number of GiB"
        )
    return int(found[1]) * MEBIBYTES.get(found[2], 1024)


def cores(text: str) -> float:
    """ "0.5", "4" → number of cores. NaN and infinity are refused, as JSON has neither."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of cores such as 0.5 or 4")
    return number


def in_gib(units: int, unit: str, digits: int = 1) -> int | float:
    """The number as it is typed: in GiB if the pool counts MiB, else unchanged. With 3 `digits`, one MiB and two MiB differ."""
    return units if unit != "MiB" else units // 1024 if units % 1024 == 0 else round(units / 1024, digits)


def counted_in(unit: str) -> str:
    return "GiB" if unit == "MiB" else unit


def hours_of(unit: str) -> str:
    """Of what a report's hours are: GiB of memory; whole cards for shares of them."""
    return {"MiB": "GiB", "percent": "card"}.get(unit, unit)


def amount(units: int, unit: str) -> str:
    """An amount as the pages write it: 1 card, 4 cards, 2.6 GiB, 512 MiB, 25 %, 1,600 %."""
    if unit == "MiB":
        return f"{units} MiB" if 0 < units < 1024 else f"{in_gib(units, unit):,} GiB"
    if unit == "percent":
        return f"{units:,} %"
    return f"{units:,} {unit}" if units == 1 else f"{units:,} {unit}s"


def share(part: float, whole: float) -> str:
    """A part of a whole as the pages write it: 25 %; below one percent with a decimal; from 1,000 % on as a factor: 285×."""
    ratio = part / whole
    if ratio >= 10:
        return f"{ratio:,.0f}×"
    return f"{ratio:.1%}".replace("%", " %") if 0 < ratio < 0.01 else f"{ratio:.0%}".replace("%", " %")


def variable(text: str) -> tuple[str, str]:
    """ "NAME=value", or "NAME" with its value from the environment → (name, value)."""
    name, equals, value = text.partition("=")
    if not equals and name not in os.environ:
        raise argparse.ArgumentTypeError(f"{name} has no value here; write {name}=value")
    return name, value if equals else os.environ[name]


def day(text: str) -> str:
    """ "2027-01-31" → the end of that day in local time, in ISO 8601. Raises ArgumentTypeError."""
    try:
        last = dt.date.fromisoformat(text)
        return dt.datetime.combine(last + dt.timedelta(days=1), dt.time()).astimezone().isoformat()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text} is not a possible date; write 2027-01-31") from None


def last_day(moment: str | None) -> str:
    """The last day before a time of the portal, in local time; "-" for None."""
    return (
        "-"
        if moment is None
        else str((dt.datetime.fromisoformat(moment) - dt.timedelta(seconds=1)).astimezone().date())
    )


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="gpuq",
        description="Run work on the GPU quota portal.",
        epilog="environment: GPUQ_URL where the portal is, GPUQ_TOKEN a token (Profile, API tokens), GPUQ_DEPARTMENT for "
        "--department, GPUQ_PATIENCE how long to keep trying while the portal does not answer (300 s)",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, *, identity: bool = False) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.add_argument("--json", action="store_true", help="print what the portal answered")
        if identity:
            made.add_argument("id", help="the workload's id")
        return made

    run = command("run", "Submit a command, stream its log, end with its exit code.")
    run.add_argument("--quiet", "-q", action="store_true", help="say nothing on stderr")
    for made in (run, command("submit", "Submit a command and print its id."),
                 command("verdict", "Say what would happen if this were submitted.")):  # fmt: skip
        request(made)
    wait = command("wait", "Wait for the end; end with the workload's exit code.", identity=True)
    wait.add_argument("--quiet", "-q", action="store_true", help="say nothing on stderr")
    logs = command("logs", "Print the log.", identity=True)
    logs.add_argument("--follow", "-f", action="store_true", help="stay until the attempt ends")
    logs.add_argument("--tail", type=int, metavar="LINES")
    logs.add_argument("--attempt", type=int)
    logs.add_argument("--rank", type=int)
    command("show", "Say how a workload stands.", identity=True)
    command("stop", "Stop workloads.").add_argument("ids", nargs="+", metavar="id")
    command("rerun", "Run the same again; print the new id.", identity=True)
    command("extend", "Let each attempt run longer.", identity=True).add_argument("by", type=duration)
    command("keep", "Keep an idle workload from being stopped, once in an idle spell.", identity=True)
    listed = command("list", "List workloads, newest first.")
    listed.add_argument("--department", default=os.environ.get("GPUQ_DEPARTMENT"))
    listed.add_argument("--mine", action="store_true")
    listed.add_argument("--state", help="queued,running,… or live or final")
    listed.add_argument("--most", type=int, default=50, metavar="N")
    commands.add_parser("mcp", help="Serve the portal to an agent over stdio (needs gpuq[mcp]).")
    command("pools", "List pools and what is free in them.")
    quota_commands(command)
    usage_command(command)
    budget_command(command)
    quarantines_command(command)
    configuration_commands(command)
    command("files", "List the working directory.", identity=True).add_argument("path", nargs="?", default="")
    upload = command("upload", "Copy a file into the working directory.", identity=True)
    upload.add_argument("source")
    upload.add_argument("path", nargs="?")
    download = command(
        "download", "Copy a file out of the working directory, or a folder as a tar file.", identity=True
    )
    download.add_argument("path")
    download.add_argument("target", nargs="?")
    return top


def quota_commands(command: Callable[[str, str], argparse.ArgumentParser]) -> None:
    ask = command("request", "Request more quota for a department; print the request's id.")
    ask.add_argument("--department", default=os.environ.get("GPUQ_DEPARTMENT"))
    ask.add_argument("--pool", required=True)
    ask.add_argument("--total", required=True, metavar="12", dest="amount",
                     help="what the department would have then, such as 12 or 60GiB; none: no borrow limit")  # fmt: skip
    ask.add_argument("--borrow-limit", dest="wanted", action="store_const", const="borrow_limit", default="guaranteed",
                     help="raise the borrow limit instead of the guaranteed quota")  # fmt: skip
    ask.add_argument(
        "--until", type=day, metavar="YYYY-MM-DD", dest="ends_at", help="the last day; without it: for good"
    )
    ask.add_argument("--why", required=True, help="what it is for")
    listed = command(
        "requests", "List requests for quota, newest first; approve, deny, comment on, withdraw or renew one."
    )
    listed.add_argument("--most", type=int, default=50, metavar="N")
    listed.add_argument("--to-decide", action="store_true", help="only the open ones that you may decide")
    act = listed.add_mutually_exclusive_group()
    act.add_argument("--approve", metavar="ID", help="approve all of it, or what --total and --until say")
    act.add_argument("--deny", metavar="ID", help="with the reason as --note")
    act.add_argument("--comment", metavar="ID", help="with the text as --note")
    act.add_argument("--withdraw", metavar="ID")
    act.add_argument("--renew", metavar="ID", help="request a grant for as long again; print the new request's id")
    listed.add_argument("--total", metavar="12", help="approve this total, such as 12 or 60GiB")
    listed.add_argument("--until", type=day, metavar="YYYY-MM-DD", help="approve until this last day")
    listed.add_argument("--note", help="what the requester reads")
    listed.add_argument(
        "--confirm", metavar="MARK", help="approve although it takes from somebody what was named before"
    )


def usage_command(command: Callable[[str, str], argparse.ArgumentParser]) -> None:
    usage = command("usage", "Say who used how much over a time: own work, or all of what you own.")
    usage.add_argument("--range", choices=["this_month", "last_month", "7d", "30d"], help="without it: this month")
    usage.add_argument("--from", dest="since", metavar="YYYY-MM-DD", help="the first day, instead of --range")
    usage.add_argument("--until", metavar="YYYY-MM-DD", help="the last day")
    usage.add_argument("--group", default="pool", metavar="pool,person",
                       help="one or several of department, person, pool, kind")  # fmt: skip
    for name in ("department", "person", "pool", "kind"):
        usage.add_argument(f"--{name}", help="only of it")
    usage.add_argument("--most", type=int, default=500, metavar="N")


def budget_command(command: Callable[[str, str], argparse.ArgumentParser]) -> None:
    budget = command("budget", "Say what is used of budgets: your own, those of your departments, and what you own.")
    budget.add_argument("--department", default=os.environ.get("GPUQ_DEPARTMENT"), help="only of it")
    budget.add_argument("--mine", action="store_true", help="only your own")
    budget.add_argument("--most", type=int, default=500, metavar="N")


def quarantines_command(command: Callable[[str, str], argparse.ArgumentParser]) -> None:
    made = command(
        "quarantines", "List faulty nodes and cards that are out of use; begin or end a quarantine. For operators."
    )
    made.add_argument("--all", action="store_true", help="also those that have ended")
    made.add_argument("--most", type=int, default=50, metavar="N")
    change = made.add_mutually_exclusive_group()
    change.add_argument("--node", metavar="NAME", help="quarantine this node; print the quarantine's id")
    change.add_argument("--end", metavar="ID", help="end this quarantine, a rule's too")
    made.add_argument("--cluster", help="where several clusters have a node of that name")
    made.add_argument("--card", type=int, metavar="N", help="only this card of the node")
    made.add_argument("--why", help="shown to everybody whose workload has to leave")
    made.add_argument("--until", type=day, metavar="YYYY-MM-DD", help="the last day; without it: until it is ended")
    made.add_argument("--confirm", metavar="MARK", help="do it although it stops what was named before")
    made.add_argument("--dry-run", action="store_true", help="say who would have to leave; change nothing")


def configuration_commands(command: Callable[[str, str], argparse.ArgumentParser]) -> None:
    made = command(
        "apply",
        "Make departments, quotas, settings of pools, images, presets and group rules what a file says, all of it or nothing. "
        "For operators. Ends with 0: done, or nothing to do; 1: a dry run found differences; 2: refused.",
    )
    made.add_argument("file", help="YAML; - reads stdin")
    made.add_argument(
        "--dry-run", action="store_true", help="say what would change and whom it affects; change nothing"
    )
    made.add_argument("--yes", action="store_true", help="although it takes something from somebody")
    made.add_argument(
        "--confirm", metavar="MARK", help="exactly the plan to which a dry run gave this mark, or nothing"
    )
    made.add_argument(
        "--source",
        metavar="NAME",
        help="names the file in the audit log, such as REPOSITORY@COMMIT; without it: the file",
    )
    command("export", "Print all that such a file may say, as it is now. For operators.")


SETUP = ("template", "parameter_servers", "max_restarts", "shm_mib", "port", "ready_path")


def request(made: argparse.ArgumentParser) -> None:
    made.add_argument("--department", default=os.environ.get("GPUQ_DEPARTMENT"))
    made.add_argument("--preset")
    made.add_argument("--pool")
    amount = made.add_mutually_exclusive_group()
    amount.add_argument("--cards", type=int, help="whole cards")
    amount.add_argument(
        "--units",
        metavar="6GiB",
        dest="amount",
        help="as on the page: 6GiB, half, 25%%; a bare number counts GiB where the pool counts memory",
    )
    amount.add_argument("--profile", help="of a MIG pool, such as 3g.40gb")
    made.add_argument("--kind", choices=["job", "notebook", "distributed", "service"])
    made.add_argument("--pods", type=int, help="ranks of a distributed job; the amount is each one's")
    made.add_argument("--template", choices=["torch", "tensorflow", "tensorflow-ps", "mpi", "generic"])
    made.add_argument("--parameter-servers", type=int)
    made.add_argument("--max-restarts", type=int, help="after failures of its own")
    made.add_argument("--shm", type=memory, metavar="4GiB", dest="shm_mib", help="size of /dev/shm")
    made.add_argument("--port", type=int, help="where a service listens")
    made.add_argument("--ready-path", help="of a service, such as /healthz")
    made.add_argument("--image")
    made.add_argument("--name")
    made.add_argument("--cpu", type=cores, metavar="CORES")
    made.add_argument("--memory", type=memory, metavar="8GiB", dest="memory_mib")
    made.add_argument("--env", "-e", type=variable, action="append", default=[], metavar="NAME[=VALUE]")
    made.add_argument("--secret", type=variable, action="append", default=[], metavar="NAME[=VALUE]")
    made.add_argument("--priority", type=int)
    made.add_argument("--max-runtime", type=duration, metavar="8h")
    made.add_argument("--max-wait", type=duration, metavar="30m")
    made.add_argument("--own-only", action="store_true", default=None, help="never borrow, never be recalled by others")
    made.add_argument("--must-stay", dest="preemptible", action="store_false", default=None,
                      help="inside the guarantee only, and stopped by nobody's work")  # fmt: skip
    made.add_argument("words", nargs="*", metavar="-- command")


def body_of(arguments: argparse.Namespace, unit: str) -> dict[str, Any]:
    """The request's JSON. Values that were not given are left to the preset or the portal. `unit` is that of the pool."""
    names = ("preset", "kind", "pods", "pool", "amount", "profile", "image", "name", "cpu", "memory_mib", "priority",
             "max_runtime", "max_wait", "own_only", "preemptible")  # fmt: skip
    body = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    setup = {name: getattr(arguments, name) for name in SETUP if getattr(arguments, name) is not None}
    body |= {"setup": setup} if setup else {}
    body |= {} if arguments.cards is None else {"units_per_pod": arguments.cards}
    if arguments.cards is not None and unit != "card":
        raise argparse.ArgumentTypeError(f"{arguments.pool} counts {unit}, not cards: use --units")
    if arguments.words:
        body["command"] = arguments.words
        script = next((word for word in arguments.words if word.endswith((".py", ".sh"))), arguments.words[0])
        body.setdefault("name", os.path.basename(script)[:100] or "job")
    env: dict[str, Any] = dict(arguments.env) | {name: {"secret": value} for name, value in arguments.secret}
    return body | ({"env": env} if env else {})
