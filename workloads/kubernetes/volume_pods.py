"""Files of a volume claim, through a small pod that mounts it and runs volume_program.py. The pod keeps no state.
It is created when files are requested, ends when none have been requested for IDLE seconds, and in any case after DEADLINE.
It has no finalizer: if the portal is killed at any point, at most a pod that ends by itself is left. While a run of the
workload is on a node, the pod is put on that node too, because most claims can be mounted on one node only
(ReadWriteOnce); before a run starts on another node, the pod is deleted (`make_way`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from workloads.kubernetes import manifests, pod_status
from workloads.kubernetes.api import Api
from workloads.kubernetes.exec import Exec
from workloads.kubernetes.manifests import Options, files
from workloads.runtime import volume_program
from workloads.runtime.base import KeptVolume, Refused, Unreachable, VolumeRef
from workloads.runtime.file_failures import failures
from workloads.runtime.files import Archive, FileFailure, Listing, NotYet, OpenFile, listing_of

Json = dict[str, Any]
FRAME = 1 << 18
BINDING = dt.timedelta(seconds=30)  # how long a new claim may wait for its disk
PROGRAM = Path(volume_program.__file__).read_text()


@dataclass(frozen=True, slots=True)
class PodFiles:
    """The files of one volume. `make_claim` creates namespace and claim if needed."""

    api: Api
    options: Options
    volume: VolumeRef
    make_claim: Callable[[], object]

    def get(self, path: str, after: str = "") -> Listing | OpenFile:
        call = self._call("get", path, after)
        try:
            answer = _answer(call)
        except BaseException:
            call.close()
            raise
        if "entries" in answer:
            call.close()
            return listing_of(answer)
        return OpenFile(answer["name"], answer["size"], _pieces(call))

    def archive(self, path: str) -> Archive:
        call = self._call("archive", path)
        try:
            answer = _answer(call)
        except BaseException:
            call.close()
            raise
        return Archive(answer["name"], _pieces(call))

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        call = self._call("put", path)
        try:
            for chunk in chunks:
                for at in range(0, len(chunk), FRAME):
                    piece = chunk[at : at + FRAME]
                    call.send(len(piece).to_bytes(4, "big") + piece)
            call.send(bytes(4))
            _answer(call)
        finally:
            call.close()

    def remove(self, path: str) -> None:
        call = self._call("remove", path)
        try:
            _answer(call)
        finally:
            call.close()

    def _call(self, operation: str, path: str, after: str = "") -> Exec:
        with failures():
            for text in (path, after):  # a NUL would end the argument
                if len(volume_program.bytes_of(text)) > volume_program.LONGEST_PATH:
                    raise FileFailure("path_too_long", path[:100], limit=volume_program.LONGEST_PATH)
        self._reach()
        return Exec(self.api, self._pod, files.CONTAINER, files.command(operation, path, after))

    @property
    def _pod(self) -> str:
        return pod_path(self.volume)

    def _reach(self) -> None:
        """Start the pod if needed. Raises NotYet while it is starting, Unreachable with the reason if it cannot start."""
        pod = self.api.get(self._pod)
        if pod is not None and not files.is_helper(pod, self.options):
            raise Refused(f"{self._pod} is not the portal's", code="name_taken")
        if pod is None or pod_status.is_over(pod):
            if pod is not None:
                _delete(self.api, self._pod, pod)
            self._start()
            raise NotYet("the working directory is being opened", retry_after=1)
        if pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") != "Running":
            reason, message = pod_status.waiting_for(pod)
            if reason and (reason != "Unschedulable" or _age(pod) > BINDING):
                raise Unreachable(f"the pod that shows the files cannot start: {reason} {message}"[:300])
            raise NotYet("the working directory is being opened", retry_after=1)

    def _start(self) -> None:
        self.make_claim()
        runs, _ = self.api.list(
            f"/api/v1/namespaces/{self.volume.namespace}/pods",
            labelSelector=f"{manifests.WORKLOAD}={manifests.label(self.volume.workload_id)},{manifests.ROLE}!=files",
        )
        nodes = [node for run in runs if not pod_status.is_over(run) if (node := pod_status.node_of(run))]
        wanted = files.pod(self.volume, self.options, PROGRAM, node=nodes[0] if nodes else "")
        answer = self.api.call("POST", f"/api/v1/namespaces/{self.volume.namespace}/pods", wanted)
        if not answer.ok and answer.status != 409:
            raise Unreachable(f"the pod that shows the files is refused: {answer.message}")


def make_way(api: Api, options: Options, volume: VolumeRef, node: str) -> None:
    """Deletes a file pod on another node before a run starts on `node`, because a claim may be mountable on one node
    only."""
    pod = api.get(pod_path(volume))
    if pod is not None and files.is_helper(pod, options) and pod_status.node_of(pod) != node:
        _delete(api, pod_path(volume), pod)


def put_away(api: Api, options: Options, volume: VolumeRef) -> None:
    """Delete the file pod, because a claim in use is not deleted."""
    make_way(api, options, volume, node="-")


def clear_away(api: Api, options: Options) -> None:
    """Delete file pods that have ended: nothing else does."""
    listed, _ = api.list("/api/v1/pods", labelSelector=f"{manifests.selector(options)},{manifests.ROLE}=files")
    for pod in listed:
        if pod_status.is_over(pod):
            _delete(api, f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}", pod)


def kept_volume(claim: Json) -> KeptVolume:
    meta = claim["metadata"]
    marks = meta["labels"]
    ref = VolumeRef(
        name=meta["name"],
        namespace=meta["namespace"],
        workload_id=marks[manifests.WORKLOAD],
        department=marks.get(manifests.DEPARTMENT, ""),
        user=marks.get(manifests.USER, ""),
    )
    return KeptVolume(ref, dt.datetime.fromisoformat(meta["creationTimestamp"]))


def pod_path(volume: VolumeRef) -> str:
    return f"/api/v1/namespaces/{volume.namespace}/pods/{files.name(volume)}"


def _delete(api: Api, path: str, pod: Json) -> None:
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    answer = api.call("DELETE", path, body | {"preconditions": {"uid": pod["metadata"]["uid"]}})
    if not answer.ok and answer.status not in (404, 409):
        raise Unreachable(answer.message)


def _age(pod: Json) -> dt.timedelta:
    return dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(pod["metadata"]["creationTimestamp"])


def _answer(call: Exec) -> Json:
    try:
        answer: Json = orjson.loads(call.line())
    except orjson.JSONDecodeError as error:
        raise Unreachable("the pod that shows the files gave no answer") from error
    if failed := answer.get("failed"):
        raise FileFailure(**failed)
    return answer


def _pieces(call: Exec) -> Iterator[bytes]:
    try:
        yield from call.output()
    finally:
        call.close()
