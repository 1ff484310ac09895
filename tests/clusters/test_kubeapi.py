"""Possible responses of an API server, and how the portal interprets them."""

from __future__ import annotations

import datetime as dt
import io
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock
from urllib.parse import parse_qsl

import orjson
import pytest
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from tests.clusters.beds import PlainBed
from workloads.kubernetes import api as kubernetes_api
from workloads.kubernetes.api import Api
from workloads.kubernetes.driver import Connection, KubernetesCluster
from workloads.kubernetes.manifests import SUBMISSION
from workloads.kubernetes.pod_commands import Orders
from workloads.runtime.base import LogChunk, Refused, RunRef, Unreachable

Reply = tuple[int, Any]
RUN = RunRef("w-one-1", "gqp-vision", "s-1")
POD = {"name": RUN.name, "namespace": RUN.namespace, "annotations": {SUBMISSION: RUN.submission_id}}
LOGS = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r"]), max_size=30).map(b"".join)


def response(status: int, body: Any, **headers: str) -> urllib3.HTTPResponse:
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    return urllib3.HTTPResponse(io.BytesIO(data), status=status, headers=headers, preload_content=False)


class Server:
    """Replaces the library's client: `answer(method, path)` returns a response or raises."""

    def __init__(self, answer: Callable[[str, str], urllib3.HTTPResponse]) -> None:
        self.answer, self.requests = answer, []

    configuration = SimpleNamespace(host="https://server")

    @property
    def rest_client(self) -> Any:
        return SimpleNamespace(pool_manager=self)

    def update_params_for_auth(self, headers: dict[str, str], *rest: Any) -> None:
        headers["authorization"] = "Bearer token"

    def request(self, method: str, url: str, *, headers: dict[str, str], **rest: Any) -> urllib3.HTTPResponse:
        assert headers["authorization"] == "Bearer token"
        path, _, query = url.removeprefix("https://server").partition("?")
        self.requests.append((method, path, dict(parse_qsl(query))))
        return self.answer(method, path)


def api(*replies: Reply | Exception) -> tuple[Api, Server]:
    """An API whose server gives these replies in order."""
    script = list(replies)

    def answer(method: str, path: str) -> urllib3.HTTPResponse:
        reply = script.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return response(*reply)

    server = Server(answer)
    return Api(lambda: server), server


class TestResponses:
    @pytest.mark.parametrize(
        "message", ["etcdserver: request is too large", "rpc error: trying to send message larger than max (3 vs. 2)"]
    )
    def test_request_that_is_too_large_is_refused_permanently(self, message: str) -> None:
        """A retry would be too large again: if the server counted as unreachable, the claim would keep its cards forever."""
        client, _server = api((500, {"message": message}))
        reply = client.call("POST", "/pods", {})
        assert (reply.ok, reply.message) == (False, message)

    def test_any_other_500_counts_as_unreachable(self) -> None:
        client, _server = api((500, {"message": "failed calling webhook"}))
        with pytest.raises(Unreachable, match="failed calling webhook"):
            client.call("POST", "/pods", {})

    def test_429_counts_as_unreachable_and_says_when_to_retry(self) -> None:
        server = Server(lambda method, path: response(429, {"message": "slow down"}, **{"Retry-After": "7"}))
        with pytest.raises(Unreachable, match="slow down") as error:
            Api(lambda: server).get("/api/v1/pods/x")
        assert error.value.retry_after == 7

    @pytest.mark.parametrize(
        "reply",
        [(500, {"message": "etcd is away"}), (503, b"<html>"), (401, {}), (200, b"{cut"), (403, {"message": "no right"})],
    )  # fmt: skip
    def test_unusable_response_counts_as_unreachable(self, reply: Reply) -> None:
        with pytest.raises(Unreachable):
            api(reply)[0].get("/api/v1/pods/x")

    @pytest.mark.parametrize(
        "error",
        [urllib3.exceptions.ReadTimeoutError(None, "", "late"), ConnectionResetError()],  # type: ignore[arg-type]
    )
    def test_broken_connection_counts_as_unreachable(self, error: Exception) -> None:
        with pytest.raises(Unreachable):
            api(error)[0].get("/api/v1/pods/x")

    def test_404_means_that_the_object_does_not_exist(self) -> None:
        assert api((404, {"message": "not found"}))[0].get("/api/v1/pods/x") is None


