"""The driver contract of workloads/runtime/base.py, tested with every driver."""

from __future__ import annotations

import datetime as dt
import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.clusters.beds import FOREVER, LINES, Bed, ended, eventually, find_run, in_phase, log, up
from workloads.runtime.base import ClusterDriver, NoSuchRun, Phase, Refused, RunRef, RunSpec, Unreachable, volume_of

LATER = dt.datetime(2031, 5, 1, 12, 0, tzinfo=dt.UTC)


class TestRun:
    def test_run_with_exit_code_0_succeeds_and_reports_node_and_times(self, bed: Bed) -> None:
        spec = bed.spec("hello")
        bed.driver.ensure(spec)
        run = ended(bed.driver, spec.ref)
        assert (run.phase, run.exit_code, run.reason) == (Phase.SUCCEEDED, 0, "Completed")
        assert (run.ref, run.workload_id, run.attempt) == (spec.ref, spec.workload_id, 1)
        assert run.node == spec.placement[0].node
        assert run.started_at is not None
        assert run.finished_at is not None
        assert run.started_at <= run.finished_at
        assert log(bed.driver, spec.ref) == "hello\n"

    def test_run_with_another_exit_code_fails_with_that_code(self, bed: Bed) -> None:
        spec = bed.spec("fails")
        bed.driver.ensure(spec)
        run = ended(bed.driver, spec.ref)
        assert (run.phase, run.exit_code, run.reason) == (Phase.FAILED, 7, "Error")
        assert log(bed.driver, spec.ref) == "no\n"

    def test_run_reports_its_cards(self, bed: Bed) -> None:
        spec = bed.spec("forever")
        bed.driver.ensure(spec)
        up(bed.driver, spec.ref)
        assert len(eventually(lambda: in_phase(bed.driver, spec.ref, Phase.RUNNING).cards)) == 1

    def test_run_gets_the_portals_variables(self, executing_bed: Bed) -> None:
        spec = executing_bed.spec("tells", env={"EPOCHS": "3", "PORTAL_WORKLOAD": "a lie"})
        executing_bed.driver.ensure(spec)
        ended(executing_bed.driver, spec.ref)
        env = json.loads(log(executing_bed.driver, spec.ref))
        variables = {key: env[key] for key in env if key.startswith("PORTAL_") or key == "EPOCHS"}
        assert variables.pop("PORTAL_WORKDIR") == env["HOME"]
        assert variables.pop("PORTAL_RECLAIM_AT_FILE")
        variables.pop("PORTAL_READY_FILE", None)
        assert variables == {
            "EPOCHS": "3",
            "PORTAL_WORKLOAD": spec.workload_id,
            "PORTAL_ATTEMPT": "1",
            "PORTAL_DEPARTMENT": "vision",
            "PORTAL_USER": "alice@example.org",
            "PORTAL_READY_URL": "http://127.0.0.1:8000/ready/",
            "PORTAL_READY_TOKEN": "ready-secret",
        }
        assert env["NVIDIA_VISIBLE_DEVICES"] not in ("", "all", "void")

    def test_run_gets_its_arguments_and_variables_unchanged(self, executing_bed: Bed) -> None:
        odd = ["$$", "$(HOME)", "$(PORTAL_USER)", "$$(A)", "a\nb", "", "$HOME", "中 'x' \"y\"", "$(", "$"]
        code = (
            "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['A'], os.environ['B'], os.environ['C']]))"
        )
        spec = executing_bed.spec("hello", env={"A": "$(PATH)", "B": "$$$(A)\n", "C": ""}, secret_env={"S": "$(A)"})
        words = (*spec.command[:-1], code, *odd, "$(PORTAL_USER) $(A) $$")
        spec = replace(spec, command=words, own_words=frozenset({len(words) - 1}))
        executing_bed.driver.ensure(spec)
        assert ended(executing_bed.driver, spec.ref).phase is Phase.SUCCEEDED
        expected = [[*odd, "alice@example.org $(A) $$"], "$(PATH)", "$$$(A)\n", ""]
        assert json.loads(log(executing_bed.driver, spec.ref)) == expected

    def test_next_attempt_has_the_same_working_directory(self, executing_bed: Bed) -> None:
        first = executing_bed.spec("remembers")
        again = replace(first, attempt=2, ref=RunRef(first.ref.name[:-1] + "2", first.ref.namespace, "s-second"))
        for attempt, marks in ((first, "+\n"), (again, "++\n")):
            executing_bed.driver.ensure(attempt)
            assert ended(executing_bed.driver, attempt.ref).phase is Phase.SUCCEEDED
            assert log(executing_bed.driver, attempt.ref) == marks
            executing_bed.driver.remove(attempt.ref)

    def test_notebook_is_reachable_at_the_endpoint_of_the_driver(self, executing_bed: Bed) -> None:
        spec = executing_bed.spec("listens", kind="notebook", port=18888, token="its-secret")
        assert executing_bed.driver.endpoint(spec.ref) is None
        executing_bed.driver.ensure(spec)

        def fetch() -> bytes:
            if (endpoint := executing_bed.driver.endpoint(spec.ref)) is None:
                return b""
            try:
                return urllib.request.urlopen(f"http://{endpoint[0]}:{endpoint[1]}/", timeout=2).read()  # type: ignore[no-any-return]
            except OSError:
                return b""

        assert eventually(fetch) == b"its-secret"


