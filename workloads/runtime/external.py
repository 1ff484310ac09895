"""What others submit to a cluster (kubectl, Kubeflow, Argo, Ray) and the portal admits: how a driver tells of it.

An *external run* is an object that somebody else made, with its pods: a Job, a RayCluster, … starts as a whole; a replica of
a Deployment, and a pod that nobody owns, is a run of its own. It waits behind a scheduling gate that the API server's own
policies put there (docs/adr/0058-what-others-submit-waits-behind-a-gate.md), so it needs no portal to wait.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from workloads.runtime.phases import Phase


@dataclass(frozen=True, slots=True)
class ExternalRef:
    """The object that is admitted, and, where each of its pods is admitted by itself, that pod."""

    api: str  # group and version: "batch/v1"
    kind: str
    namespace: str
    name: str
    uid: str
    pod: str = ""
    pod_uid: str = ""
    asked: Mapping[str, float | str] = field(default_factory=dict, compare=False)  # of each pod, as it was admitted

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.pod or self.name}"

    @property
    def key(self) -> str:
        """What is admitted as one."""
        return self.pod_uid or self.uid


@dataclass(frozen=True, slots=True)
class ExternalPod:
    name: str
    uid: str
    node: str
    phase: Phase
    gated: bool  # waits for the portal
    asked: Mapping[str, float | str] = field(default_factory=dict, compare=False)  # how much GPU: sharing.outside.asked
    leaving: dt.timedelta | None = None  # it has been told to stop, with so much grace
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    started_at: dt.datetime | None = None
    finished_at: dt.datetime | None = None
    displaced_at: dt.datetime | None = None  # since when its node has no place for it


@dataclass(frozen=True, slots=True)
class ExternalRun:
    """`pods` are those that are there, `wanted` is how many start together. `sample` is one of them as JSON, for the sharing
    systems to read what it asks for; `alike`: they all ask for the same. `manifest` creates a pod that nobody owns again."""

    ref: ExternalRef
    department: str  # slug, as the label has it
    wanted: int
    pods: tuple[ExternalPod, ...]
    by_namespace: bool = False  # the namespace ties it to the department, not only a label of its own
    alike: bool = True
    unstoppable: str = ""  # why its controller would not stop and resume it; English
    submitted_by: str = ""  # the user name of the request that made it
    submitted_with: str = ""  # kubectl, argo, …
    settings: Mapping[str, str] = field(default_factory=dict)  # what it says of itself: priority, max-runtime, …
    sample: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    manifest: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    status: str = ""  # what was last said of it there
    suspended: bool = False
    suspended_by_portal: bool = False
    finished: Phase | None = None  # the object says that it is over
    reason: str = ""
    message: str = ""

    @property
    def live(self) -> tuple[ExternalPod, ...]:
        return tuple(pod for pod in self.pods if pod.phase in (Phase.PENDING, Phase.RUNNING))

    @property
    def asked(self) -> Mapping[str, float | str]:
        """What one of its pods asks for; all of them, where they are alike."""
        return next((pod.asked for pod in (*self.live, *self.pods)), {})

    @property
    def waits(self) -> bool:
        """Whether nothing of it has been let in, and all of it is there."""
        gated = [pod for pod in self.live if pod.gated and pod.leaving is None]
        return self.finished is None and len(gated) == len(self.live) >= self.wanted > 0


class Admits(Protocol):
    """What a driver has besides the contract where others may submit to its cluster, too."""

    admits: bool

    def external(self, known: Collection[ExternalRef] = ()) -> tuple[ExternalRun, ...]:
        """Every external run; of those in `known` that have no pods now, the ones whose object is still there."""
        ...

    def tell_external(self, ref: ExternalRef, text: str, *, event: bool) -> None:
        """Writes what the portal says of it where its owner looks; `event`: it is news."""
        ...

    def make_external_again(self, manifest: Mapping[str, Any]) -> str | None:
        """Makes a pod that nobody else would make again, behind its gate. Its uid; None while the one before is there."""
        ...
