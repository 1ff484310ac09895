"""Ranks as processes of this machine, and services that restart."""

from __future__ import annotations

import contextlib
import json
import urllib.request

from tests.workloads.embedded_bed import FOREVER, driver, ended, eventually, log, observed, running, spec  # noqa: F401
from workloads.embedded.driver import EmbeddedCluster
from workloads.runtime.base import Phase, PodPlacement, RunRef
from workloads.runtime.setups import Setup

TWO = (PodPlacement(0, "n1", (0, 1)), PodPlacement(1, "n2", (2, 3)))
MEET = """
import os, socket, time
rank, me = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(me) as door:
        peer, _ = door.accept()
        peer.sendall(b"from the master"); print("heard", peer.recv(99).decode())
else:
    while True:
        try: peer = socket.create_connection(me); break
        except OSError: time.sleep(0.05)
    print("heard", peer.recv(99).decode()); peer.sendall(b"from rank " + str(rank).encode())
"""


def gang(code: str, template: str = "torch", **changes: object):  # type: ignore[no-untyped-def]
    pods = changes.pop("pods", 2)
    options = {
        "kind": "distributed",
        "pods": pods,
        "placement": TWO,
        "setup": Setup(template=template, parameter_servers=1),
    }
    return spec(code, **(options | changes))


def log_of(driver: EmbeddedCluster, rank: int) -> str:  # noqa: F811
    return driver.logs(RunRef("w-one-1", "", "id-of-w-one-1"), rank=rank).data.decode()


def test_ranks_connect_through_torchrun_variables_and_each_has_its_cards(driver: EmbeddedCluster) -> None:  # noqa: F811
    driver.ensure(gang(MEET + "\nprint(os.environ['CUDA_VISIBLE_DEVICES'])"))
    run = ended(driver)
    assert (run.phase, run.exit_code) == (Phase.SUCCEEDED, 0)
    assert [log_of(driver, rank) for rank in (0, 1)] == ["heard from rank 1\n0,1\n", "heard from the master\n2,3\n"]
    assert [(r.rank, r.phase, r.node, r.cards, r.exit_code) for r in run.ranks] == [
        (0, Phase.SUCCEEDED, "n1", ("0", "1"), 0),
        (1, Phase.SUCCEEDED, "n2", ("2", "3"), 0),
    ]


def test_each_rank_reads_its_task_in_tf_config(driver: EmbeddedCluster) -> None:  # noqa: F811
    driver.ensure(gang("import os; print(os.environ['TF_CONFIG'])", "tensorflow"))
    ended(driver)
    configs = [json.loads(log_of(driver, rank)) for rank in (0, 1)]
    assert [each["task"] for each in configs] == [{"type": "chief", "index": 0}, {"type": "worker", "index": 0}]
    assert configs[0]["cluster"] == configs[1]["cluster"]


def test_failed_rank_ends_the_others_and_sets_the_exit_code(driver: EmbeddedCluster) -> None:  # noqa: F811
    code = "import os, sys, time\nif os.environ['RANK'] == '1': time.sleep(0.3); sys.exit(3)\n" + FOREVER[12:]
    driver.ensure(gang(code))
    run = ended(driver)
    assert (run.phase, run.exit_code) == (Phase.FAILED, 3)
    assert [(r.exit_code, r.stop_requested) for r in run.ranks] == [(143, True), (3, False)]


def test_parameter_servers_are_stopped_when_the_chief_ends(driver: EmbeddedCluster) -> None:  # noqa: F811
    code = "import os, json, time\nchief = json.loads(os.environ['TF_CONFIG'])['task']['type'] == 'chief'\n"
    places = (*TWO, PodPlacement(2, "n2", (4,)))
    driver.ensure(gang(code + "time.sleep(0.3 if chief else 99)", "tensorflow-ps", pods=3, placement=places))
    run = ended(driver)
    assert (run.phase, run.exit_code) == (Phase.SUCCEEDED, 0)
    assert [rank.exit_code for rank in run.ranks] == [0, 143, 143]


SERVE = """
import http.server, os, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/die": os._exit(5)
        self.send_response(200 if os.path.exists("warm") else 503); self.end_headers(); self.wfile.write(b"here")
http.server.HTTPServer((os.environ["PORTAL_ADDRESS"], int(os.environ["PORTAL_PORT"])), Page).serve_forever()
"""


def test_service_is_ready_when_its_path_responds_and_restarts_when_it_exits(driver: EmbeddedCluster) -> None:  # noqa: F811
    service = spec(SERVE, kind="service", port=8000, setup=Setup(port=8000, ready_path="/healthz"))
    driver.ensure(service)
    running(driver)
    assert observed(driver).ranks[0].ready is False
    (driver.directory("w-one") / "warm").touch()
    eventually(lambda: observed(driver).ranks[0].ready)
    host, port = eventually(lambda: driver.endpoint(service.ref))
    assert urllib.request.urlopen(f"http://{host}:{port}/x", timeout=5).read() == b"here"
    with contextlib.suppress(OSError):
        urllib.request.urlopen(f"http://{host}:{port}/die", timeout=5)
    eventually(lambda: observed(driver).ranks[0].restarts == 1)
    eventually(lambda: observed(driver).ranks[0].ready)
    assert observed(driver).phase is Phase.RUNNING
    assert "exited with 5" in log(driver)
    driver.stop(service.ref, 2)
    assert ended(driver).exit_code == 143
