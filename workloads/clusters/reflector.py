"""Follows a list of the Kubernetes API: LIST, then WATCH from its version; when that is too old (410), LIST again and
tell the difference. Breaks are waited out with growing, random pauses. Events are hints and may come twice.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import structlog

from workloads.clusters.base import ClusterError
from workloads.clusters.kubeapi import Api

log = structlog.get_logger(__name__)

SECONDS = 120  # of one watch; the server ends it, and the next begins at the version it left
LONGEST_PAUSE = 30.0

Json = dict[str, Any]


class Reflector:
    """`tell(object)` for every object that is new, changed or gone (its last state)."""

    def __init__(self, api: Api, path: str, selector: str, tell: Callable[[Json], None], stop: threading.Event) -> None:
        self.api, self.path, self.tell, self.stop = api, path, tell, stop
        self.query = {"labelSelector": selector} if selector else {}
        self.known: dict[str, Json] = {}  # by uid
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
        now = {item["metadata"]["uid"]: item for item in listed}
        before, self.known, self.version = self.known, now, version
        for uid, item in before.items():
            if uid not in now:
                self.tell(item)
        for uid, item in now.items():
            if _version(before.get(uid)) != _version(item):
                self.tell(item)

    def _watch(self) -> bool:
        """Whether the stream was of use: one that ends at once, again and again, must not become a busy loop."""
        useful = False
        for event in self.api.watch(self.path, self.version, SECONDS, **self.query):
            item = event["object"]
            if event["type"] == "ERROR":
                self.version = ""  # 410 Expired, or a refusal: begin anew
                return False
            useful = True
            self.version = item["metadata"]["resourceVersion"]
            uid = item["metadata"].get("uid")
            if event["type"] == "DELETED":
                self.known.pop(uid, None)
            elif event["type"] != "BOOKMARK":
                self.known[uid] = item
            if event["type"] != "BOOKMARK":
                self.tell(item)
            if self.stop.is_set():
                break
        return useful


def _version(item: Json | None) -> str | None:
    return str(item["metadata"]["resourceVersion"]) if item else None


def watch(api: Api, selector: str, on_change: Callable[[], None], stop: threading.Event) -> None:
    """Pods in one thread, nodes in another. Both may hang in a read when `stop` comes, so nobody waits for them."""
    for path, of_ours in (("/api/v1/pods", selector), ("/api/v1/nodes", "")):
        follower = Reflector(api, path, of_ours, lambda item: on_change(), stop)
        threading.Thread(target=follower.run, name=f"watch-{path}", daemon=True).start()
    stop.wait()
