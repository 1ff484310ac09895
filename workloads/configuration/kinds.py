"""The sections of the file: where each entry is in the file, how it is read from the database, and which action of the
portal writes it. The actions validate the values; nothing that they validate is validated here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from portal.access import Actor
from portal.accounts import departments
from portal.api.base import Strict
from portal.api.group_rules import ROLES
from portal.errors import N_, Invalid
from portal.models import Department, GroupRule
from portal.sign_in import group_rules
from quotas.api.policies import PolicyShape
from quotas.api.quotas import MOST
from quotas.engine.snapshot_json import policy_from_json
from quotas.lending import windows
from quotas.models import Pool, Quota, UserCap
from quotas.rules import capacity, policies, prices, quotas
from quotas.rules.policies import PoolRules, Scope
from workloads.configuration.document import Path
from workloads.configuration.fields import (
    Amount,
    Command,
    CoreCount,
    Duration,
    Entry,
    LendingWindow,
    Memory,
    SetupOptions,
    plain_policy,
)
from workloads.models import CHOICES, Image, Preset
from workloads.requests import images_and_presets

Key = tuple[str, ...]
Values = dict[str, Any]
MOST_LISTED = 10
DAY = 86_400


class Absent(Invalid):
    code = "does_not_exist"
    message = N_("There is no %(name)s. There are: %(known)s.")


def absent(name: str, known: Iterable[str], field: str = "") -> Absent:
    names = sorted(known)
    listed = ", ".join([*names[:MOST_LISTED], *["…"] * (len(names) > MOST_LISTED)])
    return Absent(field=field, name=name, known=listed or "–")


def _department(slug: str, field: str = "") -> Department:
    """The department. Raises Absent."""
    row = Department.objects.select_related("parent").filter(slug=slug).first()
    if row is None:
        raise absent(slug, Department.objects.values_list("slug", flat=True), field)
    return row


def _pool(slug: str, field: str = "") -> Pool:
    """The pool. Raises Absent: the file cannot create pools, which come from the nodes that clusters report."""
    row = Pool.objects.select_related("group__cluster").filter(slug=slug).first()
    if row is None:
        raise absent(slug, Pool.objects.values_list("slug", flat=True), field)
    return row


def _set_policy(actor: Actor, scope: Scope, values: Values) -> None:
    row = scope.carrier()
    if plain_policy(row.policy) != values["policy"]:
        policy = policy_from_json(values["policy"]) if values["policy"] else None
        policies.set_policy(actor=actor, scope=scope, policy=policy, expected_version=row.version)


class Section:
    """One kind of entry. `new`: the values of a new entry; `absent`: values that mean the same as no entry, if there are any."""

    shape: ClassVar[type[Entry]]
    absent: ClassVar[Values | None] = None
    new: ClassVar[Values] = {}

    def stored(self, key: Key | None = None) -> dict[Key, Values]:
        """All stored entries by key, or only the one with this key."""
        raise NotImplementedError

    def write(self, actor: Actor, key: Key, wanted: Values) -> None:
        """Sets these values, creating the entry if necessary; other values stay. Raises what the actions raise."""
        raise NotImplementedError

    def remove(self, actor: Actor, key: Key) -> None:
        raise NotImplementedError

    def place(self, key: Key) -> Path:
        raise NotImplementedError

    def needs(self, key: Key, values: Values) -> Iterable[tuple[str, str]]:
        """The entries that this one refers to, as (section, name)."""
        return ()

    def settled(self, values: Values) -> Values:
        """The values in canonical form, as they are stored."""
        return values

    def pool_of(self, key: Key, raw: Mapping[str, Any], before: Values | None) -> str:
        """Slug of the pool in whose unit the entry's amounts are; "" if it has none."""
        return ""

    def merged(self, key: Key, wanted: Values) -> tuple[Values | None, Values]:
        """The entry's present values (None if it does not exist) and its wanted ones."""
        now = self.stored(key).get(key)
        return now, self.settled((now or self.new) | wanted)


