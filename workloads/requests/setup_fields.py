"""Form fields that only some kinds have (workloads.requests.kinds.OWN_FIELDS)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from portal.names import LineInput
from quotas.amounts import LONGEST
from quotas.models import Pool
from workloads.models import Kind
from workloads.requests.gpu_amounts import about
from workloads.requests.kinds import OWN_FIELDS
from workloads.requests.text_fields import MemoryField
from workloads.runtime.rank_environment import Template
from workloads.runtime.setups import MOST_PODS, MOST_RESTARTS, NAMES, Setup

TEMPLATES = {
    Template.TORCH: _("PyTorch (DDP, torchrun)"),
    Template.TENSORFLOW: _("TensorFlow, multi-worker"),
    Template.TENSORFLOW_PS: _("TensorFlow, parameter servers"),
    Template.MPI: _("MPI, Horovod"),
    Template.GENERIC: _("Other: RANK and WORLD_SIZE"),
}


class SetupFields(forms.Form):
    pods = forms.IntegerField(
        label=_("Pods"), required=False, min_value=1, max_value=MOST_PODS,
        help_text=_("Each pod is one rank with the amount above; all start together or not at all."),
    )  # fmt: skip
    template = forms.ChoiceField(
        label=_("Rank setup"), required=False, choices=list(TEMPLATES.items()), initial=Template.TORCH
    )
    parameter_servers = forms.IntegerField(
        label=_("Parameter servers"),
        required=False,
        min_value=0,
        max_value=MOST_PODS,
        help_text=_("Included in the pods above."),
    )
    same_domain = forms.BooleanField(label=_("All pods in one NVLink domain or rack"), required=False)
    rdma = forms.IntegerField(label=_("RDMA devices per pod"), required=False, min_value=0, max_value=64)
    max_restarts = forms.IntegerField(
        label=_("Restarts after a failure"), required=False, min_value=0, max_value=MOST_RESTARTS,
        help_text=_("The whole job restarts from its checkpoint. 0: the job fails when one rank fails."),
    )  # fmt: skip
    shm_mib = MemoryField(
        label=_("Shared memory (/dev/shm)"),
        required=False,
        help_text=_("Counts as memory. Leave empty for half of it."),
    )
    department_volume = forms.BooleanField(
        label=_("Department volume"),
        required=False,
        help_text=_("Mounted at /volumes/department, shared with all members."),
    )
    user_volume = forms.BooleanField(
        label=_("Personal volume"),
        required=False,
        help_text=_("Mounted at /volumes/user in all workloads you submit here."),
    )
    ipc_lock = forms.BooleanField(
        label=_("Lock memory (RDMA)"), required=False, help_text=_("Runs as root with the capability IPC_LOCK.")
    )
    port = forms.IntegerField(
        label=_("Port"), required=False, min_value=1, max_value=65535,
        help_text=_("The port on which it listens; also given in PORTAL_PORT."),
    )  # fmt: skip
    ready_path = LineInput(
        label=_("Health path"), required=False, max_length=200,
        help_text=_("Responds with 2xx or 3xx when ready, such as /healthz. Leave empty to check the connection "
            "only."),
    )  # fmt: skip

    def offer_extras(self, pools: Iterable[Pool]) -> None:
        """Adds a field for each further option of these pools' sharing systems."""
        self.further = {name: text for pool in pools if (system := about(pool)) for name, text in system.extra.items()}
        for name, text in self.further.items():
            self.fields[name] = LineInput(label=_(text), required=False, max_length=LONGEST)

    @property
    def extras(self) -> list[forms.BoundField]:
        return [self[name] for name in self.further]

    def setup_of(self, kind: str) -> Setup:
        """The setup for the chosen kind and pool; values of fields that these do not have are ignored."""
        given = {name: self.cleaned_data.get(name) for name in NAMES if kind in OWN_FIELDS.get(name, Kind.values)}
        pool = self.cleaned_data.get("pool")
        system = about(pool) if pool else None
        given["extra"] = {
            name: text for name in (system.extra if system else ()) if (text := self.cleaned_data.get(name))
        }
        return Setup(**{name: value for name, value in given.items() if value not in (None, "")})

    def pods_of(self, kind: str) -> int:
        return (self.cleaned_data.get("pods") or 1) if kind == Kind.DISTRIBUTED else 1


def first_setup(setup: Setup, pods: int) -> dict[str, Any]:
    """The form's initial values for this setup."""
    values = {name: getattr(setup, name) for name in NAMES} | dict(setup.extra)
    return values | {
        "pods": max(pods, 2),
        "template": setup.template or Template.TORCH.value,
        "port": setup.port or 8000,
    }
