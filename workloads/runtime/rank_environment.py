"""The environment variables by which ranks of a distributed job find each other, for each template. Pure.
The variables are those of well-known operators, so that a program needs no change:

| template | roles by rank | variables |
|---|---|---|
| `generic` | worker 0 … | MASTER_ADDR, MASTER_PORT, WORLD_SIZE (= ranks), RANK |
| `torch` | master, then workers | the same with WORLD_SIZE = ranks × cards, and PET_* for torchrun (Kubeflow's PyTorchJob) |
| `tensorflow` | chief, then workers | TF_CONFIG for MultiWorkerMirroredStrategy (Kubeflow's TFJob) |
| `tensorflow-ps` | chief, parameter servers, workers | TF_CONFIG for ParameterServerStrategy; when the chief ends, all end |
| `mpi` | launcher, then workers | a hostfile for Open MPI, Intel MPI and Hydra, and the script that starts ranks without ssh (workloads.runtime.mpi); when the launcher ends, all end |

All of them also have PORTAL_RANK, PORTAL_RANKS and PORTAL_HOSTS (`host:port` of each rank, commas between).
Whole cards only: NCCL refuses two ranks on one device ("Duplicate GPU detected", init.cc), and the replicas of a shared
card are one device; MIG instances have no peer-to-peer path.
"""  # noqa: E501

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass

from workloads.runtime import mpi

AGENT = "mpi"  # name of the script's file
PORT = 29500  # torchrun's own default
LOOPBACK = "127.0.0.1"  # where all ranks of an embedded cluster are


class Template(enum.StrEnum):
    GENERIC = "generic"
    TORCH = "torch"
    TENSORFLOW = "tensorflow"
    TENSORFLOW_PS = "tensorflow-ps"
    MPI = "mpi"


LEADER_DECIDES = frozenset(
    {Template.TENSORFLOW_PS, Template.MPI}
)  # the other ranks serve the leader and never end by themselves


@dataclass(frozen=True, slots=True)
class Gang:
    """`hosts` and `ports`: where the others reach each rank. `cards`: of each rank. `hostfile`: its path in the containers."""

    template: Template
    hosts: tuple[str, ...]
    ports: tuple[int, ...]
    cards: int = 1
    parameter_servers: int = 0
    hostfile: str = ""

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(f"{host}:{port}" for host, port in zip(self.hosts, self.ports, strict=True))


@dataclass(frozen=True, slots=True)
class Role:
    """`name` ∈ worker | master | chief | ps | launcher; `index` counts within it."""

    name: str
    index: int

    def __str__(self) -> str:
        return f"{self.name} {self.index}"


def role(template: str, rank: int, parameter_servers: int = 0) -> Role:
    match template:
        case Template.TENSORFLOW_PS if 0 < rank <= parameter_servers:
            return Role("ps", rank - 1)
        case Template.TENSORFLOW_PS if rank:
            return Role("worker", rank - 1 - parameter_servers)
        case Template.GENERIC:
            return Role("worker", rank)
    leader = {Template.TORCH: "master", Template.MPI: "launcher"}.get(Template(template), "chief")
    return Role("worker", rank - 1) if rank else Role(leader, 0)


def environment(gang: Gang, rank: int) -> dict[str, str]:
    """The variables of one rank."""
    own = {
        "PORTAL_RANK": str(rank),
        "PORTAL_RANKS": str(len(gang.hosts)),
        "PORTAL_HOSTS": ",".join(gang.addresses),
    }
    return own | TELL[gang.template](gang, rank)


def _generic(gang: Gang, rank: int) -> dict[str, str]:
    return _master(gang) | {"WORLD_SIZE": str(len(gang.hosts)), "RANK": str(rank)}


def _master(gang: Gang) -> dict[str, str]:
    return {"MASTER_ADDR": gang.hosts[0], "MASTER_PORT": str(gang.ports[0])}


def _torch(gang: Gang, rank: int) -> dict[str, str]:
    """torchrun reads PET_*; a program started without it has one process for each pod and reads the other variables."""
    master = _master(gang)
    return master | {
        "WORLD_SIZE": str(len(gang.hosts) * gang.cards),
        "RANK": str(rank),
        "PET_NNODES": str(len(gang.hosts)),
        "PET_NODE_RANK": str(rank),
        "PET_NPROC_PER_NODE": str(gang.cards),
        **{f"PET_{name}": value for name, value in master.items()},
    }


def _tensorflow(gang: Gang, rank: int) -> dict[str, str]:
    cluster: dict[str, list[str]] = {}
    for each, address in enumerate(gang.addresses):
        cluster.setdefault(role(gang.template, each, gang.parameter_servers).name, []).append(address)
    own_role = role(gang.template, rank, gang.parameter_servers)
    task = {"type": own_role.name, "index": own_role.index}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})}


def _mpi(gang: Gang, rank: int) -> dict[str, str]:
    """mpirun in the launcher reads its hosts from the hostfile; the script that starts ranks is in the same directory."""
    files = mpi.variables(agent_beside(gang.hostfile), gang.hostfile)
    return _generic(gang, rank) | {"K_MPI_JOB_ROLE": role(gang.template, rank).name} | files


def agent_beside(hostfile: str) -> str:
    """The path of workloads.runtime.mpi's script, in the directory of the hostfile."""
    return hostfile.removesuffix("hostfile") + AGENT


TELL = {
    Template.GENERIC: _generic,
    Template.TORCH: _torch,
    Template.TENSORFLOW: _tensorflow,
    Template.TENSORFLOW_PS: _tensorflow,
    Template.MPI: _mpi,
}


def hostfile(gang: Gang) -> str:
    """One line for each rank, in Open MPI's format; a process for each card."""
    return "".join(f"{host} slots={gang.cards}\n" for host in gang.hosts)


def split(gang: Gang) -> tuple[dict[str, str], list[dict[str, str]]]:
    """(variables common to all ranks, variables of each rank): one pod template serves all ranks."""
    by_rank = [environment(gang, rank) for rank in range(len(gang.hosts))]
    alike = {name: value for name, value in by_rank[0].items() if all(each[name] == value for each in by_rank)}
    return alike, [{name: value for name, value in each.items() if name not in alike} for each in by_rank]


def portal_names(template: str) -> frozenset[str]:
    """Names of the variables that the portal sets for the template."""
    pair = Gang(Template(template), ("a", "b", "c"), (1, 2, 3), parameter_servers=1, hostfile="/hostfile")
    return frozenset(environment(pair, 0))


def faults(template: str, pods: int, parameter_servers: int) -> Mapping[str, str]:
    """Field → what is wrong, as a code: few_pods | few_parameter_servers | no_worker | no_such_template."""
    if template not in set(Template):
        return {"template": "no_such_template"}
    if pods < 2:
        return {"pods": "few_pods"}
    if template == Template.TENSORFLOW_PS:
        if parameter_servers < 1:
            return {"parameter_servers": "few_parameter_servers"}
        if pods < parameter_servers + 2:  # the chief and at least one worker
            return {"pods": "no_worker"}
    return {}
