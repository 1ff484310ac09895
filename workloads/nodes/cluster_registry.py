"""Add and change clusters. Connections are tested before they are stored, and their secrets are never shown again."""

from __future__ import annotations

from typing import Any

from django.utils.text import slugify
from django.utils.translation import ngettext

from portal import audit
from portal.access import Actor
from portal.errors import N_, Invalid
from portal.infra import versions
from portal.infra.confirm import Break
from portal.infra.crypt import encrypt
from portal.infra.locks import durable
from portal.text.plain_errors import plain_error
from quotas.models import Claim, Cluster, ClusterKind, Node, Quota
from workloads.clusters.drivers import make_driver
from workloads.kubernetes.manifests.options import Options
from workloads.nodes.inventory import refresh
from workloads.runtime.base import ClusterError, NodeInfo
from workloads.sharing import SYSTEMS
from workloads.sharing.nodes import NAMED


class NoConnection(Invalid):
    code = "cluster_unreachable"
    message = N_("The cluster sent an unexpected response: %(why)s")


def nodes_of(cluster: Cluster) -> tuple[NodeInfo, ...]:
    """The connection test: list the nodes. Also works on an unsaved row. Raises NoConnection, Invalid (options)."""
    try:
        if cluster.kind == ClusterKind.KUBERNETES:
            Options.from_operator({"instance": cluster.name} | cluster.options)
    except ValueError as error:
        raise _bad_options(error) from error
    try:
        return make_driver(cluster).nodes()
    except (ClusterError, ValueError) as error:
        if getattr(error, "code", "") == "bad_options":
            raise _bad_options(error) from error
        raise NoConnection(field="kubeconfig", why=plain_error(str(error))[:300]) from error


def _bad_options(error: Exception) -> Invalid:
    return Invalid(N_("These options do not work: %(why)s"), field="options", why=str(error)[:300])


def try_connection(
    *, actor: Actor, name: str, kubeconfig: str, options: dict[str, Any] | None = None
) -> tuple[NodeInfo, ...]:
    """Test a connection without storing it. Raises NoConnection, Invalid (options), NotVisible for anybody but operators."""
    actor.require_operator()
    kind = ClusterKind.KUBERNETES
    return nodes_of(Cluster(name=name, kind=kind, connection=encrypt(kubeconfig), options=options or {}))


def add_cluster(*, actor: Actor, name: str, kubeconfig: str, options: dict[str, Any] | None = None) -> Cluster:
    """Add a Kubernetes cluster; an empty kubeconfig means the portal's own service account.

    Raises Invalid (name), NoConnection, NotVisible for anybody but operators.
    """
    actor.require_operator()
    if slugify(name) != name or not name:
        raise Invalid(N_("Use lowercase letters, digits and hyphens."), field="name")
    if Cluster.objects.filter(name=name).exists():
        raise Invalid(N_("Cluster %(name)s already exists."), field="name", name=name)
    cluster = Cluster(name=name, kind=ClusterKind.KUBERNETES, connection=encrypt(kubeconfig), options=options or {})
    nodes = nodes_of(cluster)
    with durable():
        cluster.save(force_insert=True)
        audit.record(actor, "cluster.added", name, after={"nodes": len(nodes), "options": cluster.options})
    return cluster


def change_cluster(
    *,
    actor: Actor,
    cluster: Cluster,
    kubeconfig: str | None = None,
    options: dict[str, Any] | None = None,
    active: bool | None = None,
    seen: str = "",
) -> Cluster:
    """Change a cluster; None keeps a value. Raises NoConnection, Conflict, NotVisible for anybody but operators."""
    actor.require_operator()
    before = {"active": cluster.active, "options": cluster.options}
    if kubeconfig is not None:
        cluster.connection = encrypt(kubeconfig)
    cluster.options = cluster.options if options is None else options
    cluster.active = cluster.active if active is None else active
    if kubeconfig is not None or options is not None:
        nodes_of(cluster)
    with durable():
        stored = Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
        versions.check(_shown(stored), seen)
        cluster.save(update_fields=["connection", "options", "active"])
        after = {"active": cluster.active, "options": cluster.options, "new_connection": kubeconfig is not None}
        audit.record(actor, "cluster.changed", cluster.name, before=before, after=after)
    return cluster