class TestEnsure:
    def test_ensure_from_many_threads_creates_one_run(self, bed: Bed) -> None:
        spec = bed.spec("forever")
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(bed.driver.ensure, [spec] * 16))
        assert [run.ref for run in bed.driver.observe()] == [spec.ref]
        up(bed.driver, spec.ref)
        assert log(bed.driver, spec.ref) == "up\n"

    def test_ensure_does_not_restart_an_ended_run(self, bed: Bed) -> None:
        spec = bed.spec("fails")
        bed.driver.ensure(spec)
        first = ended(bed.driver, spec.ref)
        bed.driver.ensure(spec)
        assert find_run(bed.driver, spec.ref) == first

    def test_ensure_refuses_the_name_of_a_foreign_run_and_leaves_it_untouched(self, bed: Bed) -> None:
        theirs = bed.spec("forever")
        bed.driver.ensure(theirs)
        up(bed.driver, theirs.ref)
        mine = replace(theirs, ref=replace(theirs.ref, submission_id="s-mine"))
        with pytest.raises(Refused) as error:
            bed.driver.ensure(mine)
        assert error.value.code == "name_taken"
        bed.driver.announce(mine.ref, LATER)
        bed.driver.stop(mine.ref, 0)
        bed.driver.remove(mine.ref)
        run = in_phase(bed.driver, theirs.ref, Phase.RUNNING)
        assert (run.ref, run.stopping) == (theirs.ref, False)
        with pytest.raises(NoSuchRun):
            bed.driver.logs(mine.ref)
        assert bed.driver.endpoint(mine.ref) is None


class TestNotice:
    def test_notice_is_readable_in_the_container_until_withdrawn(self, executing_bed: Bed) -> None:
        spec = executing_bed.spec("waits_for_notice")
        executing_bed.driver.ensure(spec)
        up(executing_bed.driver, spec.ref)
        executing_bed.driver.announce(spec.ref, LATER)
        eventually(lambda: "2031-05-01T12:00:00Z\n" in log(executing_bed.driver, spec.ref))
        executing_bed.driver.announce(spec.ref, None)
        assert in_phase(executing_bed.driver, spec.ref, Phase.SUCCEEDED).exit_code == 0
        assert log(executing_bed.driver, spec.ref).endswith("withdrawn\n")

    def test_withdrawn_notice_resets_the_ready_file(self, executing_bed: Bed) -> None:
        """Otherwise the next notice would end at once, and the work since the last checkpoint would be lost."""
        driver, spec = executing_bed.driver, executing_bed.spec("hello")
        program = f"import os\nopen(os.environ['PORTAL_READY_FILE'], 'w').close()\n{FOREVER}"
        spec = replace(spec, command=(*spec.command[:-1], program))
        driver.ensure(spec)
        driver.announce(spec.ref, LATER)
        assert eventually(lambda: find_run(driver, spec.ref)).phase in (Phase.PENDING, Phase.RUNNING)
        eventually(lambda: find_run(driver, spec.ref).ready)  # type: ignore[union-attr]
        driver.announce(spec.ref, None)
        eventually(lambda: not find_run(driver, spec.ref).ready)  # type: ignore[union-attr]


class TestStop:
    def test_stop_lets_a_run_save_and_keeps_exit_code_and_log(self, bed: Bed) -> None:
        spec = bed.spec("polite", grace=20)
        bed.driver.ensure(spec)
        up(bed.driver, spec.ref)
        bed.driver.stop(spec.ref, 20)
        bed.driver.stop(spec.ref, 20)
        run = ended(bed.driver, spec.ref)
        assert (run.phase, run.exit_code) == (Phase.FAILED, 3)
        assert log(bed.driver, spec.ref) == "up\nsaved\n"

    def test_stop_ends_at_once_a_run_that_does_not_handle_sigterm(self, bed: Bed) -> None:
        spec = bed.spec("forever", grace=600)
        bed.driver.ensure(spec)
        up(bed.driver, spec.ref)
        bed.driver.stop(spec.ref, 600)
        assert ended(bed.driver, spec.ref).exit_code == 143

    def test_stop_kills_a_run_that_ignores_sigterm_after_its_grace(self, bed: Bed) -> None:
        spec = bed.spec("stubborn", grace=2)
        bed.driver.ensure(spec)
        up(bed.driver, spec.ref)
        bed.driver.stop(spec.ref, 2)
        assert eventually(lambda: (run := find_run(bed.driver, spec.ref)) and run.stopping)
        assert ended(bed.driver, spec.ref).exit_code == 137

    def test_stop_can_shorten_the_grace_of_the_spec(self, bed: Bed) -> None:
        spec = bed.spec("stubborn", grace=600)
        bed.driver.ensure(spec)
        up(bed.driver, spec.ref)
        bed.driver.stop(spec.ref, 1)
        assert ended(bed.driver, spec.ref).exit_code == 137

    def test_all_calls_are_harmless_for_an_absent_run(self, bed: Bed) -> None:
        absent = bed.spec("hello").ref
        bed.driver.stop(absent, 1)
        bed.driver.announce(absent, LATER)
        bed.driver.remove(absent)
        assert bed.driver.endpoint(absent) is None
        assert find_run(bed.driver, absent) is None
        with pytest.raises(NoSuchRun):
            bed.driver.logs(absent)


