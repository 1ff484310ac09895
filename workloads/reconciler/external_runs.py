"""External runs: what others submit to a cluster and the portal admits. A run found in a listing becomes a workload, and its
state becomes the observed state of that workload's attempt. From then on it is like any other: planned, admitted, warned,
stopped, queued again.
Each listing shows everything again, so the next one makes up for one that was lost or killed anywhere. If two processes register
the same run at once, a unique key keeps it one workload. Runs that are tied to no department are not even listed.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import orjson
import structlog
from django.db import IntegrityError
from django.db.models import F, Q
from django.utils import translation

from portal import audit, names
from portal.access import Actor, Right
from portal.errors import N_, Invalid, Problem
from portal.infra.crypt import Undecryptable, decrypt, encrypt
from portal.infra.locks import durable
from portal.models import Department, User
from portal.notify.events import emit
from portal.prepared import insert
from quotas.forms.durations import SECONDS, parts_of
from quotas.models import ClaimState, Cluster, Pool, Quota
from quotas.planning import claims
from workloads.clusters.run_spec import ref_of
from workloads.lifecycle import ON_CLUSTER, State
from workloads.models import Attempt, ExternalWork, Image, Kind, Workload
from workloads.reconciler.transitions import new_attempt
from workloads.requests.pod_amounts import Amount, amount_of
from workloads.requests.request import LONGEST, WorkloadRequest, claim_fields, settings_of
from workloads.requests.verdict import refuse_crowding, refuse_impossible
from workloads.runtime.base import ClusterError, ExternalRun, Observed, Phase, Refused
from workloads.runtime.external import Admits, ExternalPod, ExternalRef
from workloads.sharing.nodes import PRODUCT, texts
from workloads.sharing.outside import Offered, asks_by_claim, requests
from workloads.status.status_line import situation_of

log = structlog.get_logger(__name__)
MISSING = dt.timedelta(seconds=60)  # a replica that is not recreated within this time is no longer wanted
NOTIFY_EVERY, NOTIFY_AT_ONCE = dt.timedelta(seconds=60), 20
NUMBERS = re.compile(r"[\d:.]+")  # a sentence that differs only in these causes no new event
ROWS = ("workload__pool__group__cluster", "workload__department", "workload__author", "cluster")


class NotRead(Invalid):
    """Why the run cannot become a workload; written to its pods, in English."""

    code = "not_admitted"


def is_admitting(driver: object) -> TypeGuard[Admits]:
    """Whether the portal admits what others submit to the driver's cluster."""
    return bool(getattr(driver, "admits", False))


def seen_of(cluster: Cluster, driver: object, *, now: dt.datetime) -> dict[str, Observed] | None:
    """As `look`, but None if the cluster admits no external runs or cannot list them: other workloads do not depend on it."""
    if not is_admitting(driver):
        return None
    try:
        return look(cluster, driver, now=now)
    except ClusterError as error:
        log.error("external.not_listed", cluster=cluster.name, error=str(error))
        return None


