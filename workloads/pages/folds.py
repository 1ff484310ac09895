"""The folded parts of the request form, and a line for each that summarises the values inside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from portal.text.words import cores, duration, memory
from workloads.models import Kind
from workloads.requests.form import WorkloadForm
from workloads.requests.kinds import OWN_FIELDS, SHARED_VOLUMES

FOLDS = {  # folded part → the fields inside
    "recall": ("own_only", "must_stay", "priority", "max_wait"),
    "machine": ("cpu", "memory_mib", "shm_mib", "rdma", "same_domain", "max_restarts", "ipc_lock"),
    "variables": ("env", "secret_env"),
    "storage": ("department_volume", "user_volume"),
}


def settings_inside(form: WorkloadForm) -> dict[str, str]:
    """Folded part → a line with the values set inside. Invalid values of a submitted form are left out."""
    form.is_valid()  # cleaned_data has the valid values only
    values = form.cleaned_data if form.is_bound else form.initial
    return {
        "recall": _recall(values),
        "machine": _machine(values),
        "variables": _variables(values),
        "storage": _storage(form, values),
    }


def to_open(form: WorkloadForm) -> list[str]:
    """The folded parts that have an error or a value that must be entered again."""
    parts = [name for name, fields in FOLDS.items() if any(field in form.errors for field in fields)]
    return [*parts, "variables"] if form.initial.get("secret_env") else parts


def _recall(values: Mapping[str, Any]) -> str:
    parts = [_("non-preemptible") if values.get("must_stay") else ""]
    if not values.get("must_stay"):
        parts.append(_("own quota only") if values.get("own_only") else _("may borrow, and be recalled then"))
    if wait := values.get("max_wait"):
        parts.append(_("waits at most %(time)s") % {"time": duration(wait)})
    if priority := values.get("priority"):
        parts.append(_("priority %(priority)s") % {"priority": priority})
    return " · ".join(filter(None, parts))


def _machine(values: Mapping[str, Any]) -> str:
    cpu, mib = values.get("cpu"), values.get("memory_mib")
    parts = [_("%(cpu)s CPU") % {"cpu": cores(int(cpu * 1000))} if cpu else "", memory(mib) if mib else ""]
    distributed = values.get("kind") == Kind.DISTRIBUTED
    if shm := values.get("shm_mib"):
        parts.append(_("%(memory)s shared memory") % {"memory": memory(shm)})
    if (restarts := values.get("max_restarts")) and values.get("kind") in OWN_FIELDS["max_restarts"]:
        parts.append(ngettext("%(n)s restart", "%(n)s restarts", restarts) % {"n": restarts})
    if distributed and (rdma := values.get("rdma")):
        parts.append(f"RDMA × {rdma}")
    if distributed and values.get("same_domain"):
        parts.append(_("one NVLink domain or rack"))
    return " · ".join(filter(None, parts))


def _variables(values: Mapping[str, Any]) -> str:
    plain, secret = len(values.get("env") or ()), len(values.get("secret_env") or ())
    parts = [ngettext("%(n)s variable", "%(n)s variables", plain) % {"n": plain}] if plain else []
    parts += [ngettext("%(n)s secret", "%(n)s secrets", secret) % {"n": secret}] if secret else []
    return " · ".join(parts) or _("none")


def _storage(form: WorkloadForm, values: Mapping[str, Any]) -> str:
    return " · ".join(str(form.fields[name].label) for name in SHARED_VOLUMES if values.get(name)) or _("none")
