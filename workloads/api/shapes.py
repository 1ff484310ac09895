"""Serializers of workloads, and the parser of requests."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from portal.access import Actor
from portal.api.base import FreeText, Strict, serialize
from portal.errors import N_, Invalid
from portal.infra.crypt import Undecryptable
from portal.models import ApiToken
from portal.prepared import Prepared
from portal.text.words import listed
from quotas.amounts import LONGEST as LONGEST_AMOUNT
from quotas.api.reasons import REASONS, Reader, SideOut
from quotas.models import Claim, ClaimState, Pool
from quotas.wording import named_claims
from workloads.api.fields import VARIABLES, Cores, Variables
from workloads.api.setups import RankOut, SetupIn, SetupOut
from workloads.api.verdicts import EstimateOut, VerdictOut, verdict_now
from workloads.clusters.run_spec import hidden_of
from workloads.idle.spells import may_keep
from workloads.lifecycle import State
from workloads.models import ASKED_HERE, Attempt, ExternalWork, IdleSpell, Image, Kind, Preset, Workload
from workloads.requests.gpu_amounts import read_unrounded
from workloads.requests.request import LONGEST, WorkloadRequest
from workloads.runtime.setups import Setup
from workloads.status.attempts import estimate_of, idle_spell, known_attempts
from workloads.status.ranks import ranks_of
from workloads.status.submitted_token import token_shown_to

MOST = 2**31 - 1


class AttemptOut(serializers.ModelSerializer[Attempt]):
    ranks = serializers.SerializerMethodField(help_text="Of a distributed job or service; else empty.")
    placement = serializers.ListField(
        child=serializers.DictField(), allow_null=True, read_only=True, help_text="Each pod's node and cards."
    )

    @extend_schema_field(RankOut(many=True))
    def get_ranks(self, attempt: Attempt) -> list[dict[str, Any]]:
        return list(RankOut(ranks_of(attempt), many=True).data)

    class Meta:
        model = Attempt
        fields = [
            "number", "node", "cards", "placement", "notice", "grace", "queued_at", "admitted_at", "started_at",
            "recalled_at", "reclaim_at", "ready_at", "stopping_at", "finished_at", "stop_cause", "outcome", "exit_code",
            "reason", "message", "checkpointed_at", "ranks",
        ]  # fmt: skip


class IdleOut(serializers.Serializer[Any]):
    since = serializers.DateTimeField()
    warned_at = serializers.DateTimeField()
    stops_at = serializers.DateTimeField(allow_null=True, help_text="null: it is only warned.")
    kept_at = serializers.DateTimeField(allow_null=True)
    kept_by = serializers.CharField(source="kept_by.username", default=None, allow_null=True)
    may_keep = serializers.SerializerMethodField(help_text="keep/ would put the stop off.")

    def get_may_keep(self, spell: IdleSpell) -> bool:
        return may_keep(spell)


class SubmittedOut(serializers.Serializer[ExternalWork]):
    """Who submitted the workload to the cluster, with which program, and its object there."""

    by = serializers.CharField(source="submitted_by", help_text="As the cluster names them.")
    using = serializers.CharField(source="submitted_with", help_text="kubectl, argo, …")
    kind = serializers.CharField()
    namespace = serializers.CharField()
    name = serializers.CharField()
    pod = serializers.CharField(help_text="Where each pod of the object is admitted by itself.")


class SubmittedTokenOut(serializers.ModelSerializer[ApiToken]):
    id = serializers.CharField(source="prefix")
    holder = serializers.CharField(source="holder.username")

    class Meta:
        model = ApiToken
        fields = ["id", "name", "holder"]


class WorkloadRow(serializers.ModelSerializer[Workload]):
    """A workload in a list, with its newest attempt's claim. `context["reader"]` (reader_for) resolves the claims in reasons."""

    id = serializers.CharField(source="public_id")
    department = serializers.CharField(source="department.slug")
    author = serializers.CharField(source="author.username", default=None, allow_null=True)
    preset = serializers.CharField(source="preset.slug", default=None, allow_null=True)
    image = serializers.CharField(source="image.name")
    pool = serializers.CharField(source="pool.slug")
    unit = serializers.CharField(source="pool.unit")
    units = serializers.IntegerField()
    cpu = Cores(source="cpu_milli")
    setup = SetupOut()
    rerun_of = serializers.CharField(source="rerun_of.public_id", default=None, allow_null=True)
    final = serializers.BooleanField(source="is_final")
    own = serializers.SerializerMethodField(help_text="Of the units it holds now.")
    borrowed = serializers.SerializerMethodField(help_text="Of the units it holds now; recallable.")
    position = serializers.SerializerMethodField(help_text="In the queue; null when it does not wait.")
    ahead = serializers.SerializerMethodField(help_text="Who is before it, the first ten.")
    promised_at = serializers.SerializerMethodField(help_text="It starts by then at the latest.")
    estimate = serializers.SerializerMethodField(help_text="When it will probably start; null when it does not wait.")
    reasons = serializers.SerializerMethodField()
    reclaim_at = serializers.SerializerMethodField(help_text="During notice: when SIGTERM comes.")
    submitted = serializers.SerializerMethodField(help_text="Where it was not the portal; null: it was.")
    token = serializers.SerializerMethodField(
        help_text="With which it was submitted; null: with none, or you may not know it."
    )
    idle = serializers.SerializerMethodField(help_text="null: it was not warned for being idle.")

    class Meta:
        model = Workload
        fields = [
            "id", "department", "author", "kind", "name", "state", "final", "version", "state_since", "preset", "image",
            "pool", "unit", "pods", "units_per_pod", "asked_per_pod", "cores_per_pod", "units", "profile",
            "cpu", "memory_mib", "priority",
            "preemptible", "own_only", "max_runtime", "max_wait", "shared", "rerun_of", "own", "borrowed", "position",
            "ahead", "promised_at", "estimate", "reasons", "reclaim_at", "submitted", "token", "idle", "exit_code", "reason",
            "message", "reclaims", "restarts", "setup",
            "submitted_at", "finished_at",
        ]  # fmt: skip

    @property
    def reader(self) -> Reader:
        reader: Reader = self.context["reader"]
        return reader

    def pending(self, workload: Workload) -> Claim | None:
        claim = claim_of(workload)
        return claim if claim is not None and claim.state == ClaimState.PENDING else None

    def holding(self, workload: Workload) -> Claim | None:
        claim = claim_of(workload)
        return claim if claim is not None and claim.state in {ClaimState.HOLDING, ClaimState.LEAVING} else None

    def get_own(self, workload: Workload) -> int:
        claim = self.holding(workload)
        return claim.own if claim else 0

    def get_borrowed(self, workload: Workload) -> int:
        claim = self.holding(workload)
        return claim.borrowed if claim else 0

    @extend_schema_field({"type": ["integer", "null"]})
    def get_position(self, workload: Workload) -> int | None:
        claim = self.pending(workload)
        return claim.position if claim else None

    @extend_schema_field(SideOut(many=True))
    def get_ahead(self, workload: Workload) -> list[dict[str, Any]]:
        claim = self.pending(workload)
        return self.reader.sides(claim.ahead) if claim else []

    @extend_schema_field({"type": ["string", "null"], "format": "date-time"})
    def get_promised_at(self, workload: Workload) -> Any:
        claim = self.pending(workload)
        return moment(claim.promised_at) if claim else None

    @extend_schema_field(EstimateOut(allow_null=True))
    def get_estimate(self, workload: Workload) -> dict[str, Any] | None:
        estimate = estimate_of(workload)
        return None if estimate is None else dict(EstimateOut(estimate).data)

    @extend_schema_field(REASONS)
    def get_reasons(self, workload: Workload) -> list[dict[str, Any]]:
        claim = self.pending(workload)
        return self.reader.reasons(claim.reasons, workload.pool) if claim else []

    @extend_schema_field({"type": ["string", "null"], "format": "date-time"})
    def get_reclaim_at(self, workload: Workload) -> Any:
        attempts = known_attempts(workload)
        return moment(attempts[-1].reclaim_at) if attempts and workload.state == State.RECALLED else None

    @extend_schema_field(SubmittedOut(allow_null=True))
    def get_submitted(self, workload: Workload) -> dict[str, Any] | None:
        return dict(SubmittedOut(workload.external).data) if workload.kind == Kind.EXTERNAL else None

    @extend_schema_field(SubmittedTokenOut(allow_null=True))
    def get_token(self, workload: Workload) -> dict[str, Any] | None:
        token = token_shown_to(self.context["actor"], workload)
        return None if token is None else dict(SubmittedTokenOut(token).data)

    @extend_schema_field(IdleOut(allow_null=True))
    def get_idle(self, workload: Workload) -> dict[str, Any] | None:
        spell = idle_spell(workload)
        return None if spell is None else dict(IdleOut(spell).data)