def look(cluster: Cluster, driver: Admits, *, now: dt.datetime) -> dict[str, Observed]:
    """One listing: register new runs, stop workloads whose runs are gone, and return the observed state of the others by run
    name. Raises Unreachable."""
    ExternalWork.objects.filter(cluster=cluster).exclude(manifest="").exclude(workload__finished_at=None).update(
        manifest=""
    )
    concerned = Q(workload__finished_at=None) | Q(
        workload__in=Attempt.objects.filter(cluster=cluster, removed_at=None).values("workload")
    )
    rows = {row.key or "": row for row in ExternalWork.objects.filter(concerned, cluster=cluster).exclude(key=None)
            .select_related(*ROWS)}  # fmt: skip
    runs: dict[str, ExternalRun] = {run.ref.key: run for run in driver.external([row.ref for row in rows.values()])}
    leaving, refusals = _leaving(rows.values(), runs), 0
    for key, run in runs.items():
        if key in rows or not run.pods:
            continue
        before = _free_row(run, rows.values(), runs)
        if before is not None and before.key is not None:
            old = before.key
            if _rebind(before, run.ref.key, pod=run.ref.pod, pod_uid=run.ref.pod_uid):
                del rows[old]
                rows[key] = before
        elif run.ref.pod_uid and leaving[place := _place(run.ref.uid, run.asked)]:
            leaving[place] -= 1  # its place becomes free
        elif run.waits and run.department:
            try:
                refusals += _register_or_notify(cluster, driver, run, now, may_notify=refusals < NOTIFY_AT_ONCE)
            except Exception:  # one person's faulty input must not affect others
                log.exception("external.not_read", cluster=cluster.name, run=str(run.ref))
    attempts = _latest_attempts(rows.values())
    seen: dict[str, Observed] = {}
    for key, row in rows.items():
        attempt = attempts.get(row.workload_id)
        if attempt is None:
            continue
        news = _observed(row, attempt, runs.get(key), driver, now)
        if news is not None:
            seen[attempt.run_name] = news
    _show_why_they_wait(rows.values(), attempts, driver, now)
    return seen


def _latest_attempts(rows: Any) -> dict[int, Attempt]:
    keys = [row.workload_id for row in rows]
    latest = Attempt.objects.filter(workload__in=keys, number=F("workload__attempts_made"))
    related = ("workload__department", "workload__pool", "workload__author", "workload__external", "claim", "cluster")
    return {attempt.workload_id: attempt for attempt in latest.select_related(*related)}


# One run, one row -----------------------------------------------------------------------------------------------------


def _free_row(run: ExternalRun, rows: Any, runs: Mapping[str, ExternalRun]) -> ExternalWork | None:
    """The oldest workload of the same object whose own pod is gone: a new pod with the same requests takes its place."""
    if not run.ref.pod_uid:
        return None
    free = [
        row for row in rows
        if row.uid == run.ref.uid and row.pod_uid and row.asked == run.asked and row.workload.finished_at is None
        and not _live(row, row.workload.attempts_made, runs.get(row.key or ""))
    ]  # fmt: skip
    return min(free, key=lambda row: row.workload_id, default=None)


def _live(row: ExternalWork, number: int, run: ExternalRun | None) -> tuple[ExternalPod, ...]:
    """The live pods of the attempt with this number. Pods of the attempt before may stay forever, because their node is lost."""
    live = run.live if run is not None else ()
    return tuple(pod for pod in live if pod.leaving is None) if row.bound < number else live


def _place(uid: str, asked: Mapping[str, float | str]) -> tuple[object, ...]:
    return (uid, *sorted(asked.items()))


def _leaving(rows: Iterable[ExternalWork], runs: Mapping[str, ExternalRun]) -> Counter[tuple[object, ...]]:
    """Number of replicas whose pods are in their grace, by what the pods that replace them must request."""
    return Counter(
        _place(row.uid, row.asked) for row in rows
        if row.pod_uid and row.workload.finished_at is None
        and (live := _live(row, row.workload.attempts_made, runs.get(row.key or "")))
        and all(pod.leaving is not None for pod in live)
    )  # fmt: skip


def _rebind(row: ExternalWork, key: str, **fields: str) -> bool:
    """Bind the row to a new pod, by compare-and-set. False if another process was first."""
    values: dict[str, Any] = {"key": key, "bound": row.workload.attempts_made, "missing_since": None, **fields}
    try:
        with durable():
            changed = ExternalWork.objects.filter(pk=row.pk, key=row.key).update(**values)
    except IntegrityError:  # another process registered it meanwhile
        return False
    for name, value in values.items():
        setattr(row, name, value)
    return bool(changed)