class DepartmentShape(Entry):
    name = serializers.CharField(max_length=100)
    parent = serializers.CharField(max_length=40, allow_null=True)  # type: ignore[assignment]
    weight = serializers.IntegerField(min_value=1, max_value=1_000_000)
    paused = serializers.BooleanField()
    unrestricted = serializers.BooleanField(help_text="May lock memory.")
    policy = PolicyShape(allow_null=True)


class Departments(Section):
    shape = DepartmentShape
    new: ClassVar[Values] = {
        "name": "", "parent": None, "weight": 1, "paused": False, "unrestricted": False, "policy": None,
    }  # fmt: skip
    own = ("name", "parent", "weight", "unrestricted")

    def stored(self, key: Key | None = None) -> dict[Key, Values]:
        rows = Department.objects.select_related("parent")
        return {(row.slug,): self._values(row) for row in (rows.filter(slug=key[0]) if key else rows)}

    @staticmethod
    def _values(row: Department) -> Values:
        plain = {name: getattr(row, name) for name in ("name", "weight", "paused", "unrestricted")}
        return plain | {"parent": row.parent.slug if row.parent else None, "policy": plain_policy(row.policy)}

    def write(self, actor: Actor, key: Key, wanted: Values) -> None:
        now, values = self.merged(key, wanted)
        parent = _department(values["parent"], "parent") if values["parent"] is not None else None
        numbers = {name: values[name] for name in ("name", "weight")}
        if now is None:
            row = departments.create_department(actor=actor, slug=key[0], parent=parent, **numbers)
            now = self._values(row)
        else:
            row = _department(key[0])
        if any(now[name] != values[name] for name in self.own):
            row = departments.change_department(
                actor=actor, department=row, parent=parent, unrestricted=values["unrestricted"],
                expected_version=row.version, **numbers,
            )  # fmt: skip
        departments.set_paused(actor=actor, department=row, paused=values["paused"])
        _set_policy(actor, Scope(row, None), values)

    def remove(self, actor: Actor, key: Key) -> None:
        departments.remove_department(actor=actor, department=_department(key[0]))

    def place(self, key: Key) -> Path:
        return ("departments", *key)

    def needs(self, key: Key, values: Values) -> Iterable[tuple[str, str]]:
        return [("departments", values["parent"])] if values.get("parent") else []


class QuotaShape(Entry):
    guaranteed = Amount()
    borrow_limit = Amount(none="no limit")
    lend_limit = Amount(none="all")
    windows = LendingWindow(many=True)
    zone = serializers.CharField(max_length=50, allow_blank=True)
    policy = PolicyShape(allow_null=True)


class OfPool(Section):
    """A section of what departments have in pools; keys are (department, pool)."""

    def pool_of(self, key: Key, raw: Mapping[str, Any], before: Values | None) -> str:
        return key[1]

    def needs(self, key: Key, values: Values) -> Iterable[tuple[str, str]]:
        return [("departments", key[0]), ("pools", key[1])]


class Quotas(OfPool):
    shape = QuotaShape
    new: ClassVar[Values] = {
        "guaranteed": 0, "borrow_limit": None, "lend_limit": None, "windows": [], "zone": "", "policy": None,
    }  # fmt: skip

    def stored(self, key: Key | None = None) -> dict[Key, Values]:
        rows = Quota.objects.select_related("department", "pool")
        rows = rows.filter(department__slug=key[0], pool__slug=key[1]) if key else rows
        return {(row.department.slug, row.pool.slug): self._values(row) for row in rows}

    def _values(self, row: Quota) -> Values:
        numbers = {name: getattr(row, name) for name in ("guaranteed", "borrow_limit", "lend_limit", "zone")}
        each = [windows.from_json(data) for data in row.windows]
        return self.settled(numbers | {"windows": each, "policy": plain_policy(row.policy)})

    def settled(self, values: Values) -> Values:
        """Sorts the windows, and clears the time zone if there are none."""
        rows = sorted(values["windows"], key=lambda each: (each.days, each.start)) if "windows" in values else None
        more: Values = {} if rows is None else {"windows": rows} | ({} if rows else {"zone": ""})
        return values | more

    def write(self, actor: Actor, key: Key, wanted: Values) -> None:
        now, values = self.merged(key, wanted)
        department, pool = _department(key[0]), _pool(key[1])
        if now is None or any(now[name] != values[name] for name in quotas.QUOTA_FIELDS):
            row = Quota.objects.filter(department=department, pool=pool).first()
            lending = quotas.Lending(tuple(values["windows"]), values["zone"])
            quotas.change_quota(
                actor=actor, department=department, pool=pool, lending=lending,
                expected_version=row.version if row else None,
                **{name: values[name] for name in ("guaranteed", "borrow_limit", "lend_limit")},
            )  # fmt: skip
        _set_policy(actor, Scope(department, pool), values)

    def place(self, key: Key) -> Path:
        return ("departments", key[0], "quotas", key[1])


