"""The demo's installation: a declared cluster, pools, departments, people, quotas, images and presets.

Every step keeps what an earlier, interrupted run has created. Quotas are set through the same action as by people.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings

from portal.access import Actor
from portal.models import Department, Membership, Role, User
from quotas.models import Cluster, ClusterKind, Pool, PoolGroup, Quota
from quotas.rules.quotas import set_quota
from workloads.demo.names import named
from workloads.demo.nodes import A100, A100_40, NODES, T4
from workloads.models import Image, Kind, Preset
from workloads.nodes.inventory import refresh
from workloads.runtime.setups import Setup

CLUSTER = "demo"
NOTICE, GRACE = 45, 10  # s: short enough to watch
TRAINING, NOTEBOOK = "demo/training:1", "demo/notebook:1"
GIB = 1024


@dataclass(frozen=True, slots=True)
class Person:
    """A user of the demo; `department` is None for the operator. The login is shown at the start if `what` (to try) is set."""

    username: str
    name: str
    department: str | None
    role: Role = Role.MEMBER
    what: str = ""


PEOPLE = [
    Person("alice", "Alice Chen", "vision", what="researcher in Vision: submit, watch, rerun"),
    Person("olivia", "Olivia Park", "vision", Role.OWNER, what="quota owner of Vision: lend, recall, members"),
    Person("bob", "Bob Okafor", "biology", what="researcher in Biology: runs on borrowed cards"),
    Person("oscar", "Oscar Lind", None, what="operator: pools, nodes, quotas, clusters"),
    Person("nora", "Nora Weiss", "nlp", Role.OWNER),
    Person("wei", "Wei Zhang", "translation"),
    Person("min", "Min Seo", "speech"),
    Person("ravi", "Ravi Iyer", "robotics", Role.OWNER),
    Person("vera", "Vera Costa", "vision", Role.VIEWER),
]
DEPARTMENTS = {  # slug: (name, the department above)
    "vision": ("Computer Vision", None),
    "nlp": ("Language", None),
    "translation": ("Machine Translation", "nlp"),
    "speech": ("Speech", "nlp"),
    "robotics": ("Robotics", None),
    "biology": ("Computational Biology", None),
}
POOLS = {  # slug: (name, product, sharing, unit, units of a card, MIG table)
    "a100": ("A100 80GB, whole cards", A100, "whole", "card", 1, ""),
    "t4": ("T4, shared memory", T4, "memory", "MiB", 15 * GIB, ""),
    "a100-mig": ("A100 80GB, MIG", A100, "mig", "slice", 8, "A100-80GB"),
    "a100-hami": ("A100 40GB, parts of a card", A100_40, "hami", "MiB", 40 * GIB, ""),
}
QUOTAS: dict[str, dict[str, tuple[int, int | None, int | None]]] = {  # guaranteed, borrow limit, lend limit
    "a100": {
        "vision": (8, 6, None),
        "nlp": (1, 4, None),
        "translation": (3, 4, None),
        "speech": (2, 2, 1),
        "robotics": (2, 2, None),
        "biology": (0, 4, 0),
    },
    "t4": {
        "vision": (30 * GIB, 30 * GIB, None),
        "translation": (30 * GIB, None, None),
        "speech": (15 * GIB, None, None),
        "robotics": (30 * GIB, 15 * GIB, 15 * GIB),
        "biology": (0, 15 * GIB, 0),
    },
    "a100-hami": {
        "vision": (30 * GIB, None, None),
        "speech": (30 * GIB, None, None),
        "biology": (0, 20 * GIB, 0),
    },
    "a100-mig": {
        "vision": (16, 16, None),
        "translation": (8, 8, None),
        "speech": (8, 8, None),
        "robotics": (8, 8, None),
        "biology": (8, 16, None),
    },
}
TRAIN_AN_HOUR = ["train", "--steps", "3600"]
PRESETS = [  # slug, title, description, kind, pool, units, profile, image, command, max_runtime
    ("quick-look", "Quick look", "A job of a minute on a slice of an A100", Kind.JOB, "a100-mig", 1, "1g.10gb",
     TRAINING, ["train", "--steps", "60"], 3600),
    ("train-1", "Train on one A100", "Resumes from its checkpoint after a recall", Kind.JOB, "a100", 1, "",
     TRAINING, TRAIN_AN_HOUR, 4 * 3600),
    ("train-4", "Train on four A100", "All on one node, all at once", Kind.JOB, "a100", 4, "",
     TRAINING, TRAIN_AN_HOUR, 4 * 3600),
    ("finetune-t4", "Fine-tune on 6 GiB of a T4", "Shares the card with others", Kind.JOB, "t4", 6 * GIB, "",
     TRAINING, ["train", "--steps", "600"], 2 * 3600),
    ("ddp-2x2", "Two ranks of two A100", "Each rank learns from its own examples; they average over the network",
     Kind.DISTRIBUTED, "a100", 2, "", TRAINING, ["ranks", "--steps", "1200"], 4 * 3600),
    ("serve-t4", "Serve a model on 2 GiB of a T4", "Stays up behind the portal until you stop it", Kind.SERVICE, "t4",
     2 * GIB, "", TRAINING, ["serve"], None),
    ("notebook", "Notebook on 4 GiB of a T4", "JupyterLab in the browser", Kind.NOTEBOOK, "t4", 4 * GIB, "",
     NOTEBOOK, [], 8 * 3600),
]  # fmt: skip
MORE: dict[str, dict[str, Any]] = {  # preset → fields that only its kind has
    "ddp-2x2": {"pods": 2, "setup": Setup(template="torch", max_restarts=2).as_json()},
    "serve-t4": {"setup": Setup(port=8000, ready_path="/healthz").as_json()},
}


def seed(language: str = "en") -> None:
    """Creates the missing parts of the installation, with names in "en" or "zh"."""
    cluster = declare_cluster()
    make_pools(cluster, language)
    refresh(cluster)
    make_departments(language)
    make_people()
    make_quotas(operator())
    make_images(language)
    make_presets(language)


def operator() -> Actor:
    return Actor(User.objects.get(username="oscar"))


def declare_cluster() -> Cluster:
    cluster, _made = Cluster.objects.update_or_create(
        name=CLUSTER, defaults={"kind": ClusterKind.EMBEDDED, "options": {"nodes": NODES}, "active": True}
    )
    return cluster


def make_pools(cluster: Cluster, language: str) -> None:
    """Creates empty pools. The inventory then assigns the nodes to them, and adds their units to the nominal capacity."""
    for slug, (name, product, sharing, unit, per_card, mig) in POOLS.items():
        group, _made = PoolGroup.objects.get_or_create(name=f"{CLUSTER}-{slug}", cluster=cluster)
        Pool.objects.get_or_create(
            slug=slug,
            defaults={
                "name": named(name, language),
                "group": group,
                "product": product,
                "sharing": sharing,
                "unit": unit,
                "units_per_card": per_card,
                "mig": mig,
                "nominal": 0,
                "notice": NOTICE,
                "grace": GRACE,
            },
        )


def make_departments(language: str) -> None:
    for slug, (name, parent) in DEPARTMENTS.items():
        above = Department.objects.get(slug=parent) if parent else None
        Department.objects.get_or_create(slug=slug, defaults={"name": named(name, language), "parent": above})


def make_people() -> None:
    for person in PEOPLE:
        first, _space, last = person.name.partition(" ")
        user, made = User.objects.get_or_create(
            username=person.username,
            defaults={
                "first_name": first,
                "last_name": last,
                "email": f"{person.username}@demo.invalid",
                "is_operator": person.department is None,
                "is_staff": person.department is None,
                "is_superuser": person.department is None,
            },
        )
        if made:
            user.set_unusable_password()
            user.save()
        if person.department:
            department = Department.objects.get(slug=person.department)
            Membership.objects.get_or_create(user=user, department=department, defaults={"role": person.role})


def make_quotas(actor: Actor) -> None:
    for pool_slug, rows in QUOTAS.items():
        pool = Pool.objects.get(slug=pool_slug)
        for slug, (guaranteed, borrow_limit, lend_limit) in rows.items():
            department = Department.objects.get(slug=slug)
            if Quota.objects.filter(department=department, pool=pool).exists():
                continue
            set_quota(
                actor=actor,
                department=department,
                pool=pool,
                guaranteed=guaranteed,
                borrow_limit=borrow_limit,
                lend_limit=lend_limit,
                expected_version=None,
                why="demo",
            )


def make_images(language: str = "en") -> None:
    """Creates or updates the images. One of the embedded cluster is a folder with an interpreter and the programs, recreated at
    every start; its title is never changed."""
    training = {
        "kinds": [Kind.JOB, Kind.DISTRIBUTED, Kind.SERVICE],
        "interpreter": str(training_interpreter()),
    }
    notebook = {"kinds": [Kind.NOTEBOOK], "interpreter": str(Path(sys.executable).absolute())}
    for name, title, values in (
        (TRAINING, "Training (plain Python, demo programs)", training),
        (NOTEBOOK, "JupyterLab", notebook),
    ):
        Image.objects.update_or_create(
            name=name, defaults=values, create_defaults={**values, "title": named(title, language)}
        )


def training_interpreter() -> Path:
    """The interpreter of the training image, recreated at every start because the checkout or its Python may have moved."""
    folder = Path(settings.DATA_DIR) / "images" / "training"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("python3", "python"):
        (folder / name).unlink(missing_ok=True)
        os.symlink(Path(sys.executable).resolve(), folder / name)  # without the portal's own packages
    for program in (Path(__file__).parent / "programs").glob("*.py"):
        partial = folder / f".{program.stem}"
        shutil.copyfile(program, partial)
        partial.chmod(0o755)
        partial.replace(folder / program.stem)
    return folder / "python3"


def make_presets(language: str) -> None:
    for order, (slug, title, text, kind, pool, units, profile, image, command, max_runtime) in enumerate(PRESETS):
        Preset.objects.get_or_create(
            slug=slug,
            defaults={
                "title": named(title, language),
                "description": named(text, language),
                "kind": kind,
                "pool": Pool.objects.get(slug=pool),
                "units_per_pod": units,
                "profile": profile,
                "image": Image.objects.get(name=image),
                "command": command,
                "max_runtime": max_runtime,
                "order": order,
                **MORE.get(slug, {}),
            },
        )
