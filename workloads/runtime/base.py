"""The contract between the portal and the clusters that run its workloads.
A *driver* is a thin adapter, almost without state. It never uses the database, never decides, never waits for a state:
it gets the desired state and reports the observed one, and both calls may be repeated at any time by any process.

| call | does | may raise | repeated call |
|---|---|---|---|
| `ensure(spec)` | makes the run exist (checks first, creates it if absent) | `Refused`, `Unreachable` | no second run: the same `submission_id` is found again |
| `announce(ref, reclaim_at)` | writes or clears (`None`) the time of reclaim where the container reads it | `Unreachable` | the last written time counts |
| `stop(ref, grace)` | SIGTERM now, SIGKILL after `grace` seconds; returns at once | `Unreachable` | harmless, also if the run is gone |
| `remove(ref)` | forgets a finished run (its pod, process record); the working directory stays | `Unreachable` | harmless |
| `observe()` | all runs labelled as the portal's, in one listing | `Unreachable` | – |
| `logs(ref, …)` | bytes of stdout and stderr from `offset` (or the last `tail` lines); `previous`: those of a service before its last start, if that has a separate log (else empty) | `Unreachable`, `NoSuchRun` | – |
| `nodes()` | the node inventory: cards, units, health | `Unreachable` | – |
| `external(known)` | every external run (workloads/runtime/external.py), and the runs in `known` that still exist; optional for a driver | `Unreachable` | – |
| `outside()` | every pod on a node that the portal did not start and that is not over; optional for a driver | `Unreachable` | – |
| `files(volume)` | the files of a working directory: workloads/runtime/files.py | `Unreachable`, `Refused` | – |
| `volumes()` | the existing working directories of the portal; also deletes ended pods that showed their files | `Unreachable` | – |
| `discard(volume)` | removes a working directory for good | `Unreachable` | harmless |
| `keep_home(home)` | brings a department's namespace into its desired state, where the cluster has namespaces | `Unreachable`, `Refused` | harmless |
| `endpoint(ref)` | where a notebook or service listens, or None | `Unreachable` | – |

A run that ended stays in `observe()` with its exit code until `remove()`, also after `stop()`; one that is no longer listed
is gone, and holds nothing.
A gang is one run with as many ranks as pods, a service one run with one rank that is restarted when it exits. `Observed.phase`
is that of the whole run: it has ended once every rank has. A driver never stops ranks because another one failed; it reports
that in `over`, and the portal then calls `stop()`. `gated` requests another `ensure()`: all ranks exist and can start at once.
Identity: `RunRef.name` is deterministic (`w-<workload>-<attempt>`), and `submission_id` identifies the object's owner: an object
of that name with another id is foreign and leads to `Refused("name_taken")`, never to a takeover or a delete.
Times are aware datetimes, grace is in seconds, memory in MiB, cpu in millicores.

Every container finds these in its environment (`environment()`; the driver adds the paths, which only it knows):

| variable | meaning |
|---|---|
| `PORTAL_WORKLOAD`, `PORTAL_ATTEMPT`, `PORTAL_DEPARTMENT`, `PORTAL_USER` | whose run this is |
| `PORTAL_WORKDIR` | the working directory, which survives the attempts; commands start in it |
| `PORTAL_DEPARTMENT_DIR`, `PORTAL_USER_DIR` | the department's and the author's own volume, if they were requested; on Kubernetes `/volumes/department` and `/volumes/user` |
| `PORTAL_RECLAIM_AT_FILE` | file that is absent or empty until notice is given, then holds the time of reclaim (RFC 3339, UTC) |
| `PORTAL_READY_FILE` | create it to report "checkpoint written, may be stopped"; unset where the driver does not check for it |
| `PORTAL_READY_URL`, `PORTAL_READY_TOKEN` | the same by HTTP: POST with `Authorization: Bearer <token>` |
| `PORTAL_ADDRESS`, `PORTAL_PORT`, `PORTAL_BASE_PATH` | where a notebook or service has to listen, and below which path |
| `PORTAL_RANK`, `PORTAL_RANKS`, `PORTAL_HOSTS`, and those of its template | which rank of a gang this is, and where the others are (workloads/runtime/rank_environment.py) |
| `PORTAL_TOKEN` (also `JUPYTER_TOKEN`) | its secret, which every client of that port must present |
"""  # noqa: E501

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from workloads.runtime.errors import EXCEEDED as EXCEEDED
from workloads.runtime.errors import ClusterError as ClusterError
from workloads.runtime.errors import NoSuchRun as NoSuchRun
from workloads.runtime.errors import Refused as Refused
from workloads.runtime.errors import Unreachable as Unreachable
from workloads.runtime.external import ExternalRef as ExternalRef
from workloads.runtime.external import ExternalRun as ExternalRun
from workloads.runtime.files import Files
from workloads.runtime.phases import Phase as Phase
from workloads.runtime.places import Home as Home
from workloads.runtime.places import KeptVolume as KeptVolume
from workloads.runtime.places import SharedVolume as SharedVolume
from workloads.runtime.places import VolumeRef as VolumeRef
from workloads.runtime.setups import Setup