class CapShape(Entry):
    units = Amount(none="no limit")


class UserCaps(OfPool):
    """Caps on each user of a department. The file writes the only value directly at the pool: user_caps.a100: 4 cards."""

    shape = CapShape
    absent: ClassVar[Values | None] = {"units": None}
    new: ClassVar[Values] = {"units": None}

    def stored(self, key: Key | None = None) -> dict[Key, Values]:
        rows = UserCap.objects.select_related("department", "pool")
        rows = rows.filter(department__slug=key[0], pool__slug=key[1]) if key else rows
        return {(row.department.slug, row.pool.slug): {"units": row.units} for row in rows}

    def write(self, actor: Actor, key: Key, wanted: Values) -> None:
        quotas.set_user_cap(actor=actor, department=_department(key[0]), pool=_pool(key[1]), **wanted)

    def place(self, key: Key) -> Path:
        return ("departments", key[0], "user_caps", key[1])


class PriceShape(Strict):
    own = serializers.DecimalField(14, prices.PLACES, min_value=Decimal(0), max_value=prices.HIGHEST, allow_null=True)
    borrowed = serializers.DecimalField(
        14, prices.PLACES, min_value=Decimal(0), max_value=prices.HIGHEST, allow_null=True
    )

    def to_representation(self, price: Any) -> Any:
        return dict(price)


def _time(rule: str, **more: Any) -> Duration:
    return Duration(**policies.BOUNDS[rule]._asdict(), **more)


def _count(rule: str) -> serializers.IntegerField:
    least, most = policies.BOUNDS[rule]
    return serializers.IntegerField(min_value=least, max_value=most)


class PoolShape(Entry):
    nominal = Amount()
    notice = _time("notice")
    grace = _time("grace")
    min_runtime = _time("min_runtime")
    max_reclaims = _count("max_reclaims")
    beside_percent = _count("beside_percent")
    balance_half_life = _time("balance_half_life", allow_null=True)
    fair_sharing = serializers.BooleanField(allow_null=True)
    starvation_after = _time("starvation_after", allow_null=True)
    restart_cost = _time("restart_cost", allow_null=True)
    policy = PolicyShape(allow_null=True)
    price = PriceShape()


class Pools(Section):
    """Settings of existing pools. Product, unit and cards of a pool come from its nodes and cannot be set."""

    shape = PoolShape
    rules = tuple(field.name for field in dataclasses.fields(PoolRules))

    def stored(self, key: Key | None = None) -> dict[Key, Values]:
        rows = Pool.objects.select_related("group").prefetch_related("prices")
        return {(row.slug,): self._values(row) for row in (rows.filter(slug=key[0]) if key else rows)}

    @staticmethod
    def _values(row: Pool) -> Values:
        last = max(row.prices.all(), key=lambda each: each.number, default=None)
        price = {"own": last.own if last else None, "borrowed": last.borrowed if last else None}
        other = {"nominal": row.nominal, "policy": plain_policy(row.policy), "price": price}
        return dataclasses.asdict(PoolRules.of(row)) | other

    def settled(self, values: Values) -> Values:
        return values | ({"price": dict(values["price"])} if "price" in values else {})

    def write(self, actor: Actor, key: Key, wanted: Values) -> None:
        pool = _pool(key[0])
        now, values = self.merged(key, wanted)
        if now is not None and any(now[name] != values[name] for name in self.rules):
            rules = PoolRules(**{name: values[name] for name in self.rules})
            policies.set_pool_rules(actor=actor, pool=pool, rules=rules, expected_version=pool.version)
        if pool.nominal != values["nominal"]:
            capacity.set_nominal(actor=actor, pool=pool, nominal=values["nominal"])
        _set_policy(actor, Scope(None, pool), values)
        number = prices.price_of(pool).number
        prices.set_price(actor=actor, pool=pool, **values["price"], expected_version=number)

    def place(self, key: Key) -> Path:
        return ("pools", *key)

    def pool_of(self, key: Key, raw: Mapping[str, Any], before: Values | None) -> str:
        return key[0]


