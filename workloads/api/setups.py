"""`setup` of a request, preset or workload, and `ranks` of an attempt: fields that only some kinds have."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from portal.api.base import Strict
from workloads.runtime.base import Phase
from workloads.runtime.rank_environment import Template
from workloads.runtime.setups import MOST_PODS, MOST_RESTARTS, Setup
from workloads.sharing import SYSTEMS

MEBIBYTES = 2**31 - 1
EXTRAS = "; ".join(
    f"{name} ({system.ABOUT.title}): {text}" for system in SYSTEMS.values() for name, text in system.ABOUT.extra.items()
)


class SetupIn(Strict):
    """Fields that only some kinds of workload have."""

    template = serializers.ChoiceField(
        list(Template), required=False, help_text="distributed: which variables tell a rank of the others."
    )
    parameter_servers = serializers.IntegerField(
        min_value=0, max_value=MOST_PODS, required=False, help_text="distributed, tensorflow-ps: how many of the pods."
    )
    same_domain = serializers.BooleanField(
        required=False, help_text="distributed: all pods in one NVLink or rack domain."
    )
    rdma = serializers.IntegerField(
        min_value=0, max_value=64, required=False, help_text="job, distributed: RDMA devices for each pod."
    )
    max_restarts = serializers.IntegerField(
        min_value=0, max_value=MOST_RESTARTS, required=False,
        help_text="job, distributed: how often all of it begins again after a failure of its own.",
    )  # fmt: skip
    shm_mib = serializers.IntegerField(
        min_value=1, max_value=MEBIBYTES, required=False, allow_null=True,
        help_text="Size of /dev/shm; it counts as memory. Default: half of the memory.",
    )  # fmt: skip
    port = serializers.IntegerField(
        min_value=1,
        max_value=65535,
        required=False,
        allow_null=True,
        help_text="service: where it listens (PORTAL_PORT).",
    )
    ready_path = serializers.CharField(
        max_length=200, required=False, allow_blank=True,
        help_text="service: an HTTP path that answers 2xx or 3xx when it is ready; empty: a connection will do.",
    )  # fmt: skip
    department_volume = serializers.BooleanField(
        required=False, help_text="Mounts the volume of the department, at PORTAL_DEPARTMENT_DIR."
    )
    user_volume = serializers.BooleanField(
        required=False, help_text="Mounts its author's own volume in this department, at PORTAL_USER_DIR."
    )
    ipc_lock = serializers.BooleanField(
        required=False,
        help_text="May lock memory (RDMA): as root with IPC_LOCK, where the operator allows it to the department.",
    )
    extra = serializers.DictField(
        child=serializers.CharField(max_length=60), required=False,
        help_text=f"What else the pool's sharing system may be asked. {EXTRAS}.",
    )  # fmt: skip


class SetupOut(SetupIn):
    """The setup as requested, with all fields."""

    template = serializers.CharField(help_text=SetupIn().fields["template"].help_text)  # type: ignore[assignment]

    def to_representation(self, instance: Any) -> dict[str, Any]:
        return dict(super().to_representation(Setup.from_json(instance)))


class RankOut(serializers.Serializer[Any]):
    """A pod of a distributed job, or the pod of a service."""

    rank = serializers.IntegerField()
    role = serializers.CharField(help_text="Such as master 0, worker 1, ps 0.")
    phase = serializers.ChoiceField([phase.value for phase in Phase])
    node = serializers.CharField()
    cards = serializers.ListField(child=serializers.CharField())
    exit_code = serializers.IntegerField(allow_null=True)
    reason = serializers.CharField()
    message = serializers.CharField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    ready = serializers.BooleanField(allow_null=True, help_text="A service answers; null: nobody asks.")
    restarts = serializers.IntegerField(help_text="Of a service.")
