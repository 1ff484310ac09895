"""The limits of each department's namespace on a cluster, computed from quotas and claims; the driver applies them."""

from __future__ import annotations

from dataclasses import replace

import structlog
from django.db.models import F, Q, Sum

from portal.models import Department
from quotas.board import usage_now
from quotas.engine.mig_profiles import PRODUCTS
from quotas.models import OCCUPYING, Claim, Cluster, ClusterKind, Pool
from workloads import sharing
from workloads.clusters.run_spec import namespace_of
from workloads.kubernetes.manifests import Options, namespace_limits
from workloads.models import Attempt
from workloads.requests.gpu_amounts import profiles_present
from workloads.runtime.base import ClusterDriver, ClusterError, Home, Unreachable

log = structlog.get_logger(__name__)


def keep_homes(cluster: Cluster, driver: ClusterDriver) -> int:
    """Apply the namespaces of all departments with a quota or run there; returns how many. Raises Unreachable."""
    if cluster.kind != ClusterKind.KUBERNETES:
        return 0
    books, count = usage_now.read(_pools(cluster), claims=False), 0
    concerned = Q(quotas__pool__group__cluster=cluster) | Q(
        pk__in=Attempt.objects.filter(cluster=cluster, removed_at=None).values("workload__department")
    )
    for department in Department.objects.filter(concerned).distinct():
        try:
            for unrestricted in (False, True)[: 1 + department.unrestricted]:
                driver.keep_home(home_of(cluster, department, books, unrestricted=unrestricted))
        except Unreachable:
            raise  # the others cannot be reached either
        except ClusterError as error:
            log.warning("home.stays", cluster=cluster.name, department=department.slug, error=str(error))
            continue
        count += 1
    return count


def keep_home(attempt: Attempt, driver: ClusterDriver, *, fresh: bool = False) -> None:
    """Apply the namespace of the attempt's department before its pods are created. Raises Unreachable, Refused."""
    if attempt.cluster.kind == ClusterKind.KUBERNETES:
        unrestricted = attempt.workload.settings.ipc_lock
        home = home_of(attempt.cluster, attempt.workload.department, unrestricted=unrestricted)
        driver.keep_home(home, fresh=fresh)


def home_of(
    cluster: Cluster, department: Department, books: usage_now.Live | None = None, *, unrestricted: bool = False
) -> Home:
    """One of the department's two namespaces with its limits: the department's ceiling, or what it holds if that is more
    (because its quota was lowered).
    Each of the two gets the whole limit, because it is not known beforehand in which of them the workloads will be.
    """
    books = books or usage_now.read(_pools(cluster), claims=False)
    options = Options.from_json(cluster.options)
    parts = []
    for pool in books.pools.values():
        if pool.sharing not in sharing.SYSTEMS:
            continue
        most = max(usage_now.ceiling(books, department.pk, pool.pk), _held(department, pool))
        for request in _requests(pool):
            units = most // request.units * request.units if request.profile else most
            parts.append((namespace_limits.proportions(request, options.sharing, pool.sharing), units))
    name = namespace_of(cluster, department.slug, unrestricted=unrestricted)
    return Home(name, department.slug, namespace_limits.hard(parts), unrestricted)


def _pools(cluster: Cluster) -> list[Pool]:
    return list(Pool.objects.filter(group__cluster=cluster).select_related("group__cluster"))


def _held(department: Department, pool: Pool) -> int:
    """Units that the department's claims hold, including leaving ones, whose pods still exist."""
    work = Claim.objects.filter(department=department, pool=pool, state__in=OCCUPYING, pods__gt=0)  # no recalls
    return work.aggregate(units=Sum(F("units_per_pod") * F("pods")))["units"] or 0


def _requests(pool: Pool) -> list[sharing.Request]:
    """One request for each kind of pod that the pool can hold."""
    plain = sharing.Request(pool.product, 0, table=pool.mig, units_per_card=pool.units_per_card)
    table = PRODUCTS.get(pool.mig)
    if table is None:
        return [plain]
    names = dict.fromkeys([*table, *profiles_present([pool])[pool.mig]])  # some drivers have other names than the table
    return [replace(plain, profile=name, units=table[name].size) for name in names]
