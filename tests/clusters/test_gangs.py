"""The driver contract for gangs and services, tested with every driver that executes programs."""

from __future__ import annotations

import datetime as dt
import json
import time
import urllib.request
from dataclasses import replace
from typing import Any

import pytest

from tests.clusters.beds import FOREVER, PROGRAMS, Bed, eventually, find_run, log
from workloads.kubernetes.driver import KubernetesCluster
from workloads.runtime.base import Observed, Phase, PodPlacement, Refused, RunRef, RunSpec
from workloads.runtime.setups import Setup

OVER = (Phase.SUCCEEDED, Phase.FAILED, Phase.LOST)
MEET = """
import os, json, socket, time
peers = [p.rsplit(":", 1) for p in os.environ["PORTAL_HOSTS"].split(",")]
rank = int(os.environ["PORTAL_RANK"])
def connect(address):
    while True:
        try: return socket.create_connection(address, timeout=5)
        except OSError: time.sleep(0.1)
if rank == 0:
    door = socket.create_server(("", int(peers[0][1])))
    said = []
    for _ in peers[1:]:
        peer, _ = door.accept()
        said.append(peer.recv(99).decode()); peer.sendall(b"welcome")
    print(sorted(said))
else:
    where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])) if "MASTER_ADDR" in os.environ else (
        lambda chief: (chief[0], int(chief[1])))(json.loads(os.environ["TF_CONFIG"])["cluster"]["chief"][0].rsplit(":", 1))
    peer = connect(where); peer.sendall(f"rank {rank}".encode()); print(peer.recv(99).decode())
"""

ONE_FAILS = """
import os, socket, sys, time
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "1":
    while True:  # not before the other is up
        try: socket.create_connection(where, timeout=5).recv(1); break
        except OSError: time.sleep(0.1)
    print("no"); sys.exit(3)
print("up", flush=True)
door = socket.create_server(("", where[1]))
while True: door.accept()[0].sendall(b"!")
"""


def gang(bed: Bed, program: str, template: str = "torch", **changes: Any) -> RunSpec:
    """Two ranks of one card each, on one node."""
    node = bed.spec("hello").placement[0].node
    spec = bed.spec(
        "hello", kind="distributed", pods=2, setup=Setup(template=template, parameter_servers=1),
        placement=(PodPlacement(0, node, (0,)), PodPlacement(1, node, (1,))),
    )  # fmt: skip
    command = (*spec.command[:-1], program)
    return replace(spec, command=command, ref=replace(spec.ref, kind="distributed"), **changes)


def until(bed: Bed, spec: RunSpec, *phases: Phase) -> Observed:
    """Acts as the portal does: ensures the run again while it is gated, and stops the other ranks once it is over."""

    def look() -> Observed | None:
        run = find_run(bed.driver, spec.ref)
        if run is not None and run.gated:
            bed.driver.ensure(spec)
        if run is not None and run.over and not run.stopping:
            bed.driver.stop(spec.ref, spec.grace)
        return run if run is not None and run.phase in phases else None

    return eventually(look)


def remove_until_gone(bed: Bed, spec: RunSpec) -> None:
    """Acts as the portal does: removes the run again as long as it is observed."""

    def gone() -> bool:
        bed.driver.remove(spec.ref)
        return find_run(bed.driver, spec.ref) is None

    eventually(gone)