def breaks_of(cluster: Cluster) -> list[Break]:
    """What disabling the cluster breaks."""
    claims = Claim.objects.filter(pool__group__cluster=cluster)
    running = claims.filter(state__in=["holding", "leaving"]).exclude(workload="").count()
    waiting = claims.filter(state="pending").exclude(workload="").count()
    promised = Quota.objects.filter(pool__group__cluster=cluster, guaranteed__gt=0)
    departments = promised.values("department").distinct().count()
    pools = ", ".join(promised.order_by("pool__name").values_list("pool__name", flat=True).distinct())
    lines = [
        ngettext(
            "%(n)s workload running there will no longer be managed: it is not stopped in time and its "
                "end is not recorded.",
            "%(n)s workloads running there will no longer be managed: they are not stopped in time and "
                "their end is not recorded.",
            running,
        ) % {"n": running},
        ngettext("%(n)s workload queued for it will not start.", "%(n)s workloads queued for it will not start.", waiting)
        % {"n": waiting},
    ]  # fmt: skip
    if departments:
        text = ngettext(
            "%(n)s department cannot use its guaranteed quota of %(pools)s.",
            "%(n)s departments cannot use their guaranteed quota of %(pools)s.", departments,
        )  # fmt: skip
        lines.append(text % {"n": departments, "pools": pools})
    return [Break("cluster", line, (cluster.pk, running, waiting, departments)) for line in lines]


def mark_of(cluster: Cluster) -> str:
    """The version mark that a form about the cluster carries."""
    return versions.mark(_shown(cluster))


def check_seen(cluster: Cluster, seen: str) -> None:
    """Raises Conflict."""
    versions.check(_shown(cluster), seen)


def _shown(cluster: Cluster) -> dict[str, Any]:
    return {"active": cluster.active, "options": cluster.options}


def pinned(cluster: Cluster, node: Node) -> dict[str, str]:
    """The sharing system and product that the operator has pinned for a node; "": detected."""
    return {name: cluster.options.get(key, {}).get(node.name, "") for key, name in PINS.items()}


PINS = {"pins": "system", "products": "product"}  # {option of the cluster: what it pins for a node}


def pin_node(
    *, actor: Actor, node: Node, system: str | None = None, product: str | None = None, seen: str = ""
) -> Node:
    """Pin a node's sharing system and card product; "": detect it, None: keep it.

    Raises Invalid (field system or product), Conflict, NotVisible for anybody but operators.
    """
    actor.require_operator()
    cluster = node.cluster
    pins = {"system": system, "product": product}
    if cluster.kind == ClusterKind.EMBEDDED:
        field = "system" if product is None else "product"
        raise Invalid(N_("The mode of declared nodes cannot be changed."), field=field)
    if system and system not in SYSTEMS:
        raise Invalid(N_("There is no sharing system %(system)s."), field="system", system=system[:40])
    if product and not NAMED.fullmatch(product):
        text = N_("Enter the product as a label value, such as NVIDIA-A100-SXM4-80GB, not %(product)s.")
        raise Invalid(text, field="product", product=product[:80])
    with durable():
        row = Cluster.objects.select_for_update(no_key=True, of=("self",)).get(pk=cluster.pk)
        before = pinned(row, node)
        versions.check(before, seen)
        for key, name_of in PINS.items():
            if (value := pins[name_of]) is not None:
                others = {name: one for name, one in row.options.get(key, {}).items() if name != node.name}
                row.options = row.options | {key: others | ({node.name: value} if value else {})}
        row.save(update_fields=["options"])
        after = {name: before[name] if value is None else value for name, value in pins.items()}
        audit.record(actor, "node.pinned", node.name, before=before, after=after)
    refresh(row)
    node.refresh_from_db()
    return node