class TestServerThatTimesOut:
    LATE = urllib3.exceptions.ReadTimeoutError(None, "", "late")  # type: ignore[arg-type]

    def test_server_is_probed_with_a_small_request_before_the_next_call(self) -> None:
        client, server = api(self.LATE, (403, {}), (200, {"metadata": {"name": "x"}}), (404, {}))
        with pytest.raises(Unreachable, match="late"):
            client.get("/api/v1/pods/x")
        assert client.get("/api/v1/pods/x") == {"metadata": {"name": "x"}}
        assert client.get("/api/v1/pods/y") is None
        assert [path for _, path, _ in server.requests] == [
            "/api/v1/pods/x",
            "/version",
            "/api/v1/pods/x",
            "/api/v1/pods/y",
        ]

    def test_calls_fail_at_once_until_the_server_responds_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        client, server = api(self.LATE, self.LATE)
        for reason in ("late", "late", "a moment ago", "a moment ago"):
            with pytest.raises(Unreachable, match=reason):
                client.get("/api/v1/pods/x")
        assert [path for _, path, _ in server.requests] == ["/api/v1/pods/x", "/version"]
        later = SimpleNamespace(monotonic=lambda: time.monotonic() + kubernetes_api.PROBE_EVERY)
        monkeypatch.setattr(kubernetes_api, "time", later)
        server.answer = lambda method, path: response(200, {})
        assert client.get("/api/v1/pods/x") == {}

    def test_server_is_probed_by_one_thread_at_a_time(self) -> None:
        probing, reply_allowed = threading.Event(), threading.Event()

        def answer(method: str, path: str) -> urllib3.HTTPResponse:
            if path == "/version":
                probing.set()
                reply_allowed.wait(10)
            elif not probing.is_set():
                raise self.LATE
            return response(200, {})

        server = Server(answer)
        client = Api(lambda: server)
        with pytest.raises(Unreachable, match="late"):
            client.get("/api/v1/pods/x")
        with ThreadPoolExecutor(1) as threads:
            first = threads.submit(client.get, "/api/v1/pods/x")
            assert probing.wait(10)
            with pytest.raises(Unreachable, match="a moment ago"):
                client.get("/api/v1/pods/x")
            reply_allowed.set()
            assert first.result(10) == {}

    def test_refused_connection_fails_at_once_and_needs_no_probe(self) -> None:
        client, server = api(ConnectionRefusedError(), (200, {}))
        with pytest.raises(Unreachable):
            client.get("/api/v1/pods/x")
        assert client.get("/api/v1/pods/x") == {}
        assert len(server.requests) == 2


def item(number: int, **more: object) -> dict[str, object]:
    return {"metadata": {"name": f"pod-{number}", **more}}


class TestList:
    def test_list_reads_all_pages_and_returns_the_version(self) -> None:
        first = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [item(1), item(2)]}
        second = {"metadata": {"resourceVersion": "9"}, "items": [item(3, managedFields=[{"manager": "kubelet"}])]}
        client, server = api((200, first), (200, second))
        assert client.list("/api/v1/pods", labelSelector="a=b") == ([item(1), item(2), item(3)], "9")
        assert [query.get("continue") for _, _, query in server.requests] == [None, "more"]
        assert all(
            query["labelSelector"] == "a=b" and query["limit"] == str(kubernetes_api.PAGE)
            for _, _, query in server.requests
        )

    def test_list_starts_again_when_its_pages_have_expired(self) -> None:
        first = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [item(1), item(2)]}
        whole = {"metadata": {"resourceVersion": "12"}, "items": [item(1), item(3)]}
        client, _ = api((200, first), (410, {"message": "expired"}), (200, whole))
        assert client.list("/api/v1/pods") == ([item(1), item(3)], "12")