class TestGang:
    @pytest.mark.parametrize("template", ["torch", "tensorflow"])
    def test_ranks_communicate_by_name_and_each_keeps_its_log_and_exit_code(
        self, executing_bed: Bed, template: str
    ) -> None:
        spec = gang(executing_bed, MEET, template)
        executing_bed.driver.ensure(spec)
        run = until(executing_bed, spec, *OVER)
        assert (run.phase, run.exit_code, run.ref) == (Phase.SUCCEEDED, 0, spec.ref), run
        assert [log(executing_bed.driver, spec.ref, rank=rank) for rank in (0, 1)] == ["['rank 1']\n", "welcome\n"]
        assert [(rank.phase, rank.exit_code, rank.node) for rank in run.ranks] == [
            (Phase.SUCCEEDED, 0, spec.placement[0].node)
        ] * 2
        assert len(set(run.cards)) == 2
        remove_until_gone(executing_bed, spec)

    def test_gang_with_a_failed_rank_ends_and_names_the_rank(self, executing_bed: Bed) -> None:
        spec = gang(executing_bed, ONE_FAILS, grace=5)
        executing_bed.driver.ensure(spec)
        run = until(executing_bed, spec, *OVER)
        assert (run.phase, run.exit_code) == (Phase.FAILED, 3)
        assert [(rank.exit_code, rank.stop_requested) for rank in run.ranks] == [(143, True), (3, False)]
        time.sleep(6)  # a deleted pod's log would be gone by now
        assert [log(executing_bed.driver, spec.ref, rank=rank) for rank in (0, 1)] == ["up\n", "no\n"]

    def test_stopped_gang_lets_every_rank_save(self, executing_bed: Bed) -> None:
        spec = gang(executing_bed, PROGRAMS["polite"][0], grace=20)
        executing_bed.driver.ensure(spec)
        until(executing_bed, spec, Phase.RUNNING)
        eventually(lambda: all("up" in log(executing_bed.driver, spec.ref, rank=rank) for rank in (0, 1)))
        executing_bed.driver.stop(spec.ref, 20)
        executing_bed.driver.stop(spec.ref, 20)
        run = until(executing_bed, spec, *OVER)
        assert [rank.exit_code for rank in run.ranks] == [3, 3]
        assert [log(executing_bed.driver, spec.ref, rank=rank) for rank in (0, 1)] == ["up\nsaved\n"] * 2
        remove_until_gone(executing_bed, spec)

    def test_gang_stopped_before_its_start_is_removed(self, executing_bed: Bed) -> None:
        spec = gang(executing_bed, FOREVER)
        executing_bed.driver.ensure(spec)
        executing_bed.driver.stop(spec.ref, 1)
        until(executing_bed, spec, *OVER)
        remove_until_gone(executing_bed, spec)

    def test_notice_is_readable_on_every_rank(self, executing_bed: Bed) -> None:
        spec = gang(executing_bed, PROGRAMS["waits_for_notice"][0])
        executing_bed.driver.ensure(spec)
        until(executing_bed, spec, Phase.RUNNING)
        eventually(lambda: all("up" in log(executing_bed.driver, spec.ref, rank=rank) for rank in (0, 1)))
        executing_bed.driver.announce(spec.ref, dt.datetime(2031, 5, 1, 12, tzinfo=dt.UTC))
        notices = [lambda rank=rank: "2031" in log(executing_bed.driver, spec.ref, rank=rank) for rank in (0, 1)]
        for notice in notices:
            eventually(notice)
        executing_bed.driver.announce(spec.ref, None)
        assert until(executing_bed, spec, *OVER).phase is Phase.SUCCEEDED

    def test_gang_whose_leader_decides_succeeds_with_its_leader(self, executing_bed: Bed) -> None:
        program = "import json, os, time\nchief = json.loads(os.environ['TF_CONFIG'])['task']['type'] == 'chief'\n"
        spec = gang(executing_bed, program + "time.sleep(1 if chief else 600)", "tensorflow-ps")
        executing_bed.driver.ensure(spec)
        run = until(executing_bed, spec, *OVER)
        assert (run.phase, run.exit_code) == (Phase.SUCCEEDED, 0)

    def test_ensure_is_idempotent_for_gangs_and_refuses_a_foreign_name(self, executing_bed: Bed) -> None:
        spec = gang(executing_bed, FOREVER)
        for _ in range(3):
            executing_bed.driver.ensure(spec)
        until(executing_bed, spec, Phase.RUNNING)
        mine = replace(spec, ref=RunRef(spec.ref.name, spec.ref.namespace, "s-mine", kind="distributed"))
        with pytest.raises(Refused) as error:
            executing_bed.driver.ensure(mine)
        assert error.value.code == "name_taken"
        executing_bed.driver.stop(mine.ref, 0)
        executing_bed.driver.remove(mine.ref)
        assert [run.ref for run in executing_bed.driver.observe()] == [spec.ref]
        assert find_run(executing_bed.driver, spec.ref).stopping is False  # type: ignore[union-attr]