class Look(enum.StrEnum):
    """Which listing of a cluster is due. The values are the names of the periodic tasks that do the same."""

    RUNS = "workloads.converge_all"
    NODES = "workloads.inventory"


@dataclass(frozen=True, slots=True)
class RunRef:
    """Identifies one attempt of one workload on its cluster. `kind` shows a driver which object it created, and `ended` which one
    `observe()` found ended, so that it need not read it again; neither is part of the identity."""

    name: str
    namespace: str
    submission_id: str
    kind: str = field(default="", compare=False)
    ended: str = field(default="", compare=False)
    external: ExternalRef | None = field(default=None, compare=False)  # the object of an external run


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """Where one pod goes: a node and the cards on it. MIG: `start` is the first memory slice, else None."""

    pod: int
    node: str
    cards: tuple[int, ...] = ()
    start: int | None = None


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Everything a driver needs to start one attempt; made from database rows by workloads.clusters.run_spec.spec_of()."""

    ref: RunRef
    workload_id: str
    attempt: int
    kind: str  # notebook | job | distributed | service
    department: str
    user: str
    image: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    pods: int
    cpu_milli: int
    memory_mib: int
    sharing: str  # key of a module in workloads.sharing: "whole", "memory", "mig", …
    product: str  # GPU product of the pool, for node selection
    units_per_pod: int
    profile: str | None  # MIG profile
    placement: tuple[PodPlacement, ...]
    grace: int
    max_runtime: int | None
    volume: str  # name of the working directory / PVC that survives the attempts
    ready_url: str  # POST here with `ready_token` to report "checkpoint written, may be stopped"
    ready_token: str = field(repr=False)
    untried: bool = False  # not created before: the driver need not check first
    port: int | None = None  # the port on which a notebook or service listens
    token: str = field(default="", repr=False)  # the notebook server's own secret
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, str]] = ()
    shm_mib: int = 64
    cores_per_pod: int | None = None  # percent of a card's compute, where its system limits that
    setup: Setup = field(default_factory=Setup)  # settings that only some kinds have
    mig: str = ""  # the pool's table of profiles
    units_per_card: int = 0  # of the pool
    secret_env: Mapping[str, str] = field(default_factory=dict, repr=False)  # must not be readable elsewhere
    extra: Mapping[str, str] = field(default_factory=dict)  # further options of its sharing system: About.extra
    shared_volumes: tuple[SharedVolume, ...] = ()
    # Positions in `command` where $(PORTAL_…) is replaced: the portal's or a preset's.
    own_words: Set[int] = frozenset()


def volume_of(spec: RunSpec) -> VolumeRef:
    ref = VolumeRef(spec.volume, spec.ref.namespace, spec.workload_id, spec.department, spec.user)
    return replace(ref, unrestricted=spec.setup.ipc_lock)


TOKENS = ("PORTAL_TOKEN", "JUPYTER_TOKEN")


def environment(spec: RunSpec) -> dict[str, str]:
    """The user's variables and the portal's, which take precedence. Drivers add paths."""
    own = {
        "PORTAL_WORKLOAD": spec.workload_id,
        "PORTAL_ATTEMPT": str(spec.attempt),
        "PORTAL_DEPARTMENT": spec.department,
        "PORTAL_USER": spec.user,
        "PORTAL_READY_URL": spec.ready_url,
        "PORTAL_READY_TOKEN": spec.ready_token,
    }
    if spec.port is not None:
        own |= {
            "PORTAL_ADDRESS": "0.0.0.0",  # noqa: S104 all addresses of a pod; 127.0.0.1 on the embedded cluster
            "PORTAL_PORT": str(spec.port),
            "PORTAL_BASE_PATH": base_path(spec.kind, spec.workload_id),
            "PORTAL_TOKEN": spec.token,
        }
    if spec.kind == "notebook":
        own["JUPYTER_TOKEN"] = spec.token
    return {**spec.env, **spec.secret_env, **own}


def secrets_of(spec: RunSpec) -> dict[str, str]:
    """Variables of `environment` that must not be readable in the run's description: the user's secrets, and access
    tokens.

    The ready token is not secret: it can only report its own attempt as ready, and only during a recall.
    """
    env = environment(spec)
    return {name: env[name] for name in (*spec.secret_env, *TOKENS) if env.get(name)}


def base_path(kind: str, workload_id: str) -> str:
    """The path below which a notebook must serve. A service has its whole origin."""
    return "/" if kind == "service" else f"/notebooks/{workload_id}/"


@dataclass(frozen=True, slots=True)
class Rank:
    """One pod of a gang or service. `stop_requested`: its stop was requested before it ended."""

    rank: int
    phase: Phase
    stop_requested: bool = False
    node: str = ""
    cards: tuple[str, ...] = ()
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    started_at: dt.datetime | None = None
    finished_at: dt.datetime | None = None
    ready: bool | None = None  # a service answers on its port; None: not probed
    restarts: int = 0  # of a service


@dataclass(frozen=True, slots=True)
class Observed:
    """One run as the cluster reports it now."""

    ref: RunRef
    workload_id: str
    attempt: int
    phase: Phase
    stopping: bool = False  # deletion or SIGTERM under way
    exit_code: int | None = None
    reason: str = ""  # OOMKilled, Evicted, ImagePullBackOff, DeadlineExceeded, NodeLost, …
    message: str = ""
    node: str = ""
    cards: tuple[str, ...] = ()  # read back, where the system tells
    ready: bool = False  # reported ready by file
    started_at: dt.datetime | None = None
    finished_at: dt.datetime | None = None
    checkpointed_at: dt.datetime | None = None
    ranks: tuple[Rank, ...] = ()  # of a gang or service
    over: bool = False  # a rank failed, or the one that decides has finished: the others have no work left
    gated: bool = False  # all ranks exist and wait for another ensure() to start at once
    displaced_at: dt.datetime | None = None  # since when the pod of a service has no place on its node


@dataclass(frozen=True, slots=True)
class CardInfo:
    """One card. `units`: in the pool's unit; `memory_mib`: of the whole card, if known; `cores`: percent of compute that it
    offers (100), if that is limited."""

    index: int
    units: int
    cores: int | None = None
    uuid: str = ""
    healthy: bool = True
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence about a node: a message id with %(name)s placeholders, translated when it is shown, as are notes among the
    params. str() is English."""

    message: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message % self.params