class WorkloadOut(WorkloadRow):
    """A single workload: also with its command and variables, the sentences of its page and all its attempts."""

    command = serializers.ListField(child=serializers.CharField())
    env = serializers.SerializerMethodField()
    verdict = serializers.SerializerMethodField()
    attempts = serializers.SerializerMethodField()

    class Meta(WorkloadRow.Meta):
        fields = [*WorkloadRow.Meta.fields, "command", "env", "verdict", "attempts"]

    @extend_schema_field(VARIABLES)
    def get_env(self, workload: Workload) -> dict[str, Any]:
        return {**workload.env, **{name: {"secret": True} for name in secret_names(workload)}}

    @extend_schema_field(VerdictOut)
    def get_verdict(self, workload: Workload) -> dict[str, Any]:
        attempts = known_attempts(workload)
        return verdict_now(self.context["actor"], workload, attempts[-1] if attempts else None)

    @extend_schema_field(AttemptOut(many=True))
    def get_attempts(self, workload: Workload) -> list[dict[str, Any]]:
        return [serialize(AttemptOut, attempt, {}) for attempt in known_attempts(workload)]


def moment(value: Any) -> Any:
    return serializers.DateTimeField().to_representation(value) if value else None


def claim_of(workload: Workload) -> Claim | None:
    attempts = known_attempts(workload)
    return attempts[-1].claim if attempts else None