class ImageShape(Entry):
    title = serializers.CharField(max_length=100)
    kinds = serializers.ListField(child=serializers.ChoiceField(CHOICES), help_text="Empty: for all.")
    interpreter = serializers.CharField(max_length=300, allow_blank=True)
    min_driver = serializers.IntegerField(min_value=1, max_value=MOST, allow_null=True)
    active = serializers.BooleanField()


class Images(Section):
    shape = ImageShape
    names = ("title", "kinds", "interpreter", "min_driver", "active")
    new: ClassVar[Values] = {"title": "", "kinds": [], "interpreter": "", "min_driver": None, "active": True}

    def stored(self, key: Key | None = None) -> dict[Key, Values]:
        rows = Image.catalogue().filter(name=key[0]) if key else Image.catalogue()
        return {(row.name,): {name: getattr(row, name) for name in self.names} for row in rows}

    def write(self, actor: Actor, key: Key, wanted: Values) -> None:
        _now, values = self.merged(key, wanted)
        row = Image.catalogue().filter(name=key[0]).first() or Image.to_enter(key[0])
        for name, value in values.items():
            setattr(row, name, value)
        images_and_presets.save_image(actor=actor, image=row)

    def remove(self, actor: Actor, key: Key) -> None:
        """Only deactivates it, because workloads and presets refer to it."""
        self.write(actor, key, {"active": False})

    def place(self, key: Key) -> Path:
        return ("images", *key)


class PresetShape(Entry):
    title = serializers.CharField(max_length=100)
    description = serializers.CharField(max_length=200, allow_blank=True)
    kind = serializers.ChoiceField(CHOICES)
    pool = serializers.CharField(max_length=60)
    image = serializers.CharField(max_length=200)
    pods = serializers.IntegerField(min_value=1, max_value=MOST)
    amount = Amount(least=1, source="units_per_pod", help_text="Of each pod.")
    cores_per_pod = serializers.IntegerField(
        min_value=1, max_value=MOST, allow_null=True, help_text="Percent of a card's compute."
    )
    profile = serializers.CharField(max_length=40, allow_blank=True)
    command = Command()
    cpu = CoreCount(source="cpu_milli")
    memory = Memory(source="memory_mib")
    max_runtime = Duration(least=1, allow_null=True)
    setup = SetupOptions()
    order = serializers.IntegerField(min_value=0, max_value=32_767)
    active = serializers.BooleanField()


