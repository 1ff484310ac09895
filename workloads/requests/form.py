"""The request form. Django checks the fields' formats, workloads.requests.validation their meaning; both assign each error
to a field."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from portal.access import Actor, Right
from portal.errors import Problem
from portal.infra.crypt import Undecryptable
from portal.models import Department
from portal.names import LineInput, NameInput
from quotas.amounts import first_amount, written
from quotas.forms.durations import DurationField
from quotas.forms.quotas import PoolField, PoolSelect
from quotas.models import Pool
from workloads.clusters.run_spec import hidden_of
from workloads.models import CHOICES, Image, Kind, Preset, RequestTemplate, Workload
from workloads.requests.amount_fields import AmountFields
from workloads.requests.request import WorkloadRequest
from workloads.requests.request_templates import secret_names_of
from workloads.requests.setup_fields import SetupFields, first_setup
from workloads.requests.text_fields import CommandField, MemoryField, VariablesField
from workloads.requests.validation import InvalidRequest, check
from workloads.runtime.setups import Setup

HOUR = 3600
SMALL = {"rows": 2, "spellcheck": "false", "class": "font-monospace"}


class ImageSelect(forms.Select):
    """Each option carries its image's kinds, so that the form offers only images of the chosen kind."""

    def create_option(self, name: str, value: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        option = super().create_option(name, value, *args, **kwargs)
        option["attrs"]["data-kinds"] = " ".join(value.instance.kinds or Kind.values)
        return option


FIELDS = {"cpu_milli": "cpu"}  # field of the request → its name in the form, where they differ


class WorkloadForm(AmountFields, SetupFields):
    kind = forms.ChoiceField(label=_("Kind"), choices=CHOICES, widget=forms.RadioSelect)
    name = NameInput(label=_("Name"), max_length=100)
    pool = PoolField(
        Pool.objects.none(), label=_("Pool"), to_field_name="slug", empty_label=None,
        widget=PoolSelect({"data-resets": "units_per_pod cores_per_pod"}),
    )  # fmt: skip
    image = forms.ModelChoiceField(
        Image.objects.none(), label=_("Image"), to_field_name="name", empty_label=None, widget=ImageSelect
    )
    command = CommandField(
        label=_("Command"),
        required=False,
        widget=forms.Textarea(attrs=SMALL | {"rows": 3}),
        help_text=_("As in a terminal. Several lines run as one shell script. Notebooks need no command."),
    )
    max_runtime = DurationField(
        label=_("Max runtime"),
        required=False,
        help_text=_("For example 8h, 90 min, 1d 12h. A shorter limit may start sooner; you can extend it later."),
    )
    own_only = forms.BooleanField(label=_("Own quota only; cannot be recalled by other departments"), required=False)
    must_stay = forms.BooleanField(
        label=_("Non-preemptible"),
        required=False,
        help_text=_("Runs within guaranteed quota only, and no other workload preempts it."),
    )
    cpu = forms.DecimalField(label=_("CPU cores"), min_value=Decimal("0.1"), max_value=1024, decimal_places=3)
    memory_mib = MemoryField(label=_("Memory"), help_text=_("Host memory, not GPU memory: 8 GiB"))
    env = VariablesField(
        label=_("Variables"),
        required=False,
        widget=forms.Textarea(attrs=SMALL),
        help_text=_("NAME=value, one per line. For several lines: NAME<<END, the lines, END"),
    )
    secret_env = VariablesField(
        label=_("Secret variables"),
        required=False,
        widget=forms.Textarea(attrs=SMALL | {"autocomplete": "off"}),
        help_text=_("Stored encrypted, never shown again"),
    )
    max_wait = DurationField(
        label=_("Maximum waiting time"), required=False, help_text=_("Leave empty to wait without limit")
    )
    priority = forms.IntegerField(label=_("Priority"), required=False, min_value=-1000, max_value=1000)
    preset = forms.ModelChoiceField(
        Preset.objects.filter(active=True), required=False, to_field_name="slug", widget=forms.HiddenInput
    )
    rerun_of = LineInput(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, actor: Actor, department: Department, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.actor, self.department = actor, department
        pools = pools_of(department)
        cast("forms.ModelChoiceField[Pool]", self.fields["pool"]).queryset = pools
        cast("forms.ModelChoiceField[Image]", self.fields["image"]).queryset = Image.objects.filter(active=True)
        self.offer(pools)
        self.offer_extras(pools)
        if not actor.is_operator:
            self.fields["priority"].help_text = _("At most 0: higher priorities are reserved for operators")

    def clean(self) -> dict[str, Any]:
        data = self.cleaned_data
        self.read_amount(data)
        return data

    def clean_secret_env(self) -> dict[str, str]:
        given: dict[str, str] = self.cleaned_data["secret_env"]
        if self.submitting and (empty := [name for name, value in given.items() if not value]):
            text = _("%(names)s: the value is missing. Fill it in, or delete the line.")
            raise ValidationError(text, code="empty", params={"names": ", ".join(empty)})
        return given

    def check_all(self) -> None:
        """Validates the parsed fields even if others could not be parsed, so that all errors are shown at once.

        The others get values that break no rule, and no further error.
        """
        cleaned = self.cleaned_data
        if not all(cleaned.get(name) for name in ("kind", "pool", "image")) or not self.errors:
            return
        plenty = {"memory_mib": 2**30, "cpu": Decimal(1), "units_per_pod": 1, "name": "x", "command": ("x",), "pods": 2,
                  "env": {}, "secret_env": {}, "port": 8000}  # fmt: skip
        self.cleaned_data = {**dict.fromkeys(self.fields), **plenty, **cleaned}
        highest = 2**31 - 1 if self.actor.may(Right.OPERATE, self.department) else 0
        try:
            check(self.asked(), self.department, highest_priority=highest)
        except InvalidRequest as problem:
            known = [each for each in problem.errors if FIELDS.get(each.field, each.field) not in self.errors]
            if known:
                self.blame(InvalidRequest(known))
        finally:
            self.cleaned_data = {name: value for name, value in cleaned.items() if name not in self.errors}

    def asked(self) -> WorkloadRequest:
        """The request of a valid form."""
        data = self.cleaned_data
        return WorkloadRequest(
            kind=data["kind"],
            name=data["name"],
            pool=data["pool"],
            image=data["image"],
            command=data["command"],
            env=data["env"],
            secret_env=data["secret_env"],
            pods=self.pods_of(data["kind"]),
            setup=self.setup_of(data["kind"]),
            units_per_pod=data["units_per_pod"] or 0,
            cores_per_pod=data.get("cores_per_pod"),
            profile=data.get("profile", ""),
            cpu_milli=int(data["cpu"] * 1000),
            memory_mib=data["memory_mib"],
            priority=data["priority"] or 0,
            max_runtime=data["max_runtime"],
            max_wait=data["max_wait"],
            own_only=data["own_only"],
            preemptible=not data["must_stay"],
            preset=data["preset"],
            rerun_of=self.origin(),
        )

    def origin(self) -> Workload | None:
        """The workload that this one repeats, if it belongs to the department."""
        return Workload.objects.filter(department=self.department, public_id=self.cleaned_data["rerun_of"]).first()

    def blame(self, problem: Problem) -> None:
        """Adds each error to its field, or to the form, in the reader's language."""
        for each in problem.errors if isinstance(problem, InvalidRequest) else (problem,):
            name = FIELDS.get(each.field, each.field)
            self.add_error(name if name in self.fields else None, each.detail)


def pools_of(department: Department) -> Any:
    """The pools that the department may submit to: it, or a department above it, has a quota there."""
    ids = [department.pk]
    while department.parent is not None:
        department = department.parent
        ids.append(department.pk)
    return Pool.objects.filter(quotas__department__in=ids).distinct().select_related("group__cluster")


def amount_text(source: Workload | Preset) -> str:
    """The requested amount as text that the form can parse."""
    return written(getattr(source, "asked_per_pod", None) or source.units_per_pod, source.pool)


def secret_names(workload: Workload) -> list[str]:
    """Names of secret variables whose values have to be entered again; none if they cannot be decrypted any more."""
    try:
        return list(hidden_of(workload))
    except Undecryptable:
        return []


def first_machine(pool: Pool | None) -> dict[str, Any]:
    """Initial CPU and memory: 4 cores and 16 GiB, or what comes with the initial amount if that is less."""
    cpu, memory = 4000, 16 * 1024
    if pool is not None:
        units = pool.units_per_card if pool.unit == "MiB" else 1
        with_cpu, with_memory = (share * units // pool.units_per_card for share in pool.with_a_card)
        cpu = max(100, min(cpu, with_cpu // 100 * 100)) if with_cpu else cpu
        memory = max(256, min(memory, with_memory // 256 * 256)) if with_memory else memory
    return {"cpu": Decimal(cpu) / 1000, "memory_mib": memory}


def template_values(template: RequestTemplate, pools: Any) -> dict[str, Any]:
    """A template's initial values; without a pool, image or preset that no longer exists."""
    body = dict(template.body)
    env = body.get("env", {})
    values: dict[str, Any] = {
        "kind": body["kind"],
        "name": body["name"],
        "command": body.get("command", []),
        "env": {name: value for name, value in env.items() if isinstance(value, str)},
        "secret_env": dict.fromkeys(secret_names_of(template), ""),
        "cpu": Decimal(str(body["cpu"])),
        "memory_mib": body["memory_mib"],
        "priority": body.get("priority", 0),
        "own_only": body.get("own_only", False),
        "must_stay": not body.get("preemptible", True),
        "max_runtime": body.get("max_runtime"),
        "max_wait": body.get("max_wait"),
    }
    pool = pools.filter(slug=body["pool"]).first()
    if pool is not None:
        amount = written(body["units_per_pod"], pool) if "units_per_pod" in body else ""
        shape = {
            "units_per_pod": amount,
            "profile": body.get("profile", ""),
            "cores_per_pod": body.get("cores_per_pod"),
        }
        values |= {"pool": pool.slug, **shape}
    if Image.objects.filter(active=True, name=body["image"]).exists():
        values["image"] = body["image"]
    if Preset.objects.filter(active=True, slug=body.get("preset", "")).exists():
        values["preset"] = body["preset"]
    return values | first_setup(Setup.from_json(body.get("setup", {})), body.get("pods", 1))


def first_values(
    preset: Preset | None,
    origin: Workload | None,
    pools: Any,
    query: dict[str, str],
    template: RequestTemplate | None = None,
) -> dict[str, Any]:
    """Initial values: from the workload to repeat, else the template, else the preset, else defaults. Values in the address
    take precedence."""
    values: dict[str, Any] = {
        "kind": Kind.JOB.value,
        "units_per_pod": 1,
        "max_runtime": 8 * HOUR,
        "priority": 0,
    }
    first = pools.filter(slug=query.get("pool", "")).first() or pools.first()
    if first is not None:
        values |= {"pool": first.slug, "units_per_pod": first_amount(first)}
    values |= first_machine(first)
    source = origin or preset
    if source is not None:
        values |= {
            "kind": source.kind,
            "pool": source.pool.slug,
            "units_per_pod": amount_text(source),
            "cores_per_pod": source.cores_per_pod,
            "profile": source.profile,
            "image": source.image.name,
            "command": source.command,
            "cpu": Decimal(source.cpu_milli) / 1000,
            "memory_mib": source.memory_mib,
            "max_runtime": source.max_runtime,
        }
    values |= first_setup(source.settings if source else Setup(), source.pods if source else 1)
    if preset is not None:
        values |= {"preset": preset.slug, "name": preset.slug}
    if origin is not None:
        values |= {
            "name": origin.name,
            "env": origin.env,
            "secret_env": dict.fromkeys(secret_names(origin), ""),
            "priority": min(origin.priority, 0),
            "own_only": origin.own_only,
            "must_stay": not origin.preemptible,
            "max_wait": origin.max_wait,
            "preset": origin.preset.slug if origin.preset else "",
            "rerun_of": origin.public_id,
        }
    if template is not None and origin is None:
        values |= template_values(template, pools)
    values |= query
    fitting = (image for image in Image.objects.filter(active=True) if image.serves(values["kind"]))
    return {"image": next(fitting, None)} | values
