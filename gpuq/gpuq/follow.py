"""Follows a workload from the queue to its exit code: its log on stdout, its changes on stderr."""

from __future__ import annotations

import signal
import sys
import threading
import time
from types import FrameType
from typing import BinaryIO

import httpx

from gpuq.portal import Json, Lost, Portal, Refused
from gpuq.settings import Failure, without_tokens
from gpuq.words import harmless

REJECTED, CANCELLED, MAX_WAIT = 121, 122, 123
WAIT = 50  # s, of one long poll
STUCK = 20.0  # s to wait for the rest of the log after the end


class Signalled(Exception):
    """SIGTERM or SIGINT was received; raised in the main thread only."""


class Signals:
    """The first signal stops the workload, the second one ends gpuq at once. Until `armed`, the first one is only recorded."""

    def __init__(self) -> None:
        self.came = 0
        self.armed = False

    def __enter__(self) -> Signals:
        self.before = {number: signal.signal(number, self.handle) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def handle(self, number: int, frame: FrameType | None) -> None:
        self.came += 1
        if self.came > 1:
            raise SystemExit(CANCELLED)
        if self.armed:
            raise Signalled


def exit_code(workload: Json) -> int:
    state, code = workload["state"], workload["exit_code"]
    if state == "rejected":
        return MAX_WAIT if workload["reason"] == "max_wait" else REJECTED
    if state == "cancelled":
        return CANCELLED
    if code is None:
        return 0 if state == "succeeded" else 1
    return int(code) if code >= 0 else 128 - int(code)


class Logger(threading.Thread):
    """Copies the log of each attempt in turn to `out`; a broken stream is resumed where it broke off."""

    def __init__(self, portal: Portal, identity: str, out: BinaryIO) -> None:
        super().__init__(daemon=True)
        self.portal, self.identity, self.out = portal, identity, out
        self.attempt, self.known, self.final = 1, 0, False
        self.news = threading.Condition()
        self.error: Exception | None = None

    def update(self, attempts: int, final: bool) -> None:
        with self.news:
            self.known, self.final = attempts, final
            self.news.notify_all()

    def run(self) -> None:
        try:
            while True:
                with self.news:
                    self.news.wait_for(lambda: self.final or self.known >= self.attempt)
                if self.known < self.attempt:
                    return
                if self.attempt > 1:
                    say(f"attempt {self.attempt}")
                self.copy(self.attempt)
                self.attempt += 1
        except (Failure, BrokenPipeError) as error:
            self.error = error

    def copy(self, attempt: int) -> None:
        copy_log(self.portal, self.identity, self.out, attempt=attempt)


def copy_log(
    portal: Portal, identity: str, out: BinaryIO, *, attempt: int | None = None, rank: int = 0,
    tail: int | None = None, follow: bool = True,
) -> None:  # fmt: skip
    """Writes every byte of the log once, up to its present end or, with `follow`, to the end of the attempt, even if the
    connection breaks. Reports bytes that are not kept any more. Raises Lost, Refused, Misconfigured."""
    offset, patience = None if tail is not None else 0, time.monotonic() + portal.patience
    while True:
        got = broke = False
        by_tail = offset is None
        where = {"tail": tail} if by_tail else {"offset": offset}
        try:
            for number, at, piece in portal.log(identity, follow=follow, attempt=attempt, rank=rank or None, **where):
                attempt, got = number, got or bool(piece)
                if offset is not None and at > offset:
                    say(f"bytes {offset} to {at} of the log are not kept")
                offset = at + len(piece)
                out.write(piece)
                out.flush()
        except httpx.TransportError as error:  # the portal was restarted, or a proxy closed the connection
            broke = True
            if not got and time.monotonic() > patience:
                raise Lost(without_tokens(f"the stream broke off: {error}")) from error
        if got:
            patience = time.monotonic() + portal.patience
        if not broke and not follow and (not got or by_tail):
            return
        if follow and offset is not None and portal.log_ended(identity, attempt, offset, rank):
            return
        if follow or broke:
            time.sleep(1.0)


def say(text: str) -> None:
    sys.stderr.write(f"gpuq: {harmless(without_tokens(text))}\n")
    sys.stderr.flush()


def _reported(workload: Json) -> tuple[str, str, bool]:
    """What must change for another line: the state, the sentence, or whether there is an estimate of the start."""
    return workload["state"], workload["verdict"]["title"], bool(workload.get("estimate"))


def report(workload: Json, before: Json | None) -> None:
    """Prints a line if the workload has changed in a way that matters to a person."""
    verdict = workload["verdict"]
    if before is not None and _reported(before) == _reported(workload):
        return
    lines = " ".join([*verdict["lines"], *verdict["advice"]]) if workload["state"] in {"queued", "recalled"} else ""
    when = f" ({workload['reclaim_at']})" if workload["reclaim_at"] else ""
    say(f"{workload['state']}: {verdict['title']}{when} {lines}".rstrip())


def follow(
    portal: Portal, workload: Json, *, log: bool = True, signals: Signals | None = None, quiet: bool = False
) -> int:
    """Waits for the end and returns the exit code. With `signals`, a signal stops the workload. Raises Lost, Refused."""
    identity = workload["id"]
    logger = Logger(portal, identity, sys.stdout.buffer) if log else None
    if logger:
        logger.start()
    before: Json | None = None
    while before is None or not before["final"]:
        try:
            if signals:
                signals.armed = True
                if signals.came and before is None:
                    raise Signalled
            if before is not None:
                workload = portal.workload(identity, wait=WAIT, version=before["version"])
            if not quiet:
                report(workload, before)
            before = workload
            if logger:
                logger.update(len(workload["attempts"]), workload["final"])
        except Signalled:
            say(f"stopping {identity}; a second signal leaves at once")
            portal.stop(identity)
            workload = before = portal.workload(identity)
            if logger:
                logger.update(len(workload["attempts"]), workload["final"])
        except Lost as lost:
            raise Lost(f"{lost}; the workload goes on, see: gpuq wait {identity}") from lost
        except Refused:
            say(f"the portal refuses to say more; the workload goes on, see: gpuq wait {identity}")
            raise
    if logger:
        logger.join(STUCK)
        if isinstance(logger.error, Failure):
            say(f"the log is not complete: {logger.error}")
    return exit_code(workload)
