"""The demo's live workloads, submitted like those of people: some departments borrow, some lend, some wait."""

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


# The order matters, as it decides where they run. The first node is full, and one card of the second is free, Vision's own.
# No waiting workload can take or hold that card: grasp-ablation is non-preemptible and waits for its own quota, fold-c is above
# its department's borrow limit. Vision can get four cards only if both fold-a and fold-b are preempted. So the steps in README
# have the same result for everybody, at any time.
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
    """Submits the missing workloads, and returns how many. Those of an interrupted start are recognised by name."""
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
        run_pass(group_id=pool.group_id)  # after each one, so that they are placed in this order
        submitted += 1
    return submitted