class TestWatch:
    def test_watch_yields_complete_lines_and_raises_for_a_truncated_one(self) -> None:
        event = {"type": "ADDED", "object": {"n": 1}}
        client, _ = api((200, orjson.dumps(event) + b"\n\n" + orjson.dumps(event) + b"\n"))
        assert list(client.watch("/api/v1/pods", "1", 5)) == [event, event]
        client, _ = api((200, orjson.dumps(event) + b'\n{"type": "ADD\n'))
        stream = client.watch("/api/v1/pods", "1", 5)
        assert next(stream) == event
        with pytest.raises(Unreachable, match="broke"):
            next(stream)

    def test_watch_yields_an_error_response_as_an_event(self) -> None:
        client, _ = api((410, {"code": 410}))
        assert list(client.watch("/api/v1/pods", "1", 5)) == [{"type": "ERROR", "object": {"code": 410}}]


class TestLog:
    """Logs are read in pieces, and the driver keeps no more of them than requested."""

    def driver(self, log: bytes | Exception) -> KubernetesCluster:
        def answer(method: str, path: str) -> urllib3.HTTPResponse:
            if not path.endswith("/log"):
                return response(200, {"metadata": POD, "spec": {}, "status": {"phase": "Succeeded"}})
            if isinstance(log, Exception):
                broken = response(200, b"")
                broken.stream = mock.Mock(side_effect=log)  # type: ignore[method-assign]
                return broken
            most = server.requests[-1][2].get("limitBytes")
            return response(200, log[: int(most)] if most else log)

        server, driver = Server(answer), KubernetesCluster("east", Connection("", {}))
        driver.api = Api(lambda: server)
        return driver

    @given(log=LOGS, offset=st.integers(0, 40), limit=st.integers(1, 40))
    def test_log_is_read_from_an_offset(self, log: bytes, offset: int, limit: int) -> None:
        with mock.patch.object(kubernetes_api, "PIECE", 3):
            chunk = self.driver(log).logs(RUN, offset=offset, limit=limit)
        offset = offset if offset <= len(log) else 0  # beyond the end: the log has been restarted
        assert (chunk.data, chunk.offset) == (log[offset:][:limit], offset)
        assert chunk.end is (offset + limit >= len(log))

    @given(log=LOGS, tail=st.integers(0, 40), limit=st.integers(1, 40))
    def test_log_tail_is_the_last_lines(self, log: bytes, tail: int, limit: int) -> None:
        with mock.patch.object(kubernetes_api, "PIECE", 3):
            chunk = self.driver(log).logs(RUN, tail=tail, limit=limit)
        lines = [line + b"\n" for line in log.split(b"\n")]
        lines[-1:] = [lines[-1][:-1]] if lines[-1] != b"\n" else []
        last = b"".join(lines[max(0, len(lines) - tail) :])[-limit:]
        assert (chunk.data, chunk.offset, chunk.end) == (last, len(log) - len(last), True)

    def test_log_and_removal_of_an_ended_pod_do_not_read_the_pod_again(self) -> None:
        driver = self.driver(b"all of it")
        driver.orders = Orders(driver.api)
        ended = replace(RUN, ended="uid-1")
        assert driver.logs(ended) == LogChunk(b"all of it", 0, end=True)
        driver.remove(ended)
        pod = "/api/v1/namespaces/gqp-vision/pods/w-one-1"
        requests = [(method, path) for method, path, _ in driver.api.client().requests]
        assert requests == [("GET", f"{pod}/log"), ("PATCH", pod), ("DELETE", pod)]

    def test_interrupted_log_counts_as_unreachable(self) -> None:
        with pytest.raises(Unreachable, match="cut"):
            self.driver(urllib3.exceptions.ProtocolError("cut")).logs(RUN)


