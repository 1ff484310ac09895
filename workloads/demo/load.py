"""The demo's live workloads, submitted as people would: some departments borrow, some lend, some wait."""

from __future__ import annotations

from dataclasses import dataclass

from portal.access import Actor
from portal.models import Department, User
from quotas.models import Pool
from quotas.planning.run_pass import run_pass
from workloads.actions import submit
from workloads.demo.seed import GIB, TRAINING
from workloads.models import Image, Kind, Workload
from workloads.requests.request import WorkloadRequest

HOURS = ["train", "--steps", "14400"]  # four hours, one step a second


@dataclass(frozen=True, slots=True)
class Job:
    user: str
    department: str
    name: str
    pool: str
    units: int
    command: list[str]
    profile: str = ""
    cores: int | None = None
    preemptible: bool = True


# In this order, which is also where they stand. The first machine is full; of the second one card is left, which Vision has
# idle: grasp-ablation must not be stopped and waits for quota of its own, fold-c for what its department may borrow, so
# that nobody takes the card and it is kept free for nobody. Only fold-a and fold-b together can make room for four cards of
# Vision. README's steps find the same whoever takes them, and whenever.
JOBS = [
    Job("alice", "vision", "baseline-resnet", "a100", 1, HOURS),
    Job("wei", "translation", "mt-en-zh", "a100", 3, HOURS),
    Job("ravi", "robotics", "grasp-policy", "a100", 2, HOURS),
    Job("ravi", "robotics", "grasp-sim", "a100", 2, HOURS),
    Job("min", "speech", "asr-base", "a100", 2, HOURS),
    Job("bob", "biology", "fold-a", "a100", 2, HOURS),
    Job("bob", "biology", "fold-b", "a100", 2, HOURS),
    Job("wei", "translation", "mt-large", "a100", 1, HOURS),
    Job("ravi", "robotics", "grasp-ablation", "a100", 2, HOURS, preemptible=False),
    Job("bob", "biology", "fold-c", "a100", 2, HOURS),
    Job("alice", "vision", "labels-check", "t4", 4 * GIB, ["primes", "400000"]),
    Job("alice", "vision", "augment-trial", "t4", 4 * GIB, ["train", "--steps", "60", "--fail-at", "20"]),
    Job("min", "speech", "asr-tiny", "t4", 6 * GIB, ["train", "--steps", "3600"]),
    Job("bob", "biology", "docking", "t4", 8 * GIB, ["train", "--steps", "3600"]),
    Job("ravi", "robotics", "sim-replay", "t4", 10 * GIB, ["train", "--steps", "7200"]),
    Job("bob", "biology", "cells-seg", "a100-mig", 4, ["train", "--steps", "7200"], "3g.40gb"),
    Job("wei", "translation", "tokenizer", "a100-mig", 1, ["primes", "900000"], "1g.10gb"),
    Job("alice", "vision", "serve-embeddings", "a100-hami", 8 * GIB, ["train", "--steps", "7200"], cores=60),
    Job("bob", "biology", "small-molecules", "a100-hami", 10 * GIB, ["train", "--steps", "7200"], cores=25),
    Job("alice", "vision", "probe-features", "a100-mig", 2, ["train", "--steps", "5400"], "2g.20gb"),
]


def submit_load() -> int:
    """Submits what is missing; returns how many. Workloads of an interrupted seed are recognised by name."""
    submitted = 0
    for job in JOBS:
        department = Department.objects.get(slug=job.department)
        if Workload.objects.filter(department=department, name=job.name).exists():
            continue
        pool = Pool.objects.get(slug=job.pool)
        submit(
            actor=Actor(User.objects.get(username=job.user)),
            department=department,
            request=WorkloadRequest(
                kind=Kind.JOB,
                name=job.name,
                pool=pool,
                image=Image.objects.get(name=TRAINING),
                command=tuple(job.command),
                units_per_pod=job.units,
                profile=job.profile,
                cores_per_pod=job.cores,
                cpu_milli=4000,
                memory_mib=16 * GIB,
                max_runtime=5 * 3600,
                preemptible=job.preemptible,
            ),
        )
        run_pass(group_id=pool.group_id)  # one after the other, so that who came first has its place first
        submitted += 1
    return submitted
