"""Random installations: everything that a configuration file can set, in any combination that the portal allows."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

from django.utils import timezone

from portal.infra.providers.identity_providers import OpenIdConnect
from portal.models import Department, GroupRule
from quotas.lending.schedule import Window
from quotas.lending.windows import to_json
from quotas.models import Pool, PoolGroup, PoolPrice, Quota, UserCap
from tests import builders as make
from workloads.models import Image, Preset

PROVIDERS = (OpenIdConnect("corp", "Company login", "https://sso", "portal", "x"),)
UNITS = {
    "a100": {"unit": "card"},
    "l4": {"unit": "MiB", "units_per_card": 24_576, "sharing": "hami", "card_mib": 24_576},
    "t4": {"unit": "percent", "units_per_card": 100, "sharing": "qgpu"},
    "a10": {"unit": "replica", "units_per_card": 4, "sharing": "timeslicing"},
    "h100": {"unit": "slice", "units_per_card": 7, "sharing": "mig", "mig": "NVIDIA-H100-80GB-HBM3"},
}
POLICIES: tuple[dict[str, Any], ...] = (
    {},
    {"within": "never", "reclaim": "any", "borrow_preempt": None},
    {"within": "lower_priority", "reclaim": "lower_priority", "borrow_preempt": {"max_priority": None}},
    {"within": "lower_or_newer_equal", "reclaim": "never", "borrow_preempt": {"max_priority": -5}},
)
TEXTS = ("", "it's: fine", "no", "null", "09:00", "# not a comment", "视觉组", "1.10", "a\\b 'c' \"d\"")


def pools() -> None:
    """Creates the pools that clusters report; the last two share nodes."""
    group: PoolGroup | None = None
    for slug, fields in UNITS.items():
        group = make.pool(slug, cards=8, group=group if slug == "h100" else None, **fields).group


def build(seed: int) -> None:
    """Adds random configuration to the pools of `pools`."""
    chance = random.Random(seed)
    departments = _departments(chance)
    for pool in Pool.objects.select_related("group"):
        _settings(chance, pool)
        left = pool.nominal
        for department in departments:
            if chance.random() < 0.6:
                left -= _quota(chance, department, pool, left)
            if chance.random() < 0.3:
                UserCap.objects.create(department=department, pool=pool, units=_units(chance, pool, pool.nominal))
    _catalogue(chance)
    for number in range(chance.randrange(4)):
        department_or_none = chance.choice([None, *departments])
        role = chance.choice(["viewer", "member", "owner"]) if department_or_none else ""
        GroupRule.objects.create(provider="corp", pattern=f"/gpu/{number}*", department=department_or_none, role=role)


def _departments(chance: random.Random) -> list[Department]:
    rows: list[Department] = []
    for number in range(chance.randrange(1, 6)):
        rows.append(
            make.department(
                f"{chance.choice('abcxyz')}-{number}", name=f"Department {chance.choice(['视觉', 'No', '1.10', 'Ω'])} {number}",
                parent=chance.choice([None, *rows]), weight=chance.randrange(1, 9), paused=chance.random() < 0.2,
                unrestricted=chance.random() < 0.2, policy=chance.choice(POLICIES), version=chance.randrange(1, 5),
            )
        )  # fmt: skip
    return rows


def _units(chance: random.Random, pool: Pool, most: int) -> int:
    least = 256 if pool.unit == "MiB" else 1
    return chance.choice([0, chance.randrange(least, most + 1)]) if most >= least else 0


def _quota(chance: random.Random, department: Department, pool: Pool, left: int) -> int:
    guaranteed = _units(chance, pool, left)
    windows = [
        Window(tuple(sorted(chance.sample(range(7), chance.randrange(1, 5)))), 540, 1080, chance.choice([None, 0, 512])),
        Window((chance.randrange(7),), 1200, chance.choice([1440, 1260]), 1024),
    ][: chance.randrange(3)]  # fmt: skip
    Quota.objects.create(
        department=department, pool=pool, guaranteed=guaranteed, policy=chance.choice(POLICIES),
        borrow_limit=chance.choice([None, _units(chance, pool, pool.nominal)]),
        lend_limit=chance.choice([None, _units(chance, pool, pool.nominal)]),
        windows=[to_json(each) for each in windows], zone=chance.choice(["Asia/Shanghai", "UTC"]) if windows else "",
    )  # fmt: skip
    return guaranteed


def _settings(chance: random.Random, pool: Pool) -> None:
    Pool.objects.filter(pk=pool.pk).update(
        notice=chance.randrange(0, 90_000), grace=chance.randrange(0, 3600), min_runtime=chance.choice([0, 3600, 86_461]),
        max_reclaims=chance.randrange(20), beside_percent=chance.randrange(200),
        balance_half_life=chance.choice([None, None, 3600, 604_800]), policy=chance.choice(POLICIES),
    )  # fmt: skip
    PoolGroup.objects.filter(pk=pool.group_id).update(
        fair_sharing=chance.choice([None, True, False]), starvation_after=chance.choice([None, 0, 7200]),
        restart_cost=chance.choice([None, 90]),
    )  # fmt: skip
    if chance.random() < 0.5:
        own, borrowed = Decimal("1.5"), chance.choice([None, Decimal("0.000001"), Decimal(12)])
        PoolPrice.objects.create(pool=pool, number=1, own=own, borrowed=borrowed, since=timezone.now(), set_by="root")


def _catalogue(chance: random.Random) -> None:
    for number in range(chance.randrange(1, 4)):
        image = Image.objects.create(
            name=f"registry.example:5000/torch:{number}.10", title=f"Torch {number}", active=chance.random() < 0.7,
            kinds=chance.choice([[], ["job", "notebook"]]), interpreter=chance.choice(["", "python"]),
            min_driver=chance.choice([None, 535]),
        )  # fmt: skip
        pool = chance.choice(list(Pool.objects.all()))
        Preset.objects.create(
            slug=f"preset-{number}", title=f"Preset {number}", description=chance.choice(TEXTS), image=image, pool=pool,
            kind=chance.choice(["job", "notebook", "distributed", "service"]), pods=chance.randrange(1, 5),
            units_per_pod=_units(chance, pool, pool.nominal) or pool.units_per_card, profile=chance.choice(["", "1g.10gb"]),
            cores_per_pod=chance.choice([None, 50]), cpu_milli=chance.choice([100, 2000, 1500]),
            memory_mib=chance.choice([512, 8192]),
            command=chance.choice([[], ["python", "train.py"], ["sh", "-ec", "a && b"], ["echo", "it's", "a b"], ["x", ""]]),
            max_runtime=chance.choice([None, 5400]), order=chance.randrange(5), active=chance.random() < 0.7,
            setup=chance.choice([{}, {"port": 8000, "ready_path": "/healthz"}, {"template": "torch", "same_domain": True}]),
        )  # fmt: skip


def wipe() -> None:
    """Removes the configuration, and keeps what clusters report."""
    for model in (GroupRule, Preset, Image, UserCap, Quota, PoolPrice):
        model._default_manager.all().delete()
    Department.objects.update(parent=None)
    Department.objects.all().delete()
    Pool.objects.update(notice=600, grace=120, min_runtime=0, max_reclaims=10, beside_percent=100, policy={}, version=1)
    PoolGroup.objects.update(fair_sharing=None, starvation_after=None, restart_cost=None)
