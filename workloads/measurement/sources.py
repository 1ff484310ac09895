"""Connect a cluster's Prometheus, and test what it has."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.utils import timezone

from portal import audit
from portal.access import Actor
from portal.errors import N_, Invalid
from portal.infra import versions
from portal.infra.crypt import encrypt
from portal.infra.locks import durable
from portal.notify import safe_http
from quotas.models import Cluster, ClusterKind
from workloads.measurement.prometheus import NotMeasured, Server, ask_texts, server_of
from workloads.measurement.series import EXPORTERS, SELECTOR, Query, Sample, node_of, queries_of
from workloads.models import MetricsAuth, MetricsSource

BY_NODE = "Hostname, node, kubernetes_node, nodeid, nodename, exported_node, instance"


@dataclass(frozen=True, slots=True)
class Wish:
    """What an operator enters. `secret`: None keeps the stored one."""

    url: str
    auth: str = MetricsAuth.NONE
    username: str = ""
    secret: str | None = None
    ca: str = ""
    exporters: Sequence[str] = EXPORTERS
    selector: str = ""


@dataclass(frozen=True, slots=True)
class FoundMetric:
    """The series found for one query. `age`: seconds since the newest sample; None if there is none."""

    exporter: str
    metric: str
    series: int
    nodes: tuple[str, ...]
    age: float | None


@dataclass(frozen=True, slots=True)
class Found:
    """What a test found. `pods`: number of the portal's pods that GPU series name; `silent`: GPU nodes without any GPU series."""

    metrics: tuple[FoundMetric, ...]
    pods: int
    silent: tuple[str, ...]

    @property
    def is_nothing(self) -> bool:
        return not any(each.series for each in self.metrics)


def source_of(cluster: Cluster) -> MetricsSource | None:
    return MetricsSource.objects.filter(cluster=cluster).select_related("cluster").first()


def checked(cluster: Cluster, wish: Wish) -> MetricsSource:
    """The source as it would be stored, but not saved. Raises Invalid with the field."""
    if cluster.kind == ClusterKind.EMBEDDED:
        raise Invalid(N_("The cluster on this machine measures itself; it has no Prometheus."), field="url")
    safe_http.checked_parts(wish.url)
    if urlsplit(wish.url).query or urlsplit(wish.url).fragment:
        raise Invalid(N_("Enter the address without a query (?) or fragment (#)."), field="url")
    if wish.ca.strip():
        safe_http.trust(wish.ca)
    unknown = [name for name in wish.exporters if name not in EXPORTERS]
    if unknown or not wish.exporters:
        text = N_("Choose at least one of %(known)s.")
        raise Invalid(text, field="exporters", known=", ".join(EXPORTERS))
    if wish.selector.strip() and not SELECTOR.fullmatch(wish.selector.strip()):
        text = N_('Enter label matchers, such as cluster="a",region=~"eu-.*", not %(text)s.')
        raise Invalid(text, field="selector", text=wish.selector[:80])
    stored = source_of(cluster)
    row = stored or MetricsSource(cluster=cluster)
    moved = stored is not None and safe_http.checked_parts(wish.url) != safe_http.checked_parts(stored.url)
    if moved and wish.secret is None and stored is not None and stored.secret and wish.auth != MetricsAuth.NONE:
        raise Invalid(N_("The address has another host: enter the secret again."), field="secret")
    row.url, row.auth, row.ca = wish.url.strip(), wish.auth, wish.ca.strip()
    row.username = wish.username if wish.auth == MetricsAuth.BASIC else ""
    row.exporters = [name for name in EXPORTERS if name in wish.exporters]
    row.selector = wish.selector.strip()
    if wish.auth == MetricsAuth.NONE:
        row.secret = ""
    elif wish.secret is not None:
        row.secret = encrypt(wish.secret)
    if wish.auth != MetricsAuth.NONE and not row.secret:
        raise Invalid(N_("Enter the token or password."), field="secret")
    if wish.auth == MetricsAuth.BASIC and (not row.username or ":" in row.username):
        raise Invalid(N_("Enter a user name without a colon."), field="username")
    if any(not 32 <= ord(sign) < 127 for sign in wish.secret or "") and wish.auth == MetricsAuth.BEARER:
        raise Invalid(N_("A token may contain only ASCII letters, digits and symbols."), field="secret")
    return row