def _observed(
    row: ExternalWork, attempt: Attempt, run: ExternalRun | None, driver: Admits, now: dt.datetime
) -> Observed | None:
    """The observed state of the attempt; None if nothing is left of it that holds capacity."""
    state = State(row.workload.state)
    live = _live(row, attempt.number, run)
    alone = bool(row.pod_uid) or row.kind == "Pod"
    news = Observed(ref_of(attempt), row.workload.public_id, attempt.number, Phase.PENDING)
    if run is not None and run.finished is not None:
        return _ended(news, run, run.finished)
    if run is None or not live:
        return _without_pods(row, attempt, run, news, alone, driver, now)
    if row.missing_since is not None or (row.bound < attempt.number and state is not State.STOPPING):
        ExternalWork.objects.filter(pk=row.pk).update(missing_since=None, bound=attempt.number)
    inside = [pod for pod in live if not pod.gated]
    gated = [pod for pod in live if pod.gated and pod.leaving is None]
    waiting = [pod for pod in gated if pod.asked == row.asked]
    if not inside:
        if state is State.STOPPING:
            return None  # the pods that are left wait behind the gate and hold nothing
        if gated and not waiting:  # its submitters changed its requests: that is another workload
            _let_go(row, now)
            return None
        return replace(news, gated=state in ON_CLUSTER and len(waiting) >= row.workload.pods)
    running = [pod for pod in inside if pod.phase is Phase.RUNNING]
    first = (running or inside)[0]
    grace = dt.timedelta(seconds=max(1, attempt.grace))
    return replace(
        news,
        phase=Phase.RUNNING if running else Phase.PENDING,
        stopping=all(pod.leaving is not None and pod.leaving <= grace for pod in inside),
        node=first.node,
        started_at=min((pod.started_at for pod in running if pod.started_at), default=None),
        reason=next((pod.reason for pod in inside if pod.reason), ""),
        message=next((pod.message for pod in inside if pod.reason), ""),
        gated=bool(waiting) and len(inside) < row.workload.pods,
        displaced_at=None if running else min((pod.displaced_at for pod in inside if pod.displaced_at), default=None),
    )


def _ended(news: Observed, run: ExternalRun, phase: Phase) -> Observed:
    over = [pod for pod in run.pods if pod.phase not in (Phase.PENDING, Phase.RUNNING)]
    bad = next((pod for pod in over if pod.exit_code), over[-1] if over else None)
    return replace(
        news,
        phase=phase,
        exit_code=(0 if phase is Phase.SUCCEEDED else bad.exit_code if bad else None),
        reason=run.reason if phase is Phase.FAILED else "",
        message=run.message if phase is Phase.FAILED else "",
        node=bad.node if bad else "",
        started_at=min((pod.started_at for pod in over if pod.started_at), default=None),
        finished_at=max((pod.finished_at for pod in over if pod.finished_at), default=None),
    )


def _without_pods(
    row: ExternalWork, attempt: Attempt, run: ExternalRun | None, news: Observed, alone: bool, driver: Admits,
    now: dt.datetime,
) -> Observed | None:  # fmt: skip
    """As `_observed`, for a run without live pods: it is over, its controller is about to create some, or it was withdrawn."""
    state, again = State(row.workload.state), row.bound < attempt.number
    if run is not None and run.pods and alone and not again:
        pod = run.pods[-1]
        phase = Phase.LOST if row.pod_uid else pod.phase  # a controller recreates a replica, whatever its exit code
        return replace(
            news, phase=phase, exit_code=pod.exit_code, reason=pod.reason, message=pod.message, node=pod.node,
            started_at=pod.started_at, finished_at=pod.finished_at,
        )  # fmt: skip
    if row.workload.finished_at is not None or state is State.STOPPING:
        return None
    if row.kind == "Pod" and again:
        _make_again(row, driver, now)
        return news if state in ON_CLUSTER else None
    if run is None or (run.suspended and not (again and run.suspended_by_portal)):
        _let_go(row, now)
        return None
    if alone and not (run is not None and run.live):  # live pods here are left of the attempt before
        if row.missing_since is None:
            ExternalWork.objects.filter(pk=row.pk).update(missing_since=now)
        elif now - row.missing_since > MISSING:
            _let_go(row, now)
            return None
    return news if state in ON_CLUSTER else None


