"""What an API server may answer, and what the portal makes of it."""

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
    """Stands in for the library's client: `answer(method, path)` gives a response or raises."""

    def __init__(self, answer: Callable[[str, str], urllib3.HTTPResponse]) -> None:
        self.answer, self.asked = answer, []

    configuration = SimpleNamespace(host="https://server")

    @property
    def rest_client(self) -> Any:
        return SimpleNamespace(pool_manager=self)

    def update_params_for_auth(self, headers: dict[str, str], *rest: Any) -> None:
        headers["authorization"] = "Bearer token"

    def request(self, method: str, url: str, *, headers: dict[str, str], **rest: Any) -> urllib3.HTTPResponse:
        assert headers["authorization"] == "Bearer token"
        path, _, query = url.removeprefix("https://server").partition("?")
        self.asked.append((method, path, dict(parse_qsl(query))))
        return self.answer(method, path)


def api(*replies: Reply | Exception) -> tuple[Api, Server]:
    """An API that gives these answers in order."""
    script = list(replies)

    def answer(method: str, path: str) -> urllib3.HTTPResponse:
        reply = script.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return response(*reply)

    server = Server(answer)
    return Api(lambda: server), server


class TestAnswers:
    @pytest.mark.parametrize(
        "message", ["etcdserver: request is too large", "rpc error: trying to send message larger than max (3 vs. 2)"]
    )
    def test_a_request_that_is_too_large_is_refused_for_good(self, message: str) -> None:
        """It would be too large again: taken for a server that does not answer, it kept its cards for ever."""
        asked, _server = api((500, {"message": message}))
        answer = asked.call("POST", "/pods", {})
        assert (answer.ok, answer.message) == (False, message)

    def test_any_other_500_is_a_server_that_does_not_answer(self) -> None:
        asked, _server = api((500, {"message": "failed calling webhook"}))
        with pytest.raises(Unreachable, match="failed calling webhook"):
            asked.call("POST", "/pods", {})

    def test_429_is_unreachable_and_says_when_to_come_again(self) -> None:
        server = Server(lambda method, path: response(429, {"message": "slow down"}, **{"Retry-After": "7"}))
        with pytest.raises(Unreachable, match="slow down") as told:
            Api(lambda: server).get("/api/v1/pods/x")
        assert told.value.retry_after == 7

    @pytest.mark.parametrize(
        "reply",
        [(500, {"message": "etcd is away"}), (503, b"<html>"), (401, {}), (200, b"{cut"), (403, {"message": "no right"})],
    )  # fmt: skip
    def test_an_answer_that_tells_nothing_is_unreachable(self, reply: Reply) -> None:
        with pytest.raises(Unreachable):
            api(reply)[0].get("/api/v1/pods/x")

    @pytest.mark.parametrize(
        "error",
        [urllib3.exceptions.ReadTimeoutError(None, "", "late"), ConnectionResetError()],  # type: ignore[arg-type]
    )
    def test_a_connection_that_breaks_is_unreachable(self, error: Exception) -> None:
        with pytest.raises(Unreachable):
            api(error)[0].get("/api/v1/pods/x")

    def test_404_is_an_answer(self) -> None:
        assert api((404, {"message": "not found"}))[0].get("/api/v1/pods/x") is None


class TestAServerThatHearsAndSaysNothing:
    LATE = urllib3.exceptions.ReadTimeoutError(None, "", "late")  # type: ignore[arg-type]

    def test_is_asked_a_small_thing_before_the_next_call(self) -> None:
        client, server = api(self.LATE, (403, {}), (200, {"metadata": {"name": "x"}}), (404, {}))
        with pytest.raises(Unreachable, match="late"):
            client.get("/api/v1/pods/x")
        assert client.get("/api/v1/pods/x") == {"metadata": {"name": "x"}}
        assert client.get("/api/v1/pods/y") is None
        assert [path for _, path, _ in server.asked] == [
            "/api/v1/pods/x",
            "/version",
            "/api/v1/pods/x",
            "/api/v1/pods/y",
        ]

    def test_lets_nobody_wait_until_it_answers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        client, server = api(self.LATE, self.LATE)
        for reason in ("late", "late", "a moment ago", "a moment ago"):
            with pytest.raises(Unreachable, match=reason):
                client.get("/api/v1/pods/x")
        assert [path for _, path, _ in server.asked] == ["/api/v1/pods/x", "/version"]
        later = SimpleNamespace(monotonic=lambda: time.monotonic() + kubernetes_api.PROBE_EVERY)
        monkeypatch.setattr(kubernetes_api, "time", later)
        server.answer = lambda method, path: response(200, {})
        assert client.get("/api/v1/pods/x") == {}

    def test_is_asked_by_one_thread_at_a_time(self) -> None:
        asked, answered = threading.Event(), threading.Event()

        def answer(method: str, path: str) -> urllib3.HTTPResponse:
            if path == "/version":
                asked.set()
                answered.wait(10)
            elif not asked.is_set():
                raise self.LATE
            return response(200, {})

        server = Server(answer)
        client = Api(lambda: server)
        with pytest.raises(Unreachable, match="late"):
            client.get("/api/v1/pods/x")
        with ThreadPoolExecutor(1) as threads:
            first = threads.submit(client.get, "/api/v1/pods/x")
            assert asked.wait(10)
            with pytest.raises(Unreachable, match="a moment ago"):
                client.get("/api/v1/pods/x")
            answered.set()
            assert first.result(10) == {}

    def test_a_connection_that_is_refused_says_so_at_once_and_needs_no_knock(self) -> None:
        client, server = api(ConnectionRefusedError(), (200, {}))
        with pytest.raises(Unreachable):
            client.get("/api/v1/pods/x")
        assert client.get("/api/v1/pods/x") == {}
        assert len(server.asked) == 2