def secret_names(workload: Workload) -> list[str]:
    try:
        return sorted(hidden_of(workload))
    except Undecryptable:
        return []


def reader_for(actor: Actor, rows: list[Workload]) -> Reader:
    """A Reader of all claims that the rows' reasons and queues name, loaded in one query."""
    named: set[str] = set()
    for row in rows:
        claim = claim_of(row)
        if claim is not None and claim.state == ClaimState.PENDING:
            named |= named_claims(claim.reasons) | set(claim.ahead)
    return Reader(actor, named)


def workload_json(actor: Actor, workload: Workload) -> dict[str, Any]:
    context = {"actor": actor, "reader": reader_for(actor, [workload])}
    return serialize(WorkloadOut, workload, context)


class WorkloadIn(Strict):
    """A request. Fields that the preset sets may be left out."""

    preset = serializers.CharField(required=False)
    kind = serializers.ChoiceField(ASKED_HERE, required=False)
    name = serializers.CharField(max_length=100, required=False)
    image = serializers.CharField(max_length=200, required=False)
    command = serializers.ListField(child=FreeText(allow_blank=True, trim_whitespace=False), required=False)
    env = Variables(required=False)
    pool = serializers.CharField(required=False)
    pods = serializers.IntegerField(min_value=1, max_value=MOST, required=False)
    amount = serializers.CharField(
        max_length=LONGEST_AMOUNT,
        required=False,
        help_text="Instead of units_per_pod and profile: “7.5 GiB”, “half”, “3g.40gb”.",
    )
    units_per_pod = serializers.IntegerField(
        min_value=1,
        max_value=MOST,
        required=False,
        help_text="In the pool's unit: MiB where it counts memory (6 GiB is 6144). In words: amount.",
    )
    cores_per_pod = serializers.IntegerField(
        min_value=1,
        max_value=100,
        required=False,
        allow_null=True,
        help_text="Percent of a card's compute, where limited.",
    )
    profile = serializers.CharField(max_length=40, required=False, allow_blank=True, help_text="MIG: such as 3g.40gb.")
    cpu = Cores(required=False)
    memory_mib = serializers.IntegerField(min_value=64, max_value=MOST, required=False)
    priority = serializers.IntegerField(min_value=-MOST, max_value=MOST, required=False)
    max_runtime = serializers.IntegerField(
        min_value=1, max_value=LONGEST, required=False, allow_null=True, help_text="s"
    )
    max_wait = serializers.IntegerField(min_value=1, max_value=LONGEST, required=False, allow_null=True, help_text="s")
    own_only = serializers.BooleanField(required=False, help_text="Never borrow, never be recalled by others.")
    preemptible = serializers.BooleanField(
        required=False, help_text="false: inside the guarantee only, and stopped by nobody's work."
    )
    setup = SetupIn(required=False)


