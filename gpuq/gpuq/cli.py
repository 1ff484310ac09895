"""`gpuq`: each command is one function that prints to stdout and returns the exit code."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from gpuq.arguments import body_of, parser
from gpuq.follow import Signals, follow, say
from gpuq.portal import Failure, Json, Lost, Misconfigured, Portal

MOST_SHOWN = 500
INSTEAD = {"en": "Alternatives that start now:", "zh-hans": "可立即启动的替代方案："}


def show(text: str) -> None:
    sys.stdout.write(text + "\n")


def table(rows: Sequence[Sequence[Any]]) -> None:
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=False)]
    for row in texts:
        show("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip())


def asked(portal: Portal, arguments: argparse.Namespace) -> tuple[str, Json]:
    """(department, body) of a submission."""
    if not arguments.department:
        raise Misconfigured("give --department, or set GPUQ_DEPARTMENT")
    counted = arguments.cards is not None and arguments.pool
    unit = portal.get(f"pools/{quote(arguments.pool)}/")["unit"] if counted else "card"
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
    show(json.dumps(workload, ensure_ascii=False) if arguments.json else workload["id"])
    return 0


def verdict(portal: Portal, arguments: argparse.Namespace) -> int:
    found = portal.submit(*asked(portal, arguments), dry_run=True)
    if arguments.json:
        show(json.dumps(found, ensure_ascii=False))
    else:
        instead = [f"  {each['text']}" for each in found["alternatives"]]
        heading = [INSTEAD[portal.language]] if instead else []
        show(
            "\n".join(
                [found["title"], *found["lines"], *heading, *instead, *found["advice"], found["contract"]]
            ).rstrip()
        )
    return 121 if found["headline"] == "cannot" else 0


def wait(portal: Portal, arguments: argparse.Namespace) -> int:
    return follow(portal, portal.workload(arguments.id), log=False, quiet=arguments.quiet)


def logs(portal: Portal, arguments: argparse.Namespace) -> int:
    given = {name: getattr(arguments, name) for name in ("tail", "attempt", "rank")}
    try:
        for piece in portal.log(arguments.id, follow=arguments.follow, **given):
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
    except httpx.TransportError as error:
        raise Lost(f"the stream broke off: {error}") from error
    return 0


def show_one(portal: Portal, arguments: argparse.Namespace) -> int:
    workload = portal.workload(arguments.id)
    if arguments.json:
        show(json.dumps(workload, ensure_ascii=False))
        return 0
    show(f"{workload['name']}  {workload['state']}  {workload['units']} {workload['unit']} of {workload['pool']}")
    told = workload["verdict"]
    show("\n".join([told["title"], *told["lines"], *told["advice"]]))
    for attempt in workload["attempts"]:
        show(f"attempt {attempt['number']}: {attempt['outcome'] or 'now'} {attempt['started_at'] or ''}".rstrip())
    return 0


def stop(portal: Portal, arguments: argparse.Namespace) -> int:
    for identity in arguments.ids:
        portal.stop(identity)
    return 0


def rerun(portal: Portal, arguments: argparse.Namespace) -> int:
    answer = portal.call("POST", f"workloads/{arguments.id}/rerun/", headers={"Idempotency-Key": os.urandom(16).hex()})
    show(answer.text if arguments.json else answer.json()["id"])
    return 0


def extend(portal: Portal, arguments: argparse.Namespace) -> int:
    answer = portal.call(
        "POST", f"workloads/{arguments.id}/extend/", json={"seconds": arguments.by},
        headers={"Idempotency-Key": os.urandom(16).hex()},
    )  # fmt: skip
    show(answer.text if arguments.json else f"{answer.json()['max_runtime']} s")
    return 0


def list_all(portal: Portal, arguments: argparse.Namespace) -> int:
    rows = list(
        portal.every(
            "workloads/", arguments.most, department=arguments.department, state=arguments.state,
            mine=1 if arguments.mine else None,
        )
    )  # fmt: skip
    if arguments.json:
        show(json.dumps(rows, ensure_ascii=False))
    else:
        head = ("ID", "NAME", "STATE", "UNITS", "POOL", "BY", "SINCE")
        table([head, *((r["id"], r["name"], r["state"], f"{r['units']} {r['unit']}", r["pool"], r["author"] or "",
                        r["state_since"][:19]) for r in rows)])  # fmt: skip
    return 0


def pools(portal: Portal, arguments: argparse.Namespace) -> int:
    rows = list(portal.every("pools/", MOST_SHOWN))
    if arguments.json:
        show(json.dumps(rows, ensure_ascii=False))
    else:
        head = ("POOL", "NAME", "UNIT", "PRESENT", "FREE", "LARGEST", "QUEUE")
        table([head, *((r["id"], r["name"], r["unit"], r["present"], r["free"], r["largest"], r["queue_len"])
                       for r in rows)])  # fmt: skip
    return 0


def files(portal: Portal, arguments: argparse.Namespace) -> int:
    found = portal.get(f"workloads/{arguments.id}/files/{quote(arguments.path.strip('/'))}")["results"]
    if arguments.json:
        show(json.dumps(found, ensure_ascii=False))
    else:
        table([("SIZE", "CHANGED", "NAME"), *(("" if f["size"] is None else f["size"], f["changed"][:19], f["path"])
                                             for f in found)])  # fmt: skip
    return 0


def upload(portal: Portal, arguments: argparse.Namespace) -> int:
    source = Path(arguments.source)
    if not source.is_file():
        raise Misconfigured(f"{source} is not a file")
    path = quote(arguments.path or source.name)
    portal.call("PUT", f"workloads/{arguments.id}/files/{path}", content=source.read_bytes(),
                headers={"Content-Type": "application/octet-stream"})  # fmt: skip
    return 0


def download(portal: Portal, arguments: argparse.Namespace) -> int:
    path = quote(arguments.path.strip("/"))
    data = portal.call("GET", f"workloads/{arguments.id}/files/{path}").content
    Path(arguments.target or Path(arguments.path).name).write_bytes(data)
    return 0


COMMANDS: dict[str, Callable[[Portal, argparse.Namespace], int]] = {
    "download": download, "extend": extend, "files": files, "list": list_all, "logs": logs, "pools": pools,
    "rerun": rerun, "run": run, "show": show_one, "stop": stop, "submit": submit, "upload": upload, "verdict": verdict,
    "wait": wait,
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        return COMMANDS[arguments.command](Portal.from_environment(), arguments)
    except Failure as failure:
        say(str(failure))
        return failure.code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing more can be said there
        return 1
    except KeyboardInterrupt:
        return 130