def _make_again(row: ExternalWork, driver: Admits, now: dt.datetime) -> None:
    try:
        text = decrypt(row.manifest, N_("The pod of %(name)s"), row.workload.name)
        uid = driver.recreate_external(orjson.loads(text))
    except (Refused, Undecryptable) as error:
        log.warning("external.not_made_again", run=str(row), error=str(error))
        _let_go(row, now)
        return
    except ClusterError as error:
        log.warning("external.not_made_again", run=str(row), error=str(error))
        return
    if uid is not None:
        _rebind(row, uid, uid=uid)


def _let_go(row: ExternalWork, now: dt.datetime) -> None:
    """Stop the workload, as if that had been requested here: its submitter deleted or suspended the run."""
    live = Workload.objects.filter(pk=row.workload_id, finished_at=None, cancel_requested_at=None)
    if live.update(cancel_requested_at=now, version=F("version") + 1):
        log.info("external.taken_away", workload=row.workload.public_id, run=str(row))


# A new one ------------------------------------------------------------------------------------------------------------


def _register_or_notify(
    cluster: Cluster, driver: Admits, run: ExternalRun, now: dt.datetime, *, may_notify: bool
) -> bool:
    """Register the run; True if a refusal was written to its pods. `may_notify`: whether that may be done, because each costs
    requests to the cluster."""
    with translation.override("en"):
        try:
            register(cluster, run, now=now)
            return False
        except Problem as problem:
            text = f"cannot be admitted: {problem.detail}"
    if text[:900] == run.status or not may_notify:
        return False
    log.warning("external.not_admitted", cluster=cluster.name, run=str(run.ref), why=text)
    _notify(driver, run.ref, text, event=True)
    return True


def _notify(driver: Admits, ref: ExternalRef, text: str, *, event: bool) -> None:
    try:
        driver.notify_external(ref, text, event=event)
    except ClusterError as error:
        log.warning("external.notify_failed", run=str(ref), error=str(error))


def register(cluster: Cluster, run: ExternalRun, *, now: dt.datetime) -> Workload | None:
    """Queue a workload for the run; None if another process just did. Raises NotRead, QueueFull, or Impossible."""
    department = Department.objects.filter(slug=run.department).first()
    author = _author(cluster, run, department)
    if department is None:
        raise NotRead("there is no department %(slug)s", slug=run.department)
    if department.children.exists():
        raise NotRead("%(slug)s has teams: name one of them", slug=run.department)
    actor, ref = Actor(author), run.ref
    refuse_crowding(actor)
    request = _request(cluster, run, department)
    refuse_impossible(request.workload(department, author, now=now), request, now=now)
    try:
        with durable():
            ExternalWork.objects.filter(cluster=cluster, key=ref.key).exclude(workload__finished_at=None).update(
                key=None
            )
            workload = request.workload(department, author, now=now)
            workload.attempts_made = 1
            insert(workload)
            ExternalWork.objects.create(
                workload=workload, cluster=cluster, key=ref.key, api=ref.api, kind=ref.kind, namespace=ref.namespace,
                name=ref.name, uid=ref.uid, pod=ref.pod, pod_uid=ref.pod_uid,
                manifest=encrypt(orjson.dumps(run.manifest).decode()) if run.manifest else "",
                asked=dict(run.asked),
                submitted_by=run.submitted_by[:253], submitted_with=run.submitted_with[:40],
            )  # fmt: skip
            new_attempt(workload, claims.ask(**claim_fields(workload)), number=1, now=now)
            facts = {"name": workload.name, "pool": workload.pool.slug, "pods": workload.pods, "object": str(ref),
                     "submitted_by": run.submitted_by, "submitted_with": run.submitted_with}  # fmt: skip
            audit.record(actor, "workload.submitted", workload.public_id, department=department, after=facts)
            emit("workload.queued", department=department, workload=workload.public_id, attempt=1)
    except IntegrityError:
        return None
    return workload


