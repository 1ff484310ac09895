"""Database rows → RunSpec: all that a driver needs to start one attempt."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

import orjson
from django.conf import settings

from portal.errors import N_
from portal.infra.crypt import Undecryptable, decrypt, encrypt
from portal.prepared import Prepared
from quotas.models import Cluster
from workloads.models import Attempt, Kind, Workload
from workloads.runtime.base import PodPlacement, Refused, RunRef, RunSpec, SharedVolume
from workloads.runtime.places import DEPARTMENT_VOLUME, USER_VOLUME

NOTEBOOK_PORT = 8888
LONGEST_NAMESPACE = 63
ROWS = (
    "workload__pool", "workload__department", "workload__author", "workload__image", "workload__external", "claim",
    "cluster",
)  # fmt: skip
BY_CLAIM = Prepared(lambda id: Attempt.objects.filter(claim__public_id=id).select_related(*ROWS).order_by())


def new_secrets() -> tuple[str, str]:
    """For a new attempt: (the ready and notebook tokens, encrypted; the digest of the ready token)."""
    ready, notebook = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    return encrypt(orjson.dumps({"ready": ready, "notebook": notebook}).decode()), digest(ready)


def digest(secret: str) -> str:
    """The form in which a random secret is stored, of a run or of a calendar's address."""
    return hashlib.sha256(secret.encode()).hexdigest()


def tokens_of(attempt: Attempt) -> dict[str, str]:
    tokens: dict[str, str] = orjson.loads(decrypt(attempt.secrets, N_("The tokens of %(name)s"), attempt.run_name))
    return tokens


def namespace_of(cluster: Cluster, department: str, *, unrestricted: bool = False) -> str:
    """The name of the department's namespace, or with `unrestricted` of its second one, for what the Pod Security Standard
    `restricted` forbids. A name that is too long for Kubernetes is cut and ends with a hash of itself."""
    name = f"{cluster.options.get('namespace_prefix', 'gqp-')}{department}{'-unrestricted' if unrestricted else ''}"
    return name if len(name) <= LONGEST_NAMESPACE else f"{name[: LONGEST_NAMESPACE - 9]}-{digest(name)[:8]}"


def shared_volumes_of(workload: Workload) -> tuple[SharedVolume, ...]:
    """The shared volumes of a workload. A person's volume is named by their id, because user names may change."""
    setup, author, volumes = workload.settings, workload.author, []
    if setup.department_volume:
        volumes.append(SharedVolume("department", DEPARTMENT_VOLUME))
    if setup.user_volume and author is not None:
        volumes.append(SharedVolume(f"user-{author.pk}", USER_VOLUME, author.username))
    return tuple(volumes)


def ref_of(attempt: Attempt) -> RunRef:
    workload = attempt.workload
    external = workload.external.ref if workload.kind == Kind.EXTERNAL else None
    return RunRef(attempt.run_name, attempt.namespace, attempt.submission_id, workload.kind, external=external)


def spec_of(attempt: Attempt) -> RunSpec:
    """The RunSpec of an attempt that was loaded with ROWS."""
    workload = attempt.workload
    tokens = tokens_of(attempt)
    setup = workload.settings
    notebook = workload.kind == Kind.NOTEBOOK
    port = NOTEBOOK_PORT if notebook else setup.port
    command, own_words = tuple(workload.command), frozenset(workload.own_words)
    if notebook and not command:
        command = notebook_command()
        own_words = frozenset(range(len(command)))
    return RunSpec(
        ref=ref_of(attempt),
        workload_id=workload.public_id,
        attempt=attempt.number,
        kind=workload.kind,
        department=workload.department.slug,
        user=workload.author.username if workload.author else "",
        image=workload.image.name,
        command=command,
        own_words=own_words,
        env=dict(workload.env),
        secret_env=hidden_of(workload),
        pods=workload.pods,
        cpu_milli=workload.cpu_milli,
        memory_mib=workload.memory_mib,
        sharing=workload.pool.sharing,
        product=workload.pool.product,
        units_per_pod=workload.asked_per_pod or workload.units_per_pod,
        cores_per_pod=workload.cores_per_pod,
        profile=workload.profile or None,
        mig=workload.pool.mig,
        units_per_card=workload.pool.units_per_card,
        extra=setup.extra,
        placement=tuple(_place(place) for place in attempt.placement or ()),
        grace=attempt.grace,
        max_runtime=None,  # the portal stops it, so that the time can be extended
        volume=workload.volume,
        ready_url=f"{settings.BASE_URL}/api/v1/workloads/{workload.public_id}/ready/",
        ready_token=tokens["ready"],
        port=port,
        token=tokens["notebook"] if port is not None else "",
        shm_mib=setup.shm_mib or workload.memory_mib // 2,
        setup=setup,
        shared_volumes=shared_volumes_of(workload),
    )


def to_start(attempt: Attempt) -> RunSpec:
    """`spec_of` for an attempt that may still start.

    Raises Refused if its department has lost a right in the meantime or its secrets can no longer be decrypted.
    """
    workload = attempt.workload
    if workload.settings.ipc_lock and not workload.department.unrestricted:
        raise Refused(f"{workload.department.name} may not lock memory any more", code="not_allowed")
    try:
        return spec_of(attempt)
    except Undecryptable as error:
        raise Refused(error.detail, code=error.code) from None


def _place(place: dict[str, Any]) -> PodPlacement:
    return PodPlacement(place["pod"], place["node"], tuple(place.get("cards", ())), place.get("start"))


def hidden_of(workload: Workload) -> dict[str, str]:
    """The workload's secret variables. Raises Undecryptable."""
    what = N_("The secret variables of %(name)s")
    hidden: dict[str, str] = orjson.loads(decrypt(workload.secret_env, what, workload.name) or "{}")
    return hidden


def notebook_command() -> tuple[str, ...]:
    """JupyterLab behind the portal's proxy; drivers replace the $(PORTAL_…). It takes its secret from JUPYTER_TOKEN."""
    return (
        "jupyter", "lab", "--no-browser", "--allow-root", "--ip=$(PORTAL_ADDRESS)", "--port=$(PORTAL_PORT)",
        "--ServerApp.port_retries=0", "--ServerApp.base_url=$(PORTAL_BASE_PATH)",
        "--ServerApp.allow_remote_access=True", "--ServerApp.root_dir=$(PORTAL_WORKDIR)",
        "--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    )  # fmt: skip
