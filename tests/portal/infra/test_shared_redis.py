from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from portal.infra import shared_redis


def test_threads_that_make_the_first_call_at_once_get_the_same_client(
    with_redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second client would be discarded, which closes connections that a thread still reads."""
    together = threading.Barrier(8)

    def ask(_: int) -> int:
        together.wait()
        with shared_redis.shared().pipeline(transaction=False) as pipe:
            for _ in range(50):
                pipe.ping()
            assert pipe.execute() == [True] * 50
        return id(shared_redis.shared())

    with ThreadPoolExecutor(8) as threads:
        for _ in range(30):
            monkeypatch.setattr(shared_redis, "_clients", {})
            assert len(set(threads.map(ask, range(8)))) == 1