def item(number: int, **more: object) -> dict[str, object]:
    return {"metadata": {"name": f"pod-{number}", **more}}


class TestList:
    def test_goes_on_by_pages_and_gives_the_lists_version(self) -> None:
        first = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [item(1), item(2)]}
        second = {"metadata": {"resourceVersion": "9"}, "items": [item(3, managedFields=[{"manager": "kubelet"}])]}
        client, server = api((200, first), (200, second))
        assert client.list("/api/v1/pods", labelSelector="a=b") == ([item(1), item(2), item(3)], "9")
        assert [query.get("continue") for _, _, query in server.asked] == [None, "more"]
        assert all(
            query["labelSelector"] == "a=b" and query["limit"] == str(kubernetes_api.PAGE)
            for _, _, query in server.asked
        )

    def test_begins_anew_when_its_pages_expired(self) -> None:
        first = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [item(1), item(2)]}
        whole = {"metadata": {"resourceVersion": "12"}, "items": [item(1), item(3)]}
        client, _ = api((200, first), (410, {"message": "expired"}), (200, whole))
        assert client.list("/api/v1/pods") == ([item(1), item(3)], "12")


class TestWatch:
    def test_gives_whole_lines_and_raises_for_one_that_was_cut(self) -> None:
        event = {"type": "ADDED", "object": {"n": 1}}
        client, _ = api((200, orjson.dumps(event) + b"\n\n" + orjson.dumps(event) + b"\n"))
        assert list(client.watch("/api/v1/pods", "1", 5)) == [event, event]
        client, _ = api((200, orjson.dumps(event) + b'\n{"type": "ADD\n'))
        stream = client.watch("/api/v1/pods", "1", 5)
        assert next(stream) == event
        with pytest.raises(Unreachable, match="broke"):
            next(stream)

    def test_gives_a_refusal_as_an_event(self) -> None:
        client, _ = api((410, {"code": 410}))
        assert list(client.watch("/api/v1/pods", "1", 5)) == [{"type": "ERROR", "object": {"code": 410}}]