def _author(cluster: Cluster, run: ExternalRun, department: Department | None) -> User | None:
    """The account with the submitter's name, if it may submit in the department. Raises NotRead if only the run's own label ties
    it to the department and its submitter may not submit there. The error is the same if there is no such department, so that
    strangers do not learn which ones exist."""
    prefix = str(cluster.options.get("user_prefix", ""))
    name = run.submitted_by.removeprefix(prefix) if run.submitted_by.startswith(prefix) else ""  # else a namesake
    user = User.objects.filter(username=name, is_active=True).first() if name else None
    if user is not None and department is not None and Actor(user).may(Right.SUBMIT, department):
        return user
    if not run.by_namespace:
        raise NotRead(
            "the label names %(department)s, and the user %(user)s has no account in the portal that may submit there; a "
            "namespace that belongs to the department needs none",
            department=run.department, user=run.submitted_by or "?",
        )  # fmt: skip
    return None


def _request(cluster: Cluster, run: ExternalRun, department: Department) -> WorkloadRequest:
    if not run.alike:
        raise NotRead(
            "its pods ask for different amounts of GPU (%(amounts)s), and a workload is so many pods of one amount: let each "
            "ask for the same, or submit those that differ as an object of their own. A launcher or head that only "
            "coordinates needs no GPU, and is not counted",
            amounts=_amounts(run.pods),
        )  # fmt: skip
    if asks_by_claim(run.sample):
        raise NotRead(
            "it asks for devices by resource claims (DRA), of which nobody knows before it starts how much they take: ask for "
            "resources.limits such as nvidia.com/gpu: 2, or submit it in the portal, whose own workloads get claims in pools "
            "that are shared by DRA"
        )
    if run.unstoppable:
        raise NotRead(run.unstoppable)
    pool, amount = _pool(cluster, run, department)
    asked, ref, containers = requests(run.sample), run.ref, (run.sample.get("spec") or {}).get("containers") or [{}]
    name = names.cleaned(names.tidy(run.settings.get("name", ""))[:100]) or (ref.pod or ref.name)[:100]
    image_name = names.cleaned(str(containers[0].get("image") or "?")[:200], name=False) or "?"
    image, _made = Image.objects.get_or_create(
        name=image_name, defaults={"title": image_name[:100], "kinds": [Kind.EXTERNAL.value], "active": False}
    )
    return WorkloadRequest(
        kind=Kind.EXTERNAL,
        name=name,
        pool=pool,
        image=image,
        pods=run.wanted,
        units_per_pod=0 if amount.profile else amount.units,
        cores_per_pod=amount.cores,
        profile=amount.profile,
        cpu_milli=-int(-asked.get("cpu", 0) * 1000 // 1),
        memory_mib=-int(-asked.get("memory", 0) // 2**20),
        priority=_number(run.settings, "priority"),
        max_runtime=_seconds(run.settings),
        preemptible=_truth(run.settings, "preemptible", default=True),
        own_only=_truth(run.settings, "own-only", default=False),
    )


def _amounts(pods: Iterable[ExternalPod]) -> str:
    """The different requests, each with the first pod that has it: "nvidia.com/gpu 1: ray-head; nvidia.com/gpu 2: ray-a"."""
    first: dict[str, str] = {}
    for pod in pods:
        words = [f"{name} {amount:g}" if isinstance(amount, float) else f"{name} {amount}"
                 for name, amount in sorted(pod.asked.items())]  # fmt: skip
        first.setdefault(", ".join(words) or "none", pod.name)
    return "; ".join(f"{amount[:80]}: {name}" for amount, name in list(first.items())[:4])


def _pool(cluster: Cluster, run: ExternalRun, department: Department) -> tuple[Pool, Amount]:
    """The pool that the run names, or the one that can serve it in which the department has the most guaranteed quota; and the
    amount there. Raises NotRead."""
    pools = list(Pool.objects.filter(group__cluster=cluster).select_related("group__cluster").order_by("slug"))
    named, settings = run.settings.get("pool", ""), settings_of(cluster)
    product = texts((run.sample.get("spec") or {}).get("nodeSelector")).get(PRODUCT, "")
    own = dict(Quota.objects.filter(department=department, pool__in=pools).values_list("pool", "guaranteed"))
    fitting: list[tuple[Pool, Amount]] = []
    for pool in pools:
        if (named and pool.slug != named) or (product and pool.product != product):
            continue
        offer = Offered(pool.sharing, pool.units_per_card, pool.mig)
        amount = amount_of(run.sample, offer, settings, pool.product)
        if amount is not None:
            fitting.append((pool, amount))
    if not fitting:
        gpus = (
            ", ".join(sorted(f"{key}: {value:g}" for key, value in requests(run.sample).items() if "/" in key))
            or "a GPU"
        )
        where = f"the pool {named}" if named else f"a pool of {product} on {cluster.name}" if product else cluster.name
        raise NotRead("it asks for %(gpus)s, which %(where)s does not offer", gpus=gpus, where=where)
    return max(fitting, key=lambda each: own.get(each[0].pk, 0))


WRONG = "gpu-quota-portal/%(name)s: %(value)s is not %(what)s"


def _number(settings: Mapping[str, str], name: str) -> int:
    text = settings.get(name, "0")
    try:
        value = int(text)
    except ValueError:
        raise NotRead(WRONG, name=name, value=text[:40], what="a whole number") from None
    if not -1000 <= value <= 0:
        raise NotRead("priorities above 0 are for operators; %(value)s is not from -1000 to 0", value=value)
    return value


def _seconds(settings: Mapping[str, str]) -> int | None:
    text = settings.get("max-runtime", "")
    if not text:
        return None
    try:
        seconds = parts_of(text, SECONDS)
    except ValueError:
        seconds = 0
    if not 1 <= seconds <= LONGEST:
        what = "a duration of at most 30 days, such as 8h"
        raise NotRead(WRONG, name="max-runtime", value=text[:40], what=what)
    return seconds


def _truth(settings: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = settings.get(name, "")
    if text not in ("", "true", "false"):
        raise NotRead(WRONG, name=name, value=text[:40], what="true or false")
    return default if not text else text == "true"


# Why it waits ---------------------------------------------------------------------------------------------------------


def _show_why_they_wait(rows: Any, attempts: Mapping[int, Attempt], driver: Admits, now: dt.datetime) -> None:
    """Write on the pods of queued workloads what their pages say, for those with the oldest sentence first."""
    due: Sequence[ExternalWork] = [
        row for row in rows
        if row.workload.state == State.QUEUED and (row.status_at is None or row.status_at <= now - NOTIFY_EVERY)
        and (attempt := attempts.get(row.workload_id)) is not None and attempt.claim.state == ClaimState.PENDING
        and attempt.claim.answered_at is not None
    ]  # fmt: skip
    for row in sorted(due, key=lambda row: (row.status_at is not None, row.status_at or now))[:NOTIFY_AT_ONCE]:
        reader = Actor(User(username=""))  # others can read the pods: nothing that only the author may know
        with translation.override("en"):
            situation = situation_of(reader, row.workload, attempts[row.workload_id])
            text = " ".join(["waits.", situation.sentence, *situation.details])[:900]
        is_new = NUMBERS.sub("#", text) != NUMBERS.sub("#", row.status)
        ExternalWork.objects.filter(pk=row.pk).update(status=text, status_at=now)
        if text != row.status:
            _notify(driver, row.ref, text, event=is_new)
