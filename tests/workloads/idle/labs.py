"""Real JupyterLabs and their series in a Prometheus, for tests of idle notebooks from the process to the stop."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import connect

from tests.clusters.realcluster import cannot
from workloads.clusters.drivers import driver_for
from workloads.clusters.run_spec import ref_of, tokens_of
from workloads.models import Attempt
from workloads.runtime.base import base_path

EVERY = dt.timedelta(seconds=30)


def asked_of(attempt: Attempt, method: str, path: str, **body: Any) -> Any:
    """The response of the notebook server's API; None while the server is starting."""
    endpoint = driver_for(attempt.cluster).endpoint(ref_of(attempt))
    if endpoint is None:
        return None
    root = f"http://{endpoint[0]}:{endpoint[1]}{base_path('notebook', attempt.workload.public_id)}api/"
    headers = {"Authorization": f"token {tokens_of(attempt)['notebook']}"}
    try:
        return httpx.request(
            method, root + path, headers=headers, json=body or None, timeout=30, trust_env=False
        ).json()
    except httpx.TransportError:
        return None


def compute(attempt: Attempt) -> None:
    """Starts a kernel that computes until it is stopped, as a cell of a notebook would."""
    kernel = asked_of(attempt, "POST", "kernels", name="python3")["id"]
    host, port = driver_for(attempt.cluster).endpoint(ref_of(attempt)) or ("", 0)
    path = f"{base_path('notebook', attempt.workload.public_id)}api/kernels/{kernel}/channels"
    headers = {"Authorization": f"token {tokens_of(attempt)['notebook']}"}
    message = {
        "header": {"msg_id": uuid.uuid4().hex, "username": "a", "session": uuid.uuid4().hex, "msg_type": "execute_request",
                   "version": "5.3"},
        "parent_header": {}, "metadata": {}, "channel": "shell", "buffers": [],
        "content": {"code": "while True: sum(range(1000))", "silent": False, "store_history": False,
                    "user_expressions": {}, "allow_stdin": False, "stop_on_error": True},
    }  # fmt: skip
    with connect(f"ws://{host}:{port}{path}", additional_headers=headers, open_timeout=60, proxy=None) as socket:
        socket.send(json.dumps(message))
        while json.loads(socket.recv(timeout=60)).get("content", {}).get("execution_state") != "busy":
            pass


def written(folder: Path, series: Sequence[str], begin: dt.datetime, end: dt.datetime) -> None:
    """Writes a sample of each series (name, labels and value) for every half minute into the database of a Prometheus that is
    not started yet. All series have the same name."""
    promtool = shutil.which("promtool")
    if promtool is None:
        cannot("promtool is not installed")
    times = [begin + n * EVERY for n in range(int((end - begin) / EVERY) + 1)]
    samples = [f"{each} {moment.timestamp():.0f}" for each in series for moment in times]
    name = series[0].partition("{")[0]
    (folder / "history.txt").write_text("\n".join([f"# TYPE {name} gauge", *samples, "# EOF", ""]))
    command = [str(promtool), "tsdb", "create-blocks-from", "openmetrics", f"{folder}/history.txt", f"{folder}/data"]
    subprocess.run(command, check=True, capture_output=True)