def test_forked_process_creates_its_own_client(monkeypatch: pytest.MonkeyPatch) -> None:
    clients: list[object] = []

    def create() -> object:
        clients.append(object())
        return clients[-1]

    client = Api(create)
    assert client.client() is client.client()
    monkeypatch.setattr(kubernetes_api.os, "getpid", lambda: -1)
    assert client.client() is clients[1]
    assert len(clients) == 2


class TestRaces:
    """`ensure` and `stop` while the cluster changes between two of their calls."""

    def drive(self, *replies: Reply) -> tuple[KubernetesCluster, Any]:
        driver = KubernetesCluster("east", Connection("", {"volume": "emptyDir"}))
        driver.api, _ = api(*replies)
        driver.orders = Orders(driver.api)
        driver.homes._open.add(("gqp-vision", "vision", False))
        bed = PlainBed(driver, "image", "python", "n1", namespace="gqp-vision")
        return driver, bed.spec("hello")

    def pod(self, submission: str) -> dict[str, Any]:
        notes = {"gpu-quota-portal/submission": submission}
        return {
            "metadata": {"name": "w", "namespace": "gqp-vision", "uid": "u", "annotations": notes},
            "spec": {},
            "status": {},
        }

    @pytest.mark.parametrize("status", [403, 409])
    def test_second_of_two_concurrent_posts_finds_the_pod_of_the_first(self, status: int) -> None:
        driver, spec = self.drive()
        found = self.pod(spec.ref.submission_id)
        driver.api, server = api((404, {}), (status, {"message": "exceeded quota: second-lock"}), (200, found))
        driver.orders = Orders(driver.api)
        driver.ensure(spec)
        assert [method for method, _, _ in server.requests] == ["GET", "POST", "GET"]

    def test_post_that_conflicts_with_a_foreign_pod_is_refused(self) -> None:
        driver, spec = self.drive((404, {}), (409, {}), (200, self.pod("somebody-elses")))
        with pytest.raises(Refused) as error:
            driver.ensure(spec)
        assert error.value.code == "name_taken"

    @pytest.mark.parametrize(("seconds", "methods"), [(5, ["PATCH"]), (60, ["PATCH", "DELETE"])])
    def test_stop_deadline_without_effect_is_followed_by_a_delete(self, seconds: int, methods: list[str]) -> None:
        pod = self.pod("ours")
        pod["spec"] = {"nodeName": "n1", "terminationGracePeriodSeconds": 10, "activeDeadlineSeconds": 1}
        stopped_at = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=seconds)
        pod["metadata"]["annotations"]["gpu-quota-portal/stopped-at"] = stopped_at.isoformat(timespec="seconds")
        client, server = api((200, {}), (200, {}))
        Orders(client).stop(pod, 10)
        assert [method for method, _, _ in server.requests] == methods

    def test_name_that_is_still_being_deleted_is_retried_later(self) -> None:
        driver, spec = self.drive((404, {}), (409, {"message": "being deleted"}), (404, {}))
        with pytest.raises(Unreachable):
            driver.ensure(spec)

    def test_terminating_namespace_is_retried_and_created_again(self) -> None:
        terminating = {"message": "is being terminated", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}
        driver, spec = self.drive((404, {}), (403, terminating), (404, {}))
        with pytest.raises(Unreachable):
            driver.ensure(spec)
        assert "gqp-vision" not in driver.homes._open

    def test_invalid_object_is_refused_with_the_servers_message(self) -> None:
        driver, spec = self.drive((404, {}), (422, {"message": "spec.containers[0].image: Required value"}))
        with pytest.raises(Refused, match="Required value"):
            driver.ensure(spec)

    def test_stop_leaves_a_foreign_pod_of_the_same_name_alone(self) -> None:
        driver, spec = self.drive()
        driver.api, server = api((200, self.pod("somebody-elses")))
        driver.stop(spec.ref, 5)
        assert [method for method, _, _ in server.requests] == ["GET"]