def service(bed: Bed, program: str, **setup: Any) -> RunSpec:
    spec = bed.spec("hello", kind="service", port=18080, setup=Setup(port=18080, **setup), token="its-secret")
    return replace(spec, command=(*spec.command[:-1], program), ref=replace(spec.ref, kind="service"))


SERVE = """
import http.server, os, sys, time
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/die": print("dying", flush=True); os._exit(5)
        self.send_response(200 if self.path == "/healthz" else 201); self.end_headers(); self.wfile.write(b"here")
http.server.ThreadingHTTPServer((os.environ["PORTAL_ADDRESS"], int(os.environ["PORTAL_PORT"])), Page).serve_forever()
"""


class TestService:
    def fetch(self, bed: Bed, spec: RunSpec, path: str = "/") -> bytes:
        if (endpoint := bed.driver.endpoint(spec.ref)) is None:
            return b""
        try:
            return urllib.request.urlopen(f"http://{endpoint[0]}:{endpoint[1]}{path}", timeout=2).read()  # type: ignore[no-any-return]
        except OSError:
            return b""

    def test_service_responds_becomes_ready_restarts_after_an_exit_and_can_be_stopped(self, executing_bed: Bed) -> None:
        spec = service(executing_bed, SERVE, ready_path="/healthz")
        executing_bed.driver.ensure(spec)
        assert eventually(lambda: self.fetch(executing_bed, spec)) == b"here"
        run = find_run(executing_bed.driver, spec.ref)
        assert run is not None
        assert (run.phase, run.ranks[0].ready, run.ranks[0].restarts) == (Phase.RUNNING, True, 0)

        def has_restarted() -> bool:
            run = find_run(executing_bed.driver, spec.ref)
            assert run is not None
            assert run.phase is Phase.RUNNING, run
            return run.ranks[0].restarts == 1 and bool(run.ranks[0].ready)

        assert executing_bed.driver.logs(spec.ref, previous=True).data == b""
        self.fetch(executing_bed, spec, "/die")
        eventually(has_restarted)
        before = executing_bed.driver.logs(spec.ref, previous=True)
        assert b"dying\n" in before.data + executing_bed.driver.logs(spec.ref).data
        assert before.end
        if isinstance(executing_bed.driver, KubernetesCluster):  # it separates the logs of restarts
            assert executing_bed.driver.logs(spec.ref, previous=True, tail=1).data.endswith(b"dying\n")
        executing_bed.driver.stop(spec.ref, 1)
        run = until(executing_bed, spec, *OVER)
        assert executing_bed.driver.endpoint(spec.ref) is None
        remove_until_gone(executing_bed, spec)

    def test_service_with_a_failing_probe_is_not_ready(self, executing_bed: Bed) -> None:
        spec = service(executing_bed, SERVE.replace("200 if", "503 if"), ready_path="/healthz")
        executing_bed.driver.ensure(spec)
        until(executing_bed, spec, Phase.RUNNING)
        time.sleep(3)
        run = find_run(executing_bed.driver, spec.ref)
        assert run is not None
        assert run.ranks[0].ready is False

    def test_service_program_gets_its_base_path_and_token(self, executing_bed: Bed) -> None:
        tell = "import json, os; print(json.dumps(dict(os.environ)), flush=True)\n"
        spec = service(executing_bed, tell + SERVE)
        executing_bed.driver.ensure(spec)
        until(executing_bed, spec, Phase.RUNNING)  # before that there may be no pod yet
        lines = eventually(lambda: log(executing_bed.driver, spec.ref).rpartition("\n")[0])
        env = json.loads(lines.splitlines()[0])
        assert (env["PORTAL_BASE_PATH"], env["PORTAL_TOKEN"]) == ("/", "its-secret")
        assert "JUPYTER_TOKEN" not in env