class TestLog:
    """Read in pieces, of which the driver keeps no more than it was asked for."""

    def driver(self, log: bytes | Exception) -> KubernetesCluster:
        def answer(method: str, path: str) -> urllib3.HTTPResponse:
            if not path.endswith("/log"):
                return response(200, {"metadata": POD, "spec": {}, "status": {"phase": "Succeeded"}})
            if isinstance(log, Exception):
                broken = response(200, b"")
                broken.stream = mock.Mock(side_effect=log)  # type: ignore[method-assign]
                return broken
            most = server.asked[-1][2].get("limitBytes")
            return response(200, log[: int(most)] if most else log)

        server, driver = Server(answer), KubernetesCluster("east", Connection("", {}))
        driver.api = Api(lambda: server)
        return driver

    @given(log=LOGS, offset=st.integers(0, 40), limit=st.integers(1, 40))
    def test_from_an_offset(self, log: bytes, offset: int, limit: int) -> None:
        with mock.patch.object(kubernetes_api, "PIECE", 3):
            chunk = self.driver(log).logs(RUN, offset=offset, limit=limit)
        offset = offset if offset <= len(log) else 0  # it began anew
        assert (chunk.data, chunk.offset) == (log[offset:][:limit], offset)
        assert chunk.end is (offset + limit >= len(log))

    @given(log=LOGS, tail=st.integers(0, 40), limit=st.integers(1, 40))
    def test_its_last_lines(self, log: bytes, tail: int, limit: int) -> None:
        with mock.patch.object(kubernetes_api, "PIECE", 3):
            chunk = self.driver(log).logs(RUN, tail=tail, limit=limit)
        lines = [line + b"\n" for line in log.split(b"\n")]
        lines[-1:] = [lines[-1][:-1]] if lines[-1] != b"\n" else []
        last = b"".join(lines[max(0, len(lines) - tail) :])[-limit:]
        assert (chunk.data, chunk.offset, chunk.end) == (last, len(log) - len(last), True)

    def test_and_removal_of_a_pod_that_was_seen_at_its_end_need_no_further_look(self) -> None:
        driver = self.driver(b"all of it")
        driver.orders = Orders(driver.api)
        ended = replace(RUN, ended="uid-1")
        assert driver.logs(ended) == LogChunk(b"all of it", 0, end=True)
        driver.remove(ended)
        pod = "/api/v1/namespaces/gqp-vision/pods/w-one-1"
        asked = [(method, path) for method, path, _ in driver.api.client().asked]
        assert asked == [("GET", f"{pod}/log"), ("PATCH", pod), ("DELETE", pod)]

    def test_that_breaks_off_is_unreachable(self) -> None:
        with pytest.raises(Unreachable, match="cut"):
            self.driver(urllib3.exceptions.ProtocolError("cut")).logs(RUN)


def test_a_process_that_was_forked_makes_a_client_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def make() -> object:
        made.append(object())
        return made[-1]

    client = Api(make)
    assert client.client() is client.client()
    monkeypatch.setattr(kubernetes_api.os, "getpid", lambda: -1)
    assert client.client() is made[1]
    assert len(made) == 2


class TestRaces:
    """`ensure` against a world that changes between two of its calls."""

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
    def test_a_post_that_came_second_finds_the_first_ones_pod(self, status: int) -> None:
        driver, spec = self.drive()
        found = self.pod(spec.ref.submission_id)
        driver.api, server = api((404, {}), (status, {"message": "exceeded quota: second-lock"}), (200, found))
        driver.orders = Orders(driver.api)
        driver.ensure(spec)
        assert [method for method, _, _ in server.asked] == ["GET", "POST", "GET"]

    def test_a_post_that_came_second_to_anothers_pod_is_refused(self) -> None:
        driver, spec = self.drive((404, {}), (409, {}), (200, self.pod("somebody-elses")))
        with pytest.raises(Refused) as refused:
            driver.ensure(spec)
        assert refused.value.code == "name_taken"

    @pytest.mark.parametrize(("seconds", "asked"), [(5, ["PATCH"]), (60, ["PATCH", "DELETE"])])
    def test_a_deadline_that_nobody_heeded_becomes_a_delete(self, seconds: int, asked: list[str]) -> None:
        pod = self.pod("ours")
        pod["spec"] = {"nodeName": "n1", "terminationGracePeriodSeconds": 10, "activeDeadlineSeconds": 1}
        said = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=seconds)
        pod["metadata"]["annotations"]["gpu-quota-portal/stopped-at"] = said.isoformat(timespec="seconds")
        client, server = api((200, {}), (200, {}))
        Orders(client).stop(pod, 10)
        assert [method for method, _, _ in server.asked] == asked

    def test_a_name_that_was_just_freed_is_tried_again_later(self) -> None:
        driver, spec = self.drive((404, {}), (409, {"message": "being deleted"}), (404, {}))
        with pytest.raises(Unreachable):
            driver.ensure(spec)

    def test_a_namespace_that_is_going_away_is_tried_again_and_made_anew(self) -> None:
        going = {"message": "is being terminated", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}
        driver, spec = self.drive((404, {}), (403, going), (404, {}))
        with pytest.raises(Unreachable):
            driver.ensure(spec)
        assert "gqp-vision" not in driver.homes._open

    def test_an_object_the_cluster_will_never_take_is_refused_with_its_words(self) -> None:
        driver, spec = self.drive((404, {}), (422, {"message": "spec.containers[0].image: Required value"}))
        with pytest.raises(Refused, match="Required value"):
            driver.ensure(spec)

    def test_a_stop_that_finds_another_pod_of_that_name_does_nothing(self) -> None:
        driver, spec = self.drive()
        driver.api, server = api((200, self.pod("somebody-elses")))
        driver.stop(spec.ref, 5)
        assert [method for method, _, _ in server.asked] == ["GET"]