def set_source(*, actor: Actor, cluster: Cluster, wish: Wish, seen: str = "") -> MetricsSource:
    """Connect the cluster's Prometheus, or change the connection; it is queried before it is stored.

    Raises Invalid, NotMeasured, Conflict, NotVisible for anybody but operators.
    """
    actor.require_operator()
    row = checked(cluster, wish)
    find(row)
    with durable():
        locked = Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
        stored = source_of(locked)
        before = settings_of(stored)
        versions.check(before, seen)
        row.pk = stored.pk if stored else None
        row.failing_since, row.notified_at, row.failure = None, None, {}
        row.save(force_insert=stored is None, force_update=stored is not None)
        after = settings_of(row) | {"new_secret": wish.secret is not None and row.auth != MetricsAuth.NONE}
        audit.record(actor, "cluster.metrics_set", cluster.name, before=before, after=after)
    return row


def remove_source(*, actor: Actor, cluster: Cluster, seen: str = "") -> None:
    """Disconnect Prometheus. Stored measurements are kept. Raises Conflict, or NotVisible for anybody but operators."""
    actor.require_operator()
    with durable():
        Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
        stored = source_of(cluster)
        versions.check(settings_of(stored), seen)
        if stored is not None and stored.url:
            stored.delete()
            audit.record(actor, "cluster.metrics_removed", cluster.name, before=settings_of(stored))


def try_source(*, actor: Actor, cluster: Cluster, wish: Wish | None = None) -> Found:
    """Query the stored Prometheus, or the one of `wish`, and store nothing.

    Raises Invalid, NotMeasured, NotVisible for anybody but operators.
    """
    actor.require_operator()
    row = checked(cluster, wish) if wish else source_of(cluster)
    if row is None or not row.url:
        raise Invalid(N_("No Prometheus is connected to this cluster."), field="url")
    return find(row)


def find(source: MetricsSource) -> Found:
    """What the source has, by two test queries for each measuring query. Raises NotMeasured, Undecryptable."""
    server, queries, now = server_of(source), queries_of(source.exporters), timezone.now()
    texts = [text for query in queries for text in _tests(server, query)]
    texts.append(_pods(server, queries))
    *answers, pods = ask_texts(server, texts, at=now)
    metrics = tuple(
        _found(query, answers[2 * index], answers[2 * index + 1], now) for index, query in enumerate(queries)
    )
    reporting = {node for each in metrics if each.exporter != "cadvisor" for node in each.nodes}
    nodes = source.cluster.nodes.filter(present=True).exclude(sharing="").values_list("name", flat=True)
    silent = tuple(name for name in nodes if name not in reporting and name.split(".")[0] not in reporting)
    return Found(metrics, round(sum(sample.value for sample in pods)), silent if reporting else tuple(nodes))


def _tests(server: Server, query: Query) -> tuple[str, str]:
    """Two queries: how many series there are, and when the newest was scraped, by node."""
    match = f"{{{server.selector}}}" if server.selector else ""
    names = [f"{metric}{match}" for metric in query.metrics]
    count = " or ".join(f"count by ({BY_NODE}) ({name})" for name in names)
    newest = " or ".join(f"max by ({BY_NODE}) (timestamp({name}))" for name in names)
    return count, newest


def _pods(server: Server, queries: Sequence[Query]) -> str:
    """Query for the number of the portal's pods that GPU series name, in any of the labels."""
    metrics = [metric for query in queries if query.exporter != "cadvisor" for metric in query.metrics]
    own = f",{server.selector}" if server.selector else ""
    parts = []
    for label in ("exported_pod", "pod", "podname") if metrics else ():
        series = f'{{__name__=~"{"|".join(metrics)}",{label}=~"w-.+"{own}}}'
        parts.append(f"(count(count by ({label}) ({series})) or vector(0))")
    return " + ".join(parts) or "vector(0)"


def _found(query: Query, counts: Sequence[Sample], newest: Sequence[Sample], now: dt.datetime) -> FoundMetric:
    nodes = tuple(sorted({node for sample in counts if (node := node_of(sample.labels))}))
    ages = [now.timestamp() - sample.value for sample in newest]
    return FoundMetric(
        query.exporter, query.metrics[0], round(sum(sample.value for sample in counts)), nodes,
        max(0.0, min(ages)) if ages else None,
    )  # fmt: skip


def settings_of(source: MetricsSource | None) -> dict[str, Any]:
    """The values that the form and the audit log show."""
    if source is None or not source.url:
        return {"url": ""}
    names = ("url", "auth", "username", "exporters", "selector", "ca")
    return {name: getattr(source, name) for name in names}


def mark_of(source: MetricsSource | None) -> str:
    return versions.mark(settings_of(source))


def failure_text(failure: Mapping[str, Any]) -> str:
    """Why the last try failed, in the reader's language; "" while it works."""
    return NotMeasured(failure["message"], **failure["params"]).detail if failure.get("message") else ""