def request_from(values: dict[str, Any]) -> WorkloadRequest:
    """The request of a validated body. Raises Invalid for an unknown preset, pool or image."""
    fields: dict[str, Any] = {}
    if slug := values.pop("preset", None):
        preset = Preset.objects.select_related("pool__group", "image").filter(slug=slug, active=True).first()
        if preset is None:
            known = Preset.objects.filter(active=True).values_list("slug", flat=True)
            raise Invalid(
                N_("There is no preset %(preset)s. %(near)s"), field="preset", preset=slug, near=near(slug, known)
            )
        fields = {
            "preset": preset, "kind": preset.kind, "name": preset.slug, "pool": preset.pool, "image": preset.image,
            "units_per_pod": preset.units_per_pod, "cores_per_pod": preset.cores_per_pod, "profile": preset.profile,
            "command": tuple(preset.command), "cpu_milli": preset.cpu_milli, "memory_mib": preset.memory_mib,
            "max_runtime": preset.max_runtime, "pods": preset.pods, "setup": preset.settings,
        }  # fmt: skip
    if "cpu" in values:
        fields["cpu_milli"] = values.pop("cpu")
    if "pool" in values:
        fields["pool"] = pool_named(values.pop("pool"))
    if "image" in values:
        fields["image"] = image_named(values.pop("image"))
    if "command" in values:
        fields["command"] = tuple(values.pop("command"))
    if "env" in values:
        fields["env"], fields["secret_env"] = values.pop("env")
    amount = values.pop("amount", None)
    if "setup" in values:
        fields["setup"] = replace(fields.get("setup", Setup()), **values.pop("setup"))
    fields |= values
    fields.setdefault("kind", Kind.JOB.value)
    missing = [name for name in ("name", "pool", "image") if name not in fields]
    if missing:
        raise serializers.ValidationError(dict.fromkeys(missing, serializers.Field.default_error_messages["required"]))
    if amount is not None:
        fields |= amount_of(amount, fields["pool"], values)
    return WorkloadRequest(**fields)


def amount_of(text: str, pool: Pool, values: dict[str, Any]) -> dict[str, Any]:
    """The fields units_per_pod and profile for an amount as text. Raises Invalid if it cannot be parsed, would be rounded, or
    if these fields are given too."""
    if "units_per_pod" in values or values.get("profile"):
        raise Invalid(N_("Give either amount, or units_per_pod or profile."), field="amount")
    try:
        asked = read_unrounded(text, pool)
    except Invalid as error:
        error.field = "amount"
        raise
    return {"units_per_pod": asked.units, "profile": asked.profile}


POOLS = Prepared(lambda slug: Pool.objects.select_related("group__cluster").filter(slug=slug))
IMAGES = Prepared(lambda name: Image.objects.filter(name=name, active=True))


ALL_NAMED = 20
"""The most names that an error lists completely."""


def near(name: str, known: Iterable[str]) -> str:
    """A sentence with similar names, else with all or, if they are many, the first ones; "" if there are none."""
    names = sorted(known)
    similar = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
    if similar and len(similar) < len(names):
        return _("Similar: %(names)s.") % {"names": listed(similar)}
    if len(names) > ALL_NAMED:
        return _("There are %(count)s, among them: %(names)s.") % {"count": len(names), "names": listed(names[:5])}
    return _("There are: %(names)s.") % {"names": listed(similar or names)} if names else ""


def pool_named(slug: str) -> Pool:
    pool = POOLS.first(slug)
    if pool is None:
        known = near(slug, Pool.objects.values_list("slug", flat=True))
        raise Invalid(N_("There is no pool %(pool)s. %(near)s"), field="pool", pool=slug, near=known)
    return pool


def image_named(name: str) -> Image:
    image = IMAGES.first(name)
    if image is None:
        known = list(Image.objects.filter(active=True).values_list("name", flat=True)[:50])
        text = N_("There is no image %(image)s. %(near)s")
        raise Invalid(text, field="image", image=name, images=known, near=near(name, known))
    return image