def as_json(note: Note | None) -> dict[str, Any]:
    """A note as it is stored; {} for None."""
    if note is None:
        return {}
    params = {name: as_json(value) if isinstance(value, Note) else value for name, value in note.params.items()}
    return {"message": note.message, "params": params}


@dataclass(frozen=True, slots=True)
class Fault:
    """A sign that a node's hardware is faulty. `name`: source/what, the same while the fault lasts."""

    name: str
    reason: Note


@dataclass(frozen=True, slots=True)
class Offer:
    """Cards of a node that one sharing system serves; a node may have several offers: whole cards beside MIG instances."""

    sharing: str
    product: str
    unit: str
    units_per_card: int
    cards: tuple[CardInfo, ...]
    instances: Mapping[str, int] = field(default_factory=dict)
    mig: str | None = None


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One node of the inventory. `held_back`: why it takes no new pods ("": it takes them).
    `because` and `held_back` are English; `because_of` and `held_back_by` are the same, to be translated. `conflicts`: keys of
    other systems whose marks the node has but must not have. `beside`: its other offers; the pools of all its offers share nodes,
    so they belong to one pool group. `faults` quarantine the node.
    """

    name: str
    sharing: str
    product: str
    unit: str  # card | replica | MiB | percent | slice
    units_per_card: int
    cards: tuple[CardInfo, ...]
    instances: Mapping[str, int] = field(default_factory=dict)  # fixed MIG geometry
    mig: str | None = None  # a product key of the MIG profile table
    cpu_milli: int | None = None
    memory_mib: int | None = None
    pods: int | None = None  # the most pods that may run there at once
    devices: Mapping[str, int] = field(default_factory=dict)  # other resources that pods may request: RDMA
    domain: str = ""
    because: str = ""  # why this sharing system was derived
    held_back: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    beside: tuple[Offer, ...] = ()
    because_of: Note | None = None
    held_back_by: tuple[Note, ...] = ()
    conflicts: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()

    def held(self, *notes: Note) -> NodeInfo:
        """The node, held back for these reasons too."""
        held = (*self.held_back_by, *notes)
        return replace(self, held_back_by=held, held_back="; ".join(map(str, held)))

    @property
    def offers(self) -> tuple[Offer, ...]:
        """Every kind of cards on the node, its own first; () if it has no system or no cards."""
        own = Offer(self.sharing, self.product, self.unit, self.units_per_card, self.cards, self.instances, self.mig)
        return tuple(offer for offer in (own, *self.beside) if offer.sharing and offer.cards)


@dataclass(frozen=True, slots=True)
class OutsidePod:
    """A pod on a node that the portal did not start. `owner_kind`: the kind of its owner: DaemonSet, Job, …, or Node; "" without
    owner. `pod`: the object itself, to be read by the sharing system of its node."""

    uid: str
    node: str
    namespace: str
    name: str
    owner_kind: str
    pod: Mapping[str, Any] = field(repr=False, compare=False)
    admitted: str = ""  # submission id of the attempt that admitted it, from its annotation


@dataclass(frozen=True, slots=True)
class LogChunk:
    data: bytes
    offset: int  # of the first byte of `data` in the whole log
    end: bool  # the run is over and nothing will be added
    first: int = 0  # offset of the first byte that is kept


def last_lines(data: bytes, count: int) -> bytes:
    """The last `count` lines of a log; the very last one may be incomplete."""
    if count > data.count(b"\n"):
        return data
    start = len(data) - data.endswith(b"\n")
    for _ in range(count):
        start = data.rfind(b"\n", 0, start)
    return data[start + 1 :] if count else b""


class ClusterDriver(Protocol):
    """See the table above. `name`: the name of the Cluster row."""

    name: str

    def ensure(self, spec: RunSpec) -> None: ...

    def announce(self, ref: RunRef, reclaim_at: dt.datetime | None) -> None: ...

    def stop(self, ref: RunRef, grace: int) -> None: ...

    def remove(self, ref: RunRef) -> None: ...

    def observe(self) -> tuple[Observed, ...]: ...

    def logs(
        self, ref: RunRef, *, offset: int = 0, tail: int | None = None, rank: int = 0, limit: int = 1 << 20,
        previous: bool = False,
    ) -> LogChunk: ...  # fmt: skip

    def nodes(self) -> tuple[NodeInfo, ...]: ...

    def endpoint(self, ref: RunRef) -> tuple[str, int] | None: ...

    def files(self, volume: VolumeRef) -> Files | None:
        """The working directory, created if it does not exist; None if it does not outlive a run."""
        ...

    def volumes(self) -> tuple[KeptVolume, ...]: ...

    def discard(self, volume: VolumeRef) -> None: ...

    def keep_home(self, home: Home, *, fresh: bool = False) -> None:
        """`fresh`: write it again even if this process remembers having written it."""
        ...