class Presets(Section):
    shape = PresetShape
    names = tuple(name for name in images_and_presets.PRESET_FIELDS if name not in ("slug", "pool_id", "image_id"))

    @cached_property
    def defaults(self) -> Values:
        return {name: getattr(Preset(), name) for name in self.names} | {"kind": "", "pool": "", "image": ""}

    def stored(self, key: Key | None = None) -> dict[Key, Values]:
        rows = Preset.objects.select_related("pool", "image")
        return {(row.slug,): self._values(row) for row in (rows.filter(slug=key[0]) if key else rows)}

    def _values(self, row: Preset) -> Values:
        return {name: getattr(row, name) for name in self.names} | {"pool": row.pool.slug, "image": row.image.name}

    def write(self, actor: Actor, key: Key, wanted: Values) -> None:
        now = self.stored(key).get(key)
        values = (now or self.defaults) | wanted
        row = Preset.objects.filter(slug=key[0]).first() or Preset(slug=key[0])
        row.pool = _pool(values.pop("pool"), "pool")
        name = values.pop("image")
        image = Image.catalogue().filter(name=name).first()
        if image is None:
            raise absent(name, Image.catalogue().values_list("name", flat=True), "image")
        row.image = image
        for field, value in values.items():
            setattr(row, field, value)
        images_and_presets.save_preset(actor=actor, preset=row)

    def remove(self, actor: Actor, key: Key) -> None:
        """Only deactivates it, as with images."""
        self.write(actor, key, {"active": False})

    def place(self, key: Key) -> Path:
        return ("presets", *key)

    def needs(self, key: Key, values: Values) -> Iterable[tuple[str, str]]:
        return [(f"{each}s", values[each]) for each in ("pool", "image") if each in values]

    def pool_of(self, key: Key, raw: Mapping[str, Any], before: Values | None) -> str:
        pool = raw.get("pool") or (before or {}).get("pool") or ""
        return pool if isinstance(pool, str) else ""


class RuleShape(Entry):
    provider = serializers.CharField(max_length=30)
    group = serializers.CharField(max_length=255, help_text="Its exact name, or with * for any characters.")
    role = serializers.ChoiceField(ROLES)
    department = serializers.CharField(max_length=40, allow_null=True, help_text="Not for operators.")

    def validate(self, attrs: Any) -> Any:
        for name in ("provider", "group", "role"):
            if name not in attrs:
                raise serializers.ValidationError(
                    {name: serializers.Field.default_error_messages["required"]}, "required"
                )
        attrs.setdefault("department", None)
        if (attrs["role"] == "operator") != (attrs["department"] is None):
            raise serializers.ValidationError({"department": _("A role needs a department; operators have none.")})
        return attrs


class GroupRules(Section):
    """A list in the file; keys are (provider, group, department), the department "" for rules about operators."""

    shape = RuleShape

    def stored(self, key: Key | None = None) -> dict[Key, Values]:
        rows = GroupRule.objects.select_related("department")
        each = [(self._key(row), row) for row in (rows.filter(provider=key[0], pattern=key[1]) if key else rows)]
        return {own: self._values(own, row) for own, row in each if key in (None, own)}

    @staticmethod
    def _key(row: GroupRule) -> Key:
        return row.provider, row.pattern, row.department.slug if row.department else ""

    @staticmethod
    def _values(key: Key, row: GroupRule) -> Values:
        return dict(zip(("provider", "group", "department"), (*key[:2], key[2] or None), strict=True)) | {
            "role": row.role if key[2] else "operator"
        }

    @staticmethod
    def key_of(values: Values) -> Key:
        return values["provider"], values["group"].strip(), values["department"] or ""

    def _rows(self, key: Key) -> Iterable[GroupRule]:
        return [row for row in GroupRule.objects.select_related("department") if self._key(row) == key]

    def write(self, actor: Actor, key: Key, wanted: Values) -> None:
        department = _department(key[2], "department") if key[2] else None
        rule = group_rules.checked(provider=key[0], pattern=key[1], department=department, role=wanted["role"])
        self.remove(actor, key)
        group_rules.store_rule(actor=actor, rule=rule)

    def remove(self, actor: Actor, key: Key) -> None:
        for row in self._rows(key):
            group_rules.drop_rule(actor=actor, rule=row)

    def place(self, key: Key) -> Path:
        return ("group_rules", " ".join(filter(None, key)))

    def needs(self, key: Key, values: Values) -> Iterable[tuple[str, str]]:
        return [("departments", key[2])] if key[2] else []


SECTIONS: dict[str, Section] = {
    "departments": Departments(),
    "pools": Pools(),
    "quotas": Quotas(),
    "user_caps": UserCaps(),
    "images": Images(),
    "presets": Presets(),
    "group_rules": GroupRules(),
}
"""In the order in which they are written; entries that are refused are tried again after the others."""
