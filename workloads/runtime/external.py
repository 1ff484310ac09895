"""What others submit to a cluster (kubectl, Kubeflow, Argo, Ray) and the portal admits: how a driver reports it.
An *external run* is an object that others created, with its pods: a Job, a RayCluster, … starts as a whole; each replica of
a Deployment, and each pod without an owner, is a run of its own. It waits behind a scheduling gate that policies of the API
server set (docs/adr/0058-external-workloads-wait-behind-a-scheduling-gate.md), so it waits even while the portal is down.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from workloads.runtime.phases import Phase


@dataclass(frozen=True, slots=True)
class ExternalRef:
    """The object that is admitted, and the pod, if each of the object's pods is admitted by itself."""

    api: str  # group and version: "batch/v1"
    kind: str
    namespace: str
    name: str
    uid: str
    pod: str = ""
    pod_uid: str = ""
    asked: Mapping[str, float | str] = field(default_factory=dict, compare=False)  # requests of each pod, as admitted

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.pod or self.name}"

    @property
    def key(self) -> str:
        """The uid of what is admitted as one run."""
        return self.pod_uid or self.uid


@dataclass(frozen=True, slots=True)
class ExternalPod:
    name: str
    uid: str
    node: str
    phase: Phase
    gated: bool  # waits for the portal
    # Its GPU requests: sharing.outside.asked.
    asked: Mapping[str, float | str] = field(default_factory=dict, compare=False)
    leaving: dt.timedelta | None = None  # it is being deleted, with this grace
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    started_at: dt.datetime | None = None
    finished_at: dt.datetime | None = None
    displaced_at: dt.datetime | None = None  # since when there is no place for it on its node


@dataclass(frozen=True, slots=True)
class ExternalRun:
    """`pods`: the existing pods; `wanted`: how many start together. `sample`: one of them as JSON, from which the sharing systems
    read its requests; `alike`: all have the same requests. `manifest`: recreates a pod without an owner."""

    ref: ExternalRef
    department: str  # slug, as the label has it
    wanted: int
    pods: tuple[ExternalPod, ...]
    by_namespace: bool = False  # tied to the department by its namespace, not only by its own label
    alike: bool = True
    unstoppable: str = ""  # why its controller cannot stop and resume it; English
    submitted_by: str = ""  # the user name of the request that created it
    submitted_with: str = ""  # kubectl, argo, …
    # Set in its labels or annotations: priority, max-runtime, …
    settings: Mapping[str, str] = field(default_factory=dict)
    sample: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    manifest: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    status: str = ""  # the sentence last written on it
    suspended: bool = False
    suspended_by_portal: bool = False
    finished: Phase | None = None  # how the object has ended, by its own status
    reason: str = ""
    message: str = ""

    @property
    def live(self) -> tuple[ExternalPod, ...]:
        return tuple(pod for pod in self.pods if pod.phase in (Phase.PENDING, Phase.RUNNING))

    @property
    def asked(self) -> Mapping[str, float | str]:
        """The GPU requests of one of its pods, and so of all if they are alike."""
        return next((pod.asked for pod in (*self.live, *self.pods)), {})

    @property
    def waits(self) -> bool:
        """Whether all of its pods exist and none has been admitted."""
        gated = [pod for pod in self.live if pod.gated and pod.leaving is None]
        return self.finished is None and len(gated) == len(self.live) >= self.wanted > 0


class Admits(Protocol):
    """What a driver has besides the contract if others may submit to its cluster, too."""

    admits: bool

    def external(self, known: Collection[ExternalRef] = ()) -> tuple[ExternalRun, ...]:
        """Every external run that has pods, and those in `known` without pods whose object still exists."""
        ...

    def notify_external(self, ref: ExternalRef, text: str, *, event: bool) -> None:
        """Write the portal's sentence about the run where its submitter looks; `event`: also as an event, because it is new."""
        ...

    def recreate_external(self, manifest: Mapping[str, Any]) -> str | None:
        """Recreate a pod without an owner, behind its gate. Returns its uid; None while the previous pod exists."""
        ...
