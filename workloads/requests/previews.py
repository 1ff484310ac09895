"""Preview of a gang or service: each rank's environment, Kubernetes objects, exports for other operators."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import yaml
from django.utils.text import slugify

from portal.errors import N_, Problem
from quotas.models import ClusterKind
from workloads.clusters.run_spec import namespace_of
from workloads.kubernetes import manifests
from workloads.kubernetes.manifests import gangs
from workloads.models import Attempt, Kind, Workload
from workloads.requests import exports
from workloads.requests.request import WorkloadRequest
from workloads.runtime import rank_environment
from workloads.runtime.base import PodPlacement, RunRef, RunSpec
from workloads.runtime.rank_environment import LOOPBACK

HIDDEN = "(hidden)"
MOST_RANKS = 16  # shown


class NoSuchExport(Problem):
    status = 404
    code = "no_such_export"
    message = N_("There is no export %(export)s of this workload. Available: %(exports)s.")


@dataclass(frozen=True, slots=True)
class RankPreview:
    rank: int
    role: str
    variables: dict[str, str]


@dataclass(frozen=True, slots=True)
class Preview:
    """`alike`: the variables that all ranks share; `ranks`: the first MOST_RANKS with their own variables; `more`: how many
    further ranks there are; `yaml`: "" outside Kubernetes."""

    alike: dict[str, str]
    ranks: tuple[RankPreview, ...]
    more: int
    yaml: str
    exports: tuple[str, ...]


def preview_of(request: WorkloadRequest, department: str) -> Preview | None:
    """The preview before submission; None for kinds without one. The names of its objects are placeholders."""
    if request.kind not in (Kind.DISTRIBUTED, Kind.SERVICE):
        return None
    spec = spec_for(request, department)
    alike, ranks = _rank_variables(request, spec)
    return Preview(alike, ranks, max(0, request.pods - len(ranks)), _objects(request, spec), export_names(request))


def _rank_variables(request: WorkloadRequest, spec: RunSpec) -> tuple[dict[str, str], tuple[RankPreview, ...]]:
    if request.kind != Kind.DISTRIBUTED:
        return {}, ()
    gang = gangs.gang_of(spec)
    if request.pool.group.cluster.kind == ClusterKind.EMBEDDED:
        gang = replace(gang, hosts=(LOOPBACK,) * request.pods)
    alike, own = rank_environment.split(gang)
    setup = request.setup
    ranks = tuple(
        RankPreview(rank, str(rank_environment.role(setup.template, rank, setup.parameter_servers)), own[rank])
        for rank in range(min(request.pods, MOST_RANKS))
    )
    return alike, ranks


def _objects(request: WorkloadRequest, spec: RunSpec) -> str:
    cluster = request.pool.group.cluster
    if cluster.kind != ClusterKind.KUBERNETES:
        return ""
    try:
        options = manifests.Options.from_json({"instance": cluster.name} | cluster.options)
        return as_documents(manifests.objects(spec, options))
    except (ValueError, manifests.Unsupported) as error:
        return f"# {error}"


def as_documents(objects: list[dict[str, Any]]) -> str:
    return yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True)


def spec_for(request: WorkloadRequest, department: str) -> RunSpec:
    """The first attempt's RunSpec, as run_spec.spec_of would create it, with secrets and tokens hidden."""
    pool, setup = request.pool, request.setup
    node = next(iter(pool.cards.values_list("node__name", flat=True)), "")
    return RunSpec(
        ref=RunRef("w-new-1", namespace_of(pool.group.cluster, department), "s-new", request.kind),
        workload_id="new",
        attempt=1,
        kind=request.kind,
        department=department,
        user="",
        image=request.image.name,
        command=request.command,
        own_words=request.own_words,
        env=request.env | dict.fromkeys(request.secret_env, HIDDEN),
        pods=request.pods,
        cpu_milli=request.cpu_milli,
        memory_mib=request.memory_mib,
        sharing=pool.sharing,
        product=pool.product,
        units_per_pod=request.units_per_pod,
        profile=request.profile or None,
        mig=pool.mig,
        placement=tuple(PodPlacement(pod, node) for pod in range(request.pods)) if node else (),
        grace=pool.grace,
        max_runtime=None,
        volume="w-new",
        ready_url=HIDDEN,
        ready_token=HIDDEN,
        port=setup.port,
        token=HIDDEN if setup.port else "",
        shm_mib=setup.shm_mib or request.memory_mib // 2,
        setup=setup,
    )


def export_names(request: WorkloadRequest) -> tuple[str, ...]:
    return exports.fitting(request.setup.template) if request.kind == Kind.DISTRIBUTED else ()


def export_of(request: WorkloadRequest, kind: str) -> str:
    """The manifest for another operator as YAML, without the values of secrets. Raises NoSuchExport."""
    setup = request.setup
    rdma = request.pool.group.cluster.options.get("rdma_resource", "")
    asked = exports.Asked(
        name=slugify(request.name)[:40].strip("-") or "workload",
        template=setup.template,
        pods=request.pods,
        cards=request.units_per_pod,
        image=request.image.name,
        command=request.command,
        env=request.env | dict.fromkeys(request.secret_env, HIDDEN),
        cpu_milli=request.cpu_milli,
        memory_mib=request.memory_mib,
        shm_mib=setup.shm_mib or request.memory_mib // 2,
        parameter_servers=setup.parameter_servers,
        max_restarts=setup.max_restarts,
        extra={rdma: setup.rdma} if rdma and setup.rdma else {},
    )
    names = {name.lower(): name for name in export_names(request)}
    if kind.lower() not in names:
        raise NoSuchExport(field="export", export=kind, exports=", ".join(names.values()) or "–")
    return yaml.safe_dump(exports.export(names[kind.lower()], asked), sort_keys=False, allow_unicode=True)


def address_of(workload: Workload) -> str:
    """A service's public address, served by its cluster; "" if it is served by the portal's proxy."""
    cluster = workload.pool.group.cluster
    if cluster.kind != ClusterKind.KUBERNETES:
        return ""
    options = manifests.Options.from_json({"instance": cluster.name} | cluster.options)
    return manifests.url_of(workload.public_id, options)


def inner_address(workload: Workload, attempt: Attempt) -> str:
    """A service's address inside the cluster, for other workloads of the department. It is valid for this attempt only."""
    return f"http://{attempt.run_name}.{attempt.namespace}.svc:{workload.settings.port}/"
