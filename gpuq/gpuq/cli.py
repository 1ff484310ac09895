"""The commands of `gpuq`. Each is a function that prints to stdout and returns the exit code."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpuq.arguments import amount, body_of, counted_in, hours_of, in_gib, last_day, parser, share
from gpuq.follow import Signals, copy_log, follow, say
from gpuq.portal import Json, Portal, Refused, segment
from gpuq.settings import Failure, Misconfigured, Settings
from gpuq.words import as_json, columns, harmless, padded

MOST_SHOWN = 500
ESTIMATING = 5  # how often a verdict is requested again while the start is being estimated
INSTEAD = {"en": "Alternatives that start now:", "zh-hans": "可立即启动的替代方案："}


def show(*lines: str) -> None:
    sys.stdout.writelines(harmless(line) + "\n" for line in lines)


def table(rows: Sequence[Sequence[Any]]) -> None:
    texts = [[harmless(str(cell)) for cell in row] for row in rows]
    widths = [max(map(columns, column)) for column in zip(*texts, strict=False)]
    for row in texts:
        show("  ".join(padded(cell, width) for cell, width in zip(row, widths, strict=False)).rstrip())


def asked(portal: Portal, arguments: argparse.Namespace) -> tuple[str, Json]:
    """(department, body) of a submission."""
    if not arguments.department:
        raise Misconfigured("give --department, or set GPUQ_DEPARTMENT")
    counted = arguments.cards is not None and arguments.pool
    unit = portal.get(f"pools/{segment(arguments.pool)}/")["unit"] if counted else "card"
    try:
        return arguments.department, body_of(arguments, unit)
    except argparse.ArgumentTypeError as error:
        raise Misconfigured(str(error)) from error


def run(portal: Portal, arguments: argparse.Namespace) -> int:
    department, body = asked(portal, arguments)
    with Signals() as signals:
        workload = portal.submit(department, body)
        if not arguments.quiet:
            say(f"submitted {workload['id']}")
        return follow(portal, workload, signals=signals, quiet=arguments.quiet)


def submit(portal: Portal, arguments: argparse.Namespace) -> int:
    workload = portal.submit(*asked(portal, arguments))
    show(as_json(workload) if arguments.json else workload["id"])
    return 0


def verdict(portal: Portal, arguments: argparse.Namespace) -> int:
    wanted = asked(portal, arguments)
    found = portal.submit(*wanted, dry_run=True)
    for _ in range(ESTIMATING):
        if (found.get("estimate") or {}).get("why") != "being_made":
            break
        time.sleep(1.5)
        found = portal.submit(*wanted, dry_run=True)
    if arguments.json:
        show(as_json(found))
    else:
        instead = [f"  {each['text']}" for each in found["alternatives"]]
        heading = [INSTEAD[portal.language]] if instead else []
        contract = [found["contract"]] if found["contract"] else []
        show(
            found["title"],
            *found["lines"],
            *heading,
            *instead,
            *found["advice"],
            *contract,
            *found.get("idle_policy", []),
        )
    return 121 if found["headline"] == "cannot" else 0


def wait(portal: Portal, arguments: argparse.Namespace) -> int:
    return follow(portal, portal.workload(arguments.id), log=False, quiet=arguments.quiet)


def logs(portal: Portal, arguments: argparse.Namespace) -> int:
    copy_log(
        portal, arguments.id, sys.stdout.buffer, attempt=arguments.attempt, rank=arguments.rank or 0,
        tail=arguments.tail, follow=arguments.follow,
    )  # fmt: skip
    return 0


def show_one(portal: Portal, arguments: argparse.Namespace) -> int:
    workload = portal.workload(arguments.id)
    if arguments.json:
        show(as_json(workload))
        return 0
    show(
        f"{workload['name']}  {workload['state']}  {amount(workload['units'], workload['unit'])} of {workload['pool']}"
    )
    verdict = workload["verdict"]
    show(verdict["title"], *verdict["lines"], *verdict["advice"])
    for attempt in workload["attempts"]:
        show(f"attempt {attempt['number']}: {attempt['outcome'] or 'now'} {attempt['started_at'] or ''}".rstrip())
    return 0


def stop(portal: Portal, arguments: argparse.Namespace) -> int:
    for identity in arguments.ids:
        portal.stop(identity)
    return 0


def rerun(portal: Portal, arguments: argparse.Namespace) -> int:
    workload = portal.act(arguments.id, "rerun")
    show(as_json(workload) if arguments.json else workload["id"])
    return 0


def extend(portal: Portal, arguments: argparse.Namespace) -> int:
    workload = portal.act(arguments.id, "extend", {"seconds": arguments.by})
    show(as_json(workload) if arguments.json else f"{workload['max_runtime']} s")
    return 0


def keep(portal: Portal, arguments: argparse.Namespace) -> int:
    workload = portal.act(arguments.id, "keep")
    show(as_json(workload) if arguments.json else f"kept until {workload['idle']['stops_at']}")
    return 0


def list_all(portal: Portal, arguments: argparse.Namespace) -> int:
    rows = list(
        portal.every(
            "workloads/", arguments.most, department=arguments.department, state=arguments.state,
            mine=1 if arguments.mine else None,
        )
    )  # fmt: skip
    if arguments.json:
        show(as_json(rows))
    else:
        head = ("ID", "NAME", "STATE", "UNITS", "POOL", "BY", "SINCE", "START")
        table([head, *((r["id"], r["name"], r["state"], amount(r["units"], r["unit"]), r["pool"], r["author"] or "",
                        r["state_since"][:19], start_of(r)) for r in rows)])  # fmt: skip
    return 0


def start_of(workload: Json) -> str:
    """When a waiting workload starts, in local time: the promised time, or an estimated range and how often such ranges hold."""
    if promised := workload.get("promised_at"):
        return f"by {local(promised)}"
    estimate = workload.get("estimate")
    if not estimate:
        return ""
    if not estimate["low"]:
        return f"no estimate: {estimate['why'].replace('_', ' ')}"
    if estimate.get("confidence", 1) is None:  # an older portal sends none
        return f"{local(estimate['latest'])} at the latest"
    low, high = local(estimate["low"]), local(estimate["high"]) if estimate["high"] else "?"
    said = f"about {low}" if low == high else f"{low} to {high}"
    return f"{said} ({round(100 * estimate['confidence'])} %)" if "confidence" in estimate else said


def local(moment: str) -> str:
    at = dt.datetime.fromisoformat(moment).astimezone()
    return f"{at:%H:%M}" if at.date() == dt.datetime.now().astimezone().date() else f"{at:%m-%d %H:%M}"


def pools(portal: Portal, arguments: argparse.Namespace) -> int:
    rows = list(portal.every("pools/", MOST_SHOWN))
    if arguments.json:
        show(as_json(rows))
    else:
        head = ("POOL", "NAME", "UNIT", "PRESENT", "FREE", "LARGEST", "QUEUE")
        table([head, *((r["id"], r["name"], counted_in(r["unit"]), *(in_gib(r[each], r["unit"]) for each in
                       ("present", "free", "largest")), r["queue_len"]) for r in rows)])  # fmt: skip
    return 0


def ask_for_quota(portal: Portal, arguments: argparse.Namespace) -> int:
    if not arguments.department:
        raise Misconfigured("give --department, or set GPUQ_DEPARTMENT")
    body = {name: getattr(arguments, name) for name in ("pool", "wanted", "why")}
    body |= {"units": None} if arguments.amount == "none" else {"amount": arguments.amount}
    body |= {"ends_at": arguments.ends_at} if arguments.ends_at else {}
    made = portal.post(f"departments/{segment(arguments.department)}/quota_requests/", body)
    show(as_json(made) if arguments.json else made["id"])
    return 0


def quota_requests(portal: Portal, arguments: argparse.Namespace) -> int:
    acts = {"approve": decide, "deny": decide, "comment": comment, "withdraw": withdraw, "renew": renew}
    chosen = [(name, identity) for name in acts if (identity := getattr(arguments, name))]
    if chosen:
        [(name, identity)] = chosen
        made = confirmed(lambda: acts[name](portal, arguments, f"quota_requests/{segment(identity)}/"))
        if made is not None:
            show(as_json(made) if arguments.json else made["id"] if name == "renew" else made["state"])
        return 2 if made is None else 0
    rows = list(portal.every("quota_requests/", arguments.most, to_decide=1 if arguments.to_decide else None))
    if arguments.json:
        show(as_json(rows))
    else:
        head = ("ID", "DEPARTMENT", "POOL", "WANTED", "TOTAL", "UNIT", "UNTIL", "STATE")
        table([head, *((r["id"], r["department"], r["pool"], r["wanted"], "none" if r["units"] is None else
                        in_gib(r["units"], r["unit"], 3), counted_in(r["unit"]), last_day(r["ends_at"]), r["state"])
                       for r in rows)])  # fmt: skip
    return 0


def decide(portal: Portal, arguments: argparse.Namespace, path: str) -> Json:
    body: Json = {
        "approve": bool(arguments.approve),
        "version": portal.get(path)["version"],
        "note": arguments.note or "",
    }
    if arguments.approve:
        body |= {"ends_at": arguments.until} if arguments.until else {}
        body |= {"units": None} if arguments.total == "none" else {"amount": arguments.total} if arguments.total else {}
    return portal.post(f"{path}decision/", body, confirm=arguments.confirm)


def comment(portal: Portal, arguments: argparse.Namespace, path: str) -> Json:
    return portal.post(f"{path}comments/", {"text": arguments.note or ""})


def withdraw(portal: Portal, arguments: argparse.Namespace, path: str) -> Json:
    return portal.json("DELETE", path)


def renew(portal: Portal, arguments: argparse.Namespace, path: str) -> Json:
    return portal.post(f"{path}renewal/", {})


def confirmed(act: Callable[[], Json]) -> Json | None:
    """The result of `act`; None if it needs a confirmation, after printing its effects and the mark for `--confirm`."""
    try:
        return act()
    except Refused as refused:
        if refused.problem.get("code") not in ("needs_confirmation", "plan_changed"):
            raise
        if refused.problem["code"] == "plan_changed":
            say(refused.problem["detail"])
        for each in refused.problem["breaks"]:
            say(each["detail"])
        say(f"nothing was changed; to do it all the same: --confirm {refused.problem['confirm']}")
        return None


def usage(portal: Portal, arguments: argparse.Namespace) -> int:
    names = ("range", "until", "group", "department", "person", "pool", "kind")
    asked = {name: getattr(arguments, name) for name in names} | {"from": arguments.since, "limit": arguments.most}
    report = portal.get("usage/", **asked)
    if arguments.json:
        show(as_json(report))
        return 0
    groups = report["group"]
    priced = any(row["cost"] is not None for row in report["results"])
    head = [*(name.upper() for name in groups), "HOURS OF", "OWN", "BORROWED", "LENT", "IDLE", "STARTS", "WAIT P95"]
    lines = [[*(row[name] or "-" for name in groups), *used(row)] for row in report["results"]]
    lines += [["TOTAL", *[""] * (len(groups) - 1), *used(row)] for row in report["totals"]]
    if priced:
        head += [f"COST {report['currency']}"]
        costs = [row["cost"] for row in (*report["results"], *report["totals"])]
        lines = [[*line, "-" if cost is None else cost] for line, cost in zip(lines, costs, strict=True)]
    table([head, *lines])
    if report["left_out"]:
        say(f"{report['left_out']} more rows: give --most")
    return 0


def used(row: Json) -> list[Any]:
    """The cells of a row with hours and waits; "-" for values that do not apply."""
    figures = ["-" if row[name] is None else f"{row[name]:,.2f}" for name in ("own", "borrowed", "lent", "idle")]
    wait = "-" if row["wait_p95"] is None else f"{row['wait_p95']:,.0f} s"
    return [hours_of(row["unit"]), *figures, row["starts"], wait]


def budget(portal: Portal, arguments: argparse.Namespace) -> int:
    if arguments.department and not arguments.mine:
        rows = list(portal.every(f"departments/{segment(arguments.department)}/budgets/", arguments.most))
    else:
        rows = list(portal.every("budgets/", arguments.most, mine=1 if arguments.mine else None))
    if arguments.json:
        show(as_json(rows))
        return 0
    head = (
        "ID",
        "DEPARTMENT",
        "PERSON",
        "POOL",
        "USED",
        "LIMIT",
        "SHARE",
        "EXPECTED",
        "RESETS",
        "STAGE",
        "WHEN USED UP",
    )
    table([head, *((r["id"], r["department"], r["person"] or "-", r["pool"] or "all", f"{r['used']:,.1f}", f"{r['hours']:,}",
                    share(r["used"], r["hours"]), "-" if r["expected"] is None else f"{r['expected']:,.0f}",
                    (r["resets_at"] or "-")[:16], r["stage"], r["action"]) for r in rows)])  # fmt: skip
    return 0


def quarantines(portal: Portal, arguments: argparse.Namespace) -> int:
    if arguments.end:
        portal.call("DELETE", f"quarantines/{segment(arguments.end)}/")
        return 0
    if arguments.node:
        return begin_quarantine(portal, arguments)
    rows = list(portal.every("quarantines/", arguments.most, in_force=None if arguments.all else 1))
    if arguments.json:
        show(as_json(rows))
    else:
        head = ("ID", "CLUSTER", "NODE", "CARD", "SINCE", "BY", "ENDED", "REASON")
        table([head, *((r["id"], r["cluster"], r["node"], "all" if r["card"] is None else r["card"], r["began_at"][:16],
                        r["by"] or "rule", (r["ended_at"] or "-")[:16], r["reason"]) for r in rows)])  # fmt: skip
    return 0


def begin_quarantine(portal: Portal, arguments: argparse.Namespace) -> int:
    """Begins a quarantine. If workloads would have to leave, prints them and changes nothing without `--confirm`."""
    if not arguments.why and not arguments.dry_run:
        raise Misconfigured("give --why: it is shown to everybody whose workload has to leave")
    body = {
        "node": node_id(portal, arguments),
        "card": arguments.card,
        "why": arguments.why or "-",
        "until": arguments.until,
    }
    params = {"dry_run": 1 if arguments.dry_run else None, "confirm": arguments.confirm}
    made = confirmed(lambda: portal.post("quarantines/", body, **params))
    if made is None:
        return 2
    if arguments.json:
        show(as_json(made))
    elif arguments.dry_run:
        show(made["sentence"], *made["lines"], *(each["detail"] for each in made["breaks"]))
    else:
        show(made["id"])
    return 0


def node_id(portal: Portal, arguments: argparse.Namespace) -> int:
    """The id of the node. Raises Misconfigured if no node, or several, have this name."""
    rows = [row for row in portal.every("nodes/", sys.maxsize)
            if row["name"] == arguments.node and arguments.cluster in (None, row["cluster"])]  # fmt: skip
    if len(rows) != 1:
        clusters = ", ".join(row["cluster"] for row in rows)
        raise Misconfigured(
            f"there are nodes {arguments.node} in {clusters}: give --cluster"
            if rows
            else f"there is no node {arguments.node}"
        )
    return int(rows[0]["id"])


def apply(portal: Portal, arguments: argparse.Namespace) -> int:
    """Applies a file; returns 1 if a dry run found differences. If it takes something from somebody, it needs `--yes` or the mark
    of the plan."""
    text = sys.stdin.buffer.read() if arguments.file == "-" else Path(arguments.file).read_bytes()
    given = {"source": arguments.source or arguments.file}
    try:
        if arguments.yes and not arguments.confirm and not arguments.dry_run:
            arguments.confirm = portal.send_file("configuration/", text, dry_run=1, **given)["confirm"]
        more = {"dry_run": 1} if arguments.dry_run else {"confirm": arguments.confirm}
        plan = confirmed(lambda: portal.send_file("configuration/", text, **more, **given))
    except Refused as refused:
        if refused.problem.get("code") != "configuration_refused":
            raise
        for each in refused.problem["errors"]:
            say(f"{arguments.file}:{each.get('line', 1)}: {each['attr']}: {each['detail']}")
        return 2
    if plan is None:
        return 2
    if arguments.json:
        show(as_json(plan))
    else:
        show_plan(plan)
    return 1 if arguments.dry_run and plan["changes"] else 0


def show_plan(plan: Json) -> None:
    """Prints the changes: + a new value, - a removed one, ~ a changed one."""
    for path, before, after in ((each["path"], each["before"], each["after"]) for each in plan["changes"]):
        if before is None:
            show(f"+ {path}: {after}")
        else:
            show(f"- {path}: {before}" if after is None else f"~ {path}: {before} → {after}")
    if not plan["changes"]:
        say("nothing to change")
        return
    broken = [each["detail"] for each in plan["breaks"]]
    show(plan["sentence"], *plan["lines"], *(each for each in broken if each not in plan["lines"]))
    say("applied" if plan["applied"] else f"nothing was changed; to do exactly this: --confirm {plan['confirm']}")


def export(portal: Portal, arguments: argparse.Namespace) -> int:
    text = portal.call("GET", "configuration/").text
    if arguments.json:
        show(as_json({"configuration": text}))
    else:
        sys.stdout.write(text)
    return 0


def mcp(portal: Portal, arguments: argparse.Namespace) -> int:
    try:
        from gpuq.agents import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"mcp", "mcp_types", "pydantic"}:
            raise
        raise Misconfigured("gpuq mcp needs its extra: pip install 'gpuq[mcp]'") from error
    serve(portal, Settings.from_environment().token)
    return 0


def files(portal: Portal, arguments: argparse.Namespace) -> int:
    found = list(portal.every(files_path(arguments.id, arguments.path), sys.maxsize))
    if arguments.json:
        show(as_json(found))
    else:
        table([("SIZE", "CHANGED", "NAME"), *((size_of(f), f["changed"][:19], f["path"]) for f in found)])
    return 0


def size_of(file: Json) -> str:
    """The size in bytes; "" for a directory, the kind for anything that is neither a file nor a link."""
    kind = file.get("kind", "file")
    return "" if file["size"] is None else str(file["size"]) if kind in ("file", "link") else f"({kind})"


def files_path(identity: str, path: str) -> str:
    return f"workloads/{segment(identity)}/files/{quote(path.strip('/'), errors='surrogateescape')}"


def upload(portal: Portal, arguments: argparse.Namespace) -> int:
    source = Path(arguments.source)
    if not source.is_file():
        raise Misconfigured(f"{source} is not a file")
    path = files_path(arguments.id, arguments.path or source.name)
    portal.call("PUT", path, content=source.read_bytes(),
                headers={"Content-Type": "application/octet-stream"})  # fmt: skip
    return 0


def download(portal: Portal, arguments: argparse.Namespace) -> int:
    """Downloads a file, or a folder as a tar file, completely or not at all."""
    name = Path(arguments.path.strip("/")).name
    with portal.file(files_path(arguments.id, arguments.path)) as (is_folder, pieces):
        target = Path(arguments.target or f"{name or arguments.id}{'.tar' if is_folder else ''}")
        if target.is_dir():
            target /= f"{name or arguments.id}{'.tar' if is_folder else ''}"
        part = target.with_name(f".{target.name[:200]}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                file.writelines(pieces)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    return 0


COMMANDS: dict[str, Callable[[Portal, argparse.Namespace], int]] = {
    "apply": apply, "budget": budget, "download": download, "export": export, "extend": extend, "files": files, "keep": keep,
    "list": list_all, "logs": logs, "mcp": mcp, "pools": pools, "quarantines": quarantines, "request": ask_for_quota,
    "requests": quota_requests, "rerun": rerun, "run": run, "show": show_one, "stop": stop, "submit": submit,
    "upload": upload, "usage": usage, "verdict": verdict, "wait": wait,
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):  # letters that the terminal cannot show are escaped
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    arguments = parser().parse_args(argv)
    try:
        return COMMANDS[arguments.command](Portal.from_environment(), arguments)
    except Failure as failure:
        say(str(failure))
        return failure.code
    except UnicodeEncodeError:  # its text is not printed, as it may be part of a secret
        say("an argument or a variable has bytes that are not UTF-8, which cannot be sent; write it in UTF-8")
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing more can be written there
        return 1
    except OSError as error:  # about a local file
        say(f"{error.filename or ''}: {error.strerror}".strip(": "))
        return 2
    except KeyboardInterrupt:
        return 130
