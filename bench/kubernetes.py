"""The portal and Kueue on one cluster, in one run: latency of a pod, pods a second, and latency of a reclaim for an owner.

Both get the same pods (one card each, no volume), scheduled by the same kube-scheduler onto the same simulated nodes (KWOK). For
Kueue, Jobs are POSTed to the API server, for the portal, requests to its REST API: one request for each pod, from the same number
of threads. A pod is "there" when a watch reports it. `creation` is the rate with the scheduler suspended for both, so that
scheduling existing pods takes no CPU time.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

from bench._clients import SMALL, SMALLS, THREADS, Kueue, Pod, Portal, Requests, job
from bench._installation import ROOT, Installation, cpu_seconds, installed, wait

PARTS = ["latency", "creation", "rate", "reclaim", "submission"]
WARM = 64  # workloads before anything is measured
RESTING = 0.25  # below this many CPU seconds a second, all processes together are at rest


def show_times(name: str, seconds: list[float]) -> None:
    p95 = statistics.quantiles(seconds, n=20)[18]
    print(
        f"{name:44} p50 {statistics.median(seconds) * 1000:6.0f} ms  p95 {p95 * 1000:6.0f} ms  ({len(seconds)})",
        flush=True,
    )


def latency(api: Requests, portal: Portal, kueue: Kueue, count: int) -> None:
    """Latency of one pod, measured in turns, so that a busy moment of the machine affects all alike."""
    taken: dict[str, list[float]] = {"portal": [], "kueue": [], "bare": []}
    ours = []

    def measure(who: str, submit: Callable[[], Pod]) -> Pod:
        began = time.time()
        name = submit()
        taken[who].append(api.await_pods([name], 60) - began)
        time.sleep(0.3)  # idle again
        return name

    for number in range(count):
        ours.append(measure("portal", lambda: portal.submit("vision", "lat")))
        measure("kueue", partial(kueue.submit, "k-vision", f"lat-{number}"))
        measure("bare", partial(bare, api, f"bare-{number}"))
    print("(a) request → pod there, idle")
    for who, name in (("portal", "portal"), ("kueue", "Kueue"), ("bare", "bare POST of a pod")):
        show_times(f"    {name}", taken[who])
    stages(api, ours, dict(zip(ours, taken["portal"], strict=True)))
    kueue.clear("k-vision")


def bare(api: Requests, name: str) -> Pod:
    made = job("default", name, "Pretended-GPU")["spec"]["template"] | {"metadata": {"name": name}}
    api.call("POST", "/api/v1/namespaces/default/pods", {"apiVersion": "v1", "kind": "Pod"} | made)
    return name


def stages(api: Requests, ours: list[Pod], taken: dict[Pod, float] | None = None) -> None:
    """Prints how the latency is composed: the time between the stages stored in the rows, from the request to the watch."""
    from workloads.models import Attempt

    parts: dict[str, list[float]] = {}
    for attempt in Attempt.objects.filter(workload__public_id__in=ours, number=1).select_related("workload", "claim"):
        name = attempt.workload.public_id
        times = [
            ("request begins → checks", api.seen[name] - taken[name] if taken else None),
            ("→ queued (checked, row written)", attempt.queued_at.timestamp()),
            ("→ the plan has the lock", attempt.claim.answered_at and attempt.claim.answered_at.timestamp()),
            ("→ admitted (plan committed)", attempt.admitted_at and attempt.admitted_at.timestamp()),
            ("→ pod there (as the watch tells)", api.seen[name]),
            ("→ noted", attempt.created_at and attempt.created_at.timestamp()),
        ]
        known = [(what, at) for what, at in times if at]
        for (_, before), (what, at) in pairwise(known):
            parts.setdefault(what, []).append(at - before)
    for what, seconds in parts.items():
        show_times(f"      {what}", seconds)


@contextlib.contextmanager
def unscheduled(made: Installation) -> Iterator[None]:
    """Suspends the scheduler, so that only the creation of pods is measured."""
    os.kill(made.pids()["kube-scheduler"], signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(made.pids()["kube-scheduler"], signal.SIGCONT)


def rate(made: Installation, api: Requests, portal: Portal, kueue: Kueue, count: int, name: str) -> None:
    print(f"    {count} one-pod workloads, {THREADS} threads, until all pods exist and are there")
    rates: list[tuple[float, float]] = []
    numbered = [f"{name}-{number}" for number in range(count)]
    for who, submit in (("Kueue", partial(kueue.submit, "k-vision")), ("portal", partial(portal.submit, "vision"))):
        at_rest(made)
        before, cpu, began = api.count(), cpu_seconds(made), time.time()
        with ThreadPoolExecutor(THREADS + 1) as threads:
            exist_at = threads.submit(until_there_are, api, before + count)
            names = list(threads.map(submit, numbered))
            posted = time.time() - began
        exist, there = exist_at.result() - began, api.await_pods(names) - began
        rates.append((count / exist, count / there))
        used = {name: (now - cpu[name]) / count * 1000 for name, now in cpu_seconds(made).items()}
        print(
            f"    {who:10} posted in {posted:5.1f} s; pods exist after {exist:5.1f} s: {count / exist:6.1f}/s;"
            f" there after {there:5.1f} s: {count / there:6.1f}/s",
            flush=True,
        )
        each = "  ".join(
            f"{name} {ms:.1f}" for name, ms in sorted(used.items(), key=lambda item: -item[1]) if ms >= 0.1
        )
        print(f"      CPU ms a pod: {sum(used.values()):.1f}, of it {each}", flush=True)
        if who == "Kueue":
            kueue.clear("k-vision")
        else:
            stages(api, names)
    (kueues, kueues_there), (ours, ours_there) = rates
    print(f"    portal / Kueue = {ours / kueues:.2f}, by the watch {ours_there / kueues_there:.2f}")


def warm_up(api: Requests, portal: Portal, kueue: Kueue) -> None:
    """Lets both do some work first, so that their threads and connections exist."""
    names = [f"warm-{number}" for number in range(WARM)]
    with ThreadPoolExecutor(THREADS) as threads:
        pods = [*threads.map(partial(portal.submit, "vision"), names)]
        pods += threads.map(partial(kueue.submit, "k-vision"), names)
    api.await_pods(pods)
    kueue.clear("k-vision")


def at_rest(made: Installation) -> None:
    """Waits until the work of the previous measurement is finished."""
    used = sum(cpu_seconds(made).values())
    for _ in range(60):
        time.sleep(1)
        before, used = used, sum(cpu_seconds(made).values())
        if used - before < RESTING:
            return
    print(f"    not at rest after a minute: {used - before:.2f} CPU s a second", flush=True)


def until_there_are(api: Requests, pods: int) -> float:
    """Waits until etcd has so many pods; the time then, to a tenth of a second."""
    wait(f"{pods} pods", lambda: api.count() >= pods, 300, pause=0.1)
    return time.time()


def submission(made: Installation, api: Requests, portal: Portal, count: int) -> None:
    """The creation of pods for admitted claims, in this process without watcher and workers, beside a loop that only creates."""
    from django.utils import timezone

    from portal.access import Actor
    from portal.models import User
    from quotas.models import Claim, Pool
    from quotas.planning.run_pass import run_pass
    from workloads import actions
    from workloads.clusters.drivers import driver_for
    from workloads.clusters.run_spec import ROWS, spec_of
    from workloads.kubernetes.manifests import pod as manifest
    from workloads.models import Attempt, Image
    from workloads.reconciler.reconcile import BATCH, sort_work, start
    from workloads.reconciler.workers import WORKERS
    from workloads.requests.request import WorkloadRequest

    made.stop("web", "watcher", "worker", "beat")
    pool = Pool.objects.get(slug=portal.pools["Pretended-GPU"])
    author = User.objects.get(memberships__department__slug="nlp")
    department = author.memberships.get().department
    request = WorkloadRequest(
        kind="job", name="stage", pool=pool, image=Image.objects.get(), command=("python", "train.py")
    )
    since = timezone.now()
    for _ in range(count):
        actions.submit(actor=Actor(author), department=department, request=request)
    began, cpu = time.perf_counter(), time.process_time()
    run_pass(group_id=pool.group_id)
    print(f"(c) one pass admits {count}: {time.perf_counter() - began:.1f} s, {time.process_time() - cpu:.1f} CPU s")
    claims = list(Claim.objects.filter(state="holding", submitted_at__gte=since).values_list("public_id", flat=True))
    assert len(claims) == count, f"{len(claims)} of {count} were admitted"
    rows = Attempt.objects.filter(claim__public_id__in=claims).select_related(*ROWS)
    driver: Any = driver_for(rows[0].cluster)
    manifests = [manifest(spec_of(row), driver.options) for row in rows]
    driver.ensure(spec_of(rows[0]))  # creates the namespace, and one pod that the stage then finds
    path = f"/api/v1/namespaces/{manifests[0]['metadata']['namespace']}/pods"
    for number in range(count // 8):  # room for the loop's pods, so that they are scheduled and run as well
        add_node(made, f"more-{number}", "Pretended-GPU")
    with ThreadPoolExecutor(THREADS) as threads:
        loop = partial(bare_loop, api, driver.api, threads, path, manifests)
        before = loop("before")
        cpu, began = time.process_time(), time.perf_counter()
        with ThreadPoolExecutor(WORKERS) as workers:  # as many batches at once as in the watcher
            batches = [claims[at : at + BATCH] for at in range(0, count, BATCH)]
            list(workers.map(lambda batch: start(sort_work(batch).admitted, threads), batches))
        ours, cpu = count / (time.perf_counter() - began), time.process_time() - cpu
        after = loop("after")
    there = Attempt.objects.filter(claim__public_id__in=claims, created_at__isnull=False).count()
    assert there == count, f"{there} of {count} were created"
    base = (before + after) / 2
    print(f"    stage {ours:6.1f} pods/s ({cpu / count * 1000:.1f} CPU ms each)   bare loop, {THREADS} threads, same client"
          f" and bodies {before:6.1f} and {after:6.1f}/s   ratio {ours / base:.2f}", flush=True)  # fmt: skip


def bare_loop(
    api: Requests, client: Any, threads: ThreadPoolExecutor, path: str, pods: Sequence[Any], tag: str
) -> float:
    """Creates the pods under other names with the portal's client, and removes them. Returns pods a second."""
    own = {"finalizers": [], "labels": {"bare": tag}}
    bodies = [pod | {"metadata": pod["metadata"] | own | {"name": f"{tag}-{n}"}} for n, pod in enumerate(pods)]
    began = time.perf_counter()
    for answer in threads.map(lambda body: client.call("POST", path, body), bodies):
        assert answer.ok, answer
    taken = time.perf_counter() - began
    api.call("DELETE", f"{path}?labelSelector=bare%3D{tag}&gracePeriodSeconds=0")
    wait("its pods gone", lambda: not api.call("GET", f"{path}?labelSelector=bare%3D{tag}&limit=1")["items"])
    return len(bodies) / taken