class TestRemove:
    def test_ended_run_is_listed_until_removed(self, bed: Bed) -> None:
        spec = bed.spec("polite", grace=20)
        bed.driver.ensure(spec)
        up(bed.driver, spec.ref)
        bed.driver.stop(spec.ref, 20)
        ended(bed.driver, spec.ref)
        assert find_run(bed.driver, spec.ref) is not None
        bed.driver.remove(spec.ref)
        eventually(lambda: find_run(bed.driver, spec.ref) is None)
        bed.driver.remove(spec.ref)

    def test_remove_leaves_a_live_run_alone(self, bed: Bed) -> None:
        spec = bed.spec("forever")
        bed.driver.ensure(spec)
        up(bed.driver, spec.ref)
        bed.driver.remove(spec.ref)
        assert in_phase(bed.driver, spec.ref, Phase.RUNNING).stopping is False


def ensured(driver: ClusterDriver, spec: RunSpec) -> bool:
    """Whether the run could be created; an earlier object may still be terminating."""
    try:
        driver.ensure(spec)
    except Unreachable:
        return False
    return True


class TestDiscard:
    def test_next_attempt_starts_with_an_empty_directory_after_discard(self, executing_bed: Bed) -> None:
        driver, first = executing_bed.driver, executing_bed.spec("remembers")
        again = replace(first, attempt=2, ref=RunRef(first.ref.name[:-1] + "2", first.ref.namespace, "s-second"))
        for attempt in (first, again):
            eventually(lambda wanted=attempt: ensured(driver, wanted))  # type: ignore[misc]
            ended(driver, attempt.ref)
            assert log(driver, attempt.ref) == "+\n"
            driver.remove(attempt.ref)
            eventually(lambda ref=attempt.ref: find_run(driver, ref) is None)  # type: ignore[misc]
            driver.discard(volume_of(first))
            driver.discard(volume_of(first))


class TestLog:
    def test_log_is_read_in_pieces_by_offset_up_to_its_end(self, bed: Bed) -> None:
        spec = bed.spec("prints")
        bed.driver.ensure(spec)
        ended(bed.driver, spec.ref)
        whole, offset = b"", 0
        while True:
            chunk = bed.driver.logs(spec.ref, offset=offset, limit=300)
            assert (chunk.offset, len(chunk.data) <= 300) == (offset, True)
            whole += chunk.data
            offset += len(chunk.data)
            if chunk.end:
                break
            assert chunk.data
        assert whole == LINES
        after = bed.driver.logs(spec.ref, offset=offset)
        assert (after.data, after.offset, after.end) == (b"", offset, True)

    def test_tail_gives_the_last_lines_and_their_offset(self, bed: Bed) -> None:
        spec = bed.spec("prints")
        bed.driver.ensure(spec)
        ended(bed.driver, spec.ref)
        chunk = bed.driver.logs(spec.ref, tail=2)
        assert (chunk.data, chunk.end) == (b"line 198\nline 199\n", True)
        assert chunk.offset == len(LINES) - len(chunk.data)
        end = bed.driver.logs(spec.ref, tail=10**6, limit=100)
        assert (end.data, end.offset, end.end) == (LINES[-100:], len(LINES) - 100, True)

    def test_log_of_a_live_run_has_no_end(self, bed: Bed) -> None:
        spec = bed.spec("forever")
        bed.driver.ensure(spec)
        up(bed.driver, spec.ref)
        chunk = bed.driver.logs(spec.ref)
        assert (chunk.data, chunk.offset, chunk.end) == (b"up\n", 0, False)


def test_nodes_report_their_cards(bed: Bed) -> None:
    where = bed.spec("hello").placement[0].node
    node = next(node for node in bed.driver.nodes() if node.name == where)
    assert (node.sharing, node.unit, node.units_per_card, node.held_back) == ("whole", "card", 1, "")
    assert [card.index for card in node.cards] == list(range(8))
    assert all(card.healthy and card.units == 1 for card in node.cards)
