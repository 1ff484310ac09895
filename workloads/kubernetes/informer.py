"""Follow a list of the Kubernetes API: LIST, then WATCH from its version; when that is too old (410), LIST again and
report the difference. After a broken connection it retries with growing, random pauses. Events are hints and may come twice.
Of each object only the result of `read` is kept: thousands of pods as parsed JSON would be hundreds of megabytes.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import structlog

from workloads.kubernetes.api import Api
from workloads.runtime.base import ClusterError

log = structlog.get_logger(__name__)

SECONDS = 120  # of one watch; the server ends it, and the next one continues at its last version
LONGEST_PAUSE = 30.0

Json = dict[str, Any]
T = TypeVar("T")


class Reflector(Generic[T]):
    """Calls `on_change(object, deleted)` for every object that is new, changed, or gone (with its last state)."""

    def __init__(
        self, api: Api, path: str, selector: str, read: Callable[[Json], T], on_change: Callable[[T, bool], None],
        stop: threading.Event,
    ) -> None:  # fmt: skip
        self.api, self.path, self.read, self.on_change, self.stop = api, path, read, on_change, stop
        self.query = {"labelSelector": selector} if selector else {}
        self.known: dict[str, T] = {}  # by uid
        self.version = ""

    def run(self) -> None:
        failures = 0
        while not self.stop.is_set():
            try:
                if not self.version:
                    self._list()
                failures = 0 if self._watch() else failures + 1
            except ClusterError as error:
                failures += 1
                log.warning("watch_broken", path=self.path, detail=error.detail)
            if failures:
                pause = min(LONGEST_PAUSE, 0.5 * 2 ** min(failures, 8)) * random.uniform(0.5, 1)  # noqa: S311
                self.stop.wait(pause)

    def _list(self) -> None:
        listed, version = self.api.list(self.path, **self.query)
        now = {item["metadata"]["uid"]: self.read(item) for item in listed}
        before, self.known, self.version = self.known, now, version
        for uid, was in before.items():
            if uid not in now:
                self.on_change(was, True)
        for uid, reads in now.items():
            if uid not in before or before[uid] != reads:
                self.on_change(reads, False)

    def _watch(self) -> bool:
        """Whether the stream was useful: one that keeps ending at once must not cause a busy loop."""
        useful = False
        for event in self.api.watch(self.path, self.version, SECONDS, **self.query):
            if event["type"] == "ERROR":
                self.version = ""  # 410 Expired, or a refusal: list again
                return False
            useful = True
            self.version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                self._event(event["object"], deleted=event["type"] == "DELETED")
            if self.stop.is_set():
                break
        return useful

    def _event(self, item: Json, *, deleted: bool) -> None:
        uid, reads = item["metadata"]["uid"], self.read(item)
        if deleted:
            self.known.pop(uid, None)
        elif uid in self.known and self.known[uid] == reads:
            return
        else:
            self.known[uid] = reads
        self.on_change(reads, deleted)


def follow(*followers: Reflector[Any]) -> None:
    """Runs each in a daemon thread. A stop does not wait for them, because they may hang in a read."""
    for follower in followers:
        threading.Thread(target=follower.run, name=f"watch-{follower.path}", daemon=True).start()
