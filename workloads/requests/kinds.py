"""Rules for the fields that only some kinds of workload have. Every error names its field."""

from __future__ import annotations

from portal.errors import N_, Invalid
from quotas.models import Cluster, ClusterKind, Node
from workloads.models import Kind
from workloads.requests.request import WorkloadRequest
from workloads.runtime import rank_environment
from workloads.runtime.setups import MOST_PODS, MOST_RESTARTS, Setup
from workloads.sharing import SYSTEMS

OWN_FIELDS = {  # field of Setup → the kinds that have it
    "template": {Kind.DISTRIBUTED}, "parameter_servers": {Kind.DISTRIBUTED}, "same_domain": {Kind.DISTRIBUTED},
    "rdma": {Kind.JOB, Kind.DISTRIBUTED}, "max_restarts": {Kind.JOB, Kind.DISTRIBUTED},
    "port": {Kind.SERVICE}, "ready_path": {Kind.SERVICE},
}  # fmt: skip
SHARED_VOLUMES = ("department_volume", "user_volume")  # fields of Setup, and options of the cluster with the same names


def faults(request: WorkloadRequest) -> list[Invalid]:
    """All errors in pods and setup, independent of the load."""
    errors = [*_foreign(request), *_common(request)]
    if request.kind == Kind.DISTRIBUTED:
        return [*errors, *_gang(request), *_whole_cards(request), *_one_volume(request)]
    if request.pods != 1:
        errors.append(Invalid(N_("A %(kind)s can only have one pod."), field="pods", kind=request.kind))
    return [*errors, *_service(request)] if request.kind == Kind.SERVICE else errors


def _foreign(request: WorkloadRequest) -> list[Invalid]:
    given, plain = request.setup, Setup()
    return [
        Invalid(
            N_("A %(kind)s has no field %(what)s."), field=name, code="not_of_this_kind", kind=request.kind, what=name
        )
        for name, kinds in OWN_FIELDS.items()
        if request.kind not in kinds and getattr(given, name) != getattr(plain, name)
    ]


def _common(request: WorkloadRequest) -> list[Invalid]:
    setup, errors = request.setup, []
    if setup.shm_mib is not None and not 1 <= setup.shm_mib <= request.memory_mib:
        text = N_("Shared memory counts as memory: enter 1 to %(most)s MiB, or request more memory.")
        errors.append(Invalid(text, field="shm_mib", most=request.memory_mib))
    if not 0 <= setup.max_restarts <= MOST_RESTARTS:
        errors.append(Invalid(N_("Enter 0 to %(most)s."), field="max_restarts", most=MOST_RESTARTS))
    if setup.rdma and not request.pool.group.cluster.options.get("rdma_resource"):
        text = N_("The cluster %(cluster)s offers no RDMA devices.")
        errors.append(Invalid(text, field="rdma", code="no_rdma", cluster=request.pool.group.cluster.name))
    return [*errors, *_shared_volumes(request)]


def _shared_volumes(request: WorkloadRequest) -> list[Invalid]:
    """Shared volumes must be enabled by the cluster's options. Their volume claims are in the department's usual namespace,
    so workloads in the separate one for locked memory cannot mount them."""
    setup, cluster = request.setup, request.pool.group.cluster
    asked = [name for name in SHARED_VOLUMES if getattr(setup, name)]
    if setup.ipc_lock and asked:
        text = N_(
            "Workloads that lock memory run in a separate namespace, which has no department or personal volumes."
        )
        return [Invalid(text, field=asked[0], code="no_shared_volume")]
    text = N_("The cluster %(cluster)s does not offer this volume: its option %(option)s is empty.")
    return [
        Invalid(text, field=name, code="no_shared_volume", cluster=cluster.name, option=name)
        for name in asked
        if not offers(cluster, name)
    ]


def offers(cluster: Cluster, shared_volume: str) -> bool:
    """Always on the embedded cluster, whose volumes are directories; on Kubernetes if the option sets the claims' size."""
    return cluster.kind == ClusterKind.EMBEDDED or bool(cluster.options.get(shared_volume))


def _gang(request: WorkloadRequest) -> list[Invalid]:
    setup = request.setup
    texts = {
        "no_such_template": N_("There is no template %(template)s. Available: %(templates)s.")
        if setup.template
        else N_("Choose a template: %(templates)s."),
        "few_pods": N_("A distributed job has at least 2 pods; use a job for one pod."),
        "few_parameter_servers": N_("This template needs at least 1 parameter server."),
        "no_worker": N_(
            "%(pods)s pods are not enough: a chief, %(servers)s parameter servers and at least 1 worker are needed."
        ),
    }
    numbers = {
        "template": setup.template, "templates": ", ".join(rank_environment.Template), "pods": request.pods,
        "servers": setup.parameter_servers,
    }  # fmt: skip
    faults = rank_environment.faults(setup.template, request.pods, setup.parameter_servers)
    errors = [Invalid(texts[code], field=name, code=code, **numbers) for name, code in faults.items()]
    if request.pods > MOST_PODS:
        errors.append(Invalid(N_("At most %(most)s pods."), field="pods", most=MOST_PODS))
    if "template" not in faults:
        taken = rank_environment.portal_names(setup.template)
        errors += [
            Invalid(N_("%(name)s is set by the template, for each rank."), field=field, name=name)
            for field in ("env", "secret_env")
            for name in sorted(taken & set(getattr(request, field)))
        ]
    return errors


def _whole_cards(request: WorkloadRequest) -> list[Invalid]:
    system = SYSTEMS.get(request.pool.sharing)
    if system is not None and system.ABOUT.peers:
        return []
    text = N_(
        "Distributed jobs need whole cards: NCCL does not allow two ranks on one device, and the "
        "parts of a shared card are one device. %(pool)s offers parts of cards."
    )
    return [Invalid(text, field="pool", code="whole_cards_only", pool=request.pool.name)]


def _one_volume(request: WorkloadRequest) -> list[Invalid]:
    """Ranks on several nodes share one working directory, so its volume must be mountable on several nodes."""
    cluster = request.pool.group.cluster
    options = cluster.options
    shared = options.get("volume") == "emptyDir" or options.get("access_mode", "").startswith("ReadWriteMany")
    if cluster.kind != ClusterKind.KUBERNETES or shared:
        return []
    if Node.objects.filter(cards__pool=request.pool, present=True).distinct().count() < 2:
        return []
    text = N_(
        "Working directories in %(cluster)s can be mounted on only one node at a time, but these "
        "ranks may run on several. An operator can set the option access_mode to ReadWriteMany."
    )
    return [Invalid(text, field="pool", code="volume_of_one_node", cluster=cluster.name)]


def _service(request: WorkloadRequest) -> list[Invalid]:
    setup, errors = request.setup, []
    if setup.port is None or not 1 <= setup.port <= 65535:
        errors.append(Invalid(N_("Enter the port on which it listens: 1 to 65535."), field="port"))
    if setup.ready_path and (not setup.ready_path.startswith("/") or len(setup.ready_path) > 200):
        errors.append(Invalid(N_("A path must begin with “/” and have at most 200 characters."), field="ready_path"))
    return errors