def reclaim(api: Requests, portal: Portal, kueue: Kueue, count: int) -> None:
    """Latency of a reclaim: the other department has borrowed all, and each job of the owner takes one card back."""
    borrowers = [portal.submit("nlp", f"borrow-{n}", SMALLS["portal"]) for n in range(SMALL)]
    api.await_pods(borrowers)
    api.await_pods([kueue.submit("k-small-nlp", f"borrow-{n}", SMALLS["kueue"]) for n in range(SMALL)])
    time.sleep(5)
    print("(d) owner's request → owner's pod there, one borrower evicted, notice and grace 0")
    taken: dict[str, list[float]] = {"portal": [], "kueue": []}
    ours = []
    for number in range(count):
        for who in taken:
            began = time.time()
            if who == "portal":
                name = portal.submit("vision", f"own-{number}", SMALLS["portal"])
                ours.append(name)
            else:
                name = kueue.submit("k-small-vision", f"own-{number}", SMALLS["kueue"])
            taken[who].append(api.await_pods([name], 60) - began)
            time.sleep(1)
    show_times("    portal", taken["portal"])
    show_times("    Kueue", taken["kueue"])
    stages(api, ours, dict(zip(ours, taken["portal"], strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench kubernetes", description=__doc__)
    parser.add_argument("parts", nargs="*", default=[], help=f"of: {' '.join(PARTS)}")
    parser.add_argument("--count", type=int, default=600)
    arguments = parser.parse_args(None if __name__ == "__main__" else [])
    parts = arguments.parts or PARTS
    with installed(nodes=3 * arguments.count // 8 + 20, cards=8) as made:
        for number in range(SMALL // 8):
            for product in SMALLS.values():  # separate cards for the reclaims, all lent out
                add_node(made, f"{product.lower()}-{number}", product)
        from quotas.models import Cluster
        from workloads.nodes import inventory

        inventory.refresh(Cluster.objects.get())
        api, portal = Requests(made), Portal(made)
        threading.Thread(target=api.watch, daemon=True).start()
        made.start("web", "watcher", "worker", "beat")
        from tests import servers

        servers.wait("web", lambda: servers.listening(int(os.environ["PORT"])), 180)
        if parts != ["submission"]:
            kueue = Kueue(made, api)
            kueue.queue("k-vision", "big", 100_000)
            kueue.queue("k-small-vision", "small", SMALL // 2)
            kueue.queue("k-small-nlp", "small", SMALL // 2)
            time.sleep(3)
            warm_up(api, portal, kueue)
            if "latency" in parts:
                latency(api, portal, kueue, 100)  # a p95 of 40 is its second or third worst
            if "creation" in parts:
                print("(b) created only: the scheduler sleeps")
                with unscheduled(made):
                    rate(made, api, portal, kueue, arguments.count, "created")
            if "rate" in parts:
                print("(b) created, scheduled and run")
                rate(made, api, portal, kueue, arguments.count, "many")
            if "reclaim" in parts:
                reclaim(api, portal, kueue, SMALL // 2)
        api.over.set()
        if "submission" in parts:
            submission(made, api, portal, arguments.count)


def add_node(made: Installation, name: str, product: str) -> None:
    sys.path.insert(0, str(ROOT / "tests/cluster"))
    from control_plane import simulated_node

    made.admin.call("POST", "/api/v1/nodes", simulated_node(name, 8, product))


if __name__ == "__main__":
    main()
