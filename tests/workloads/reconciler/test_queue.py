"""The work queue: each key is processed once, by one worker at a time, again after news, and later after a failure."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import pytest

from workloads.reconciler import queue
from workloads.reconciler.queue import WorkQueue


def test_key_added_twice_is_taken_once_and_in_order() -> None:
    work: WorkQueue[str] = WorkQueue()
    for key in "abab":
        work.add(key)
    assert work.take(1) == ["a"]
    assert work.take(5) == ["b"]


def test_key_added_while_it_is_processed_is_taken_again_afterwards() -> None:
    work: WorkQueue[str] = WorkQueue()
    work.add_all("ab")
    assert work.take(1) == ["a"]
    work.add("a")
    assert work.take(5) == ["b"], "a is being processed"
    work.done("a")
    assert work.take(5) == ["a"]


def test_delayed_key_is_taken_when_due_or_at_once_when_it_becomes_urgent() -> None:
    work: WorkQueue[str] = WorkQueue()
    began = time.monotonic()
    work.add("later", after=0.2)
    work.add("urgent", after=60)
    work.add("urgent")
    assert work.take(5) == ["urgent"]
    assert work.take(5) == ["later"]
    assert time.monotonic() - began >= 0.2
    assert len(work) == 0


def test_retry_delay_doubles_up_to_a_maximum_until_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(queue.time, "monotonic", lambda: clock[0])
    work: WorkQueue[str] = WorkQueue()
    work.add("a")
    for pause in (0.5, 1, 2, 4, 8, 16, 30, 30):
        assert work.take() == ["a"]
        work.retry("a")
        assert work._ripen() == pause
        clock[0] += pause
    assert work.take() == ["a"]
    work.done("a")
    work.add("a")
    assert work.take() == ["a"]
    work.retry("a")
    assert work._ripen() == 0.5


def test_closing_the_queue_ends_all_waiting_takers() -> None:
    work: WorkQueue[str] = WorkQueue()
    ended: list[list[str]] = []
    waiting = [threading.Thread(target=lambda: ended.append(work.take())) for _ in range(3)]
    for thread in waiting:
        thread.start()
    work.close()
    for thread in waiting:
        thread.join(10)
    assert ended == [[], [], []]


def test_with_many_threads_no_key_is_processed_twice_at_once_and_no_news_is_missed() -> None:
    """Each news raises a key's number, and the worker that takes the key reads it. In the end the last number has been read."""
    work: WorkQueue[int] = WorkQueue()
    numbers, read, workers_on = Counter[int](), dict[int, int](), Counter[int]()
    guard, shared_keys = threading.Lock(), list[int]()

    def worker() -> None:
        chance = random.Random(threading.get_ident())
        while keys := work.take(chance.randint(1, 4)):
            for key in keys:
                with guard:
                    workers_on[key] += 1
                    shared_keys.extend([key] * (workers_on[key] > 1))
                read[key] = numbers[key]
                with guard:
                    workers_on[key] -= 1
                work.retry(key) if chance.random() < 0.02 else work.done(key)

    def news(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(3000):
            key = chance.randrange(20)
            with guard:
                numbers[key] += 1
            work.add(key, after=chance.choice((0, 0, 0.001)))

    workers = [threading.Thread(target=worker) for _ in range(6)]
    producers = [threading.Thread(target=news, args=(seed,)) for seed in range(3)]
    for thread in (*workers, *producers):
        thread.start()
    for thread in producers:
        thread.join()
    end = time.monotonic() + 60
    while len(work) or sum(workers_on.values()):
        assert time.monotonic() < end
        threading.Event().wait(0.01)
    work.close()
    for thread in workers:
        thread.join(10)
    assert shared_keys == []
    assert read == dict(numbers)
