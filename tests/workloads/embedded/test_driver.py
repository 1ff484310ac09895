"""The embedded cluster with real processes."""

from __future__ import annotations

import datetime as dt
import json
import signal
from pathlib import Path

import pytest

from tests.workloads.embedded_bed import (
    FOREVER,
    POLITE,
    STUBBORN,
    cluster,
    ended,
    eventually,
    is_alive,
    log,
    observed,
    processes_of,
    running,
    spec,
    up,
)
from workloads.embedded.driver import EmbeddedCluster
from workloads.runtime.base import NoSuchRun, Phase, PodPlacement, Refused, RunRef, Unreachable


class TestRun:
    def test_ended_command_has_its_log_exit_code_and_times(self, driver: EmbeddedCluster) -> None:
        driver.ensure(spec("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"))
        run = ended(driver)
        assert (run.phase, run.exit_code, run.reason, run.node, run.cards) == (
            Phase.FAILED,
            7,
            "Error",
            "n1",
            ("4", "5"),
        )
        assert run.started_at is not None
        assert run.finished_at is not None
        assert run.started_at <= run.finished_at
        assert sorted(log(driver).split()) == ["err", "out"]

    def test_exit_0_is_success(self, driver: EmbeddedCluster) -> None:
        driver.ensure(spec("print('ok')"))
        assert (ended(driver).phase, ended(driver).exit_code) == (Phase.SUCCEEDED, 0)

    def test_signal_is_reported_as_exit_code_128_plus_its_number(self, driver: EmbeddedCluster) -> None:
        driver.ensure(spec("import os; os.kill(os.getpid(), 9)"))
        assert ended(driver).exit_code == 137

    def test_missing_command_fails_with_exit_code_127_and_its_name(self, driver: EmbeddedCluster) -> None:
        driver.ensure(spec(command=("no-such-program",)))
        run = ended(driver)
        assert (run.exit_code, run.reason) == (127, "StartError")
        assert "no-such-program" in run.message
        assert "no-such-program" in log(driver)

    def test_command_sees_its_cards_and_nothing_of_the_portals_environment(
        self, driver: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SECRET_KEY", "of the portal")
        driver.ensure(
            spec("import json, os; print(json.dumps(dict(os.environ)))", env={"EPOCHS": "3", "PORTAL_WORKLOAD": "lie"})
        )
        assert ended(driver).phase is Phase.SUCCEEDED
        env = json.loads(log(driver))
        assert "of the portal" not in str(env)
        workdir = str(driver.directory("w-one"))
        directory = driver.root / "runs" / "w-one-1"
        assert {key: value for key, value in env.items() if key not in {"PATH", "LC_CTYPE"}} == {
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "HOME": workdir,
            "EPOCHS": "3",
            "NVIDIA_VISIBLE_DEVICES": "4,5",
            "CUDA_VISIBLE_DEVICES": "4,5",
            "PORTAL_WORKLOAD": "one",
            "PORTAL_ATTEMPT": "1",
            "PORTAL_DEPARTMENT": "vision",
            "PORTAL_USER": "alice",
            "PORTAL_WORKDIR": workdir,
            "PORTAL_RECLAIM_AT_FILE": str(directory / "reclaim-at"),
            "PORTAL_READY_FILE": str(directory / "ready"),
            "PORTAL_READY_URL": "http://127.0.0.1:8000/api/v1/workloads/one/ready/",
            "PORTAL_READY_TOKEN": "ready-secret",
        }

    def test_supervisor_inherits_nothing_of_the_portals_environment(
        self, driver: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SECRET_KEY", "of the portal")
        driver.ensure(spec(FOREVER))
        running(driver)
        for pid in processes_of(driver):
            assert b"of the portal" not in Path(f"/proc/{pid}/environ").read_bytes()

    def test_command_starts_with_default_signal_handling_whatever_the_portal_ignores(
        self, driver: EmbeddedCluster
    ) -> None:
        """A portal that a script started with `&` ignores SIGINT and SIGQUIT, one under nohup SIGHUP."""
        ignored = {
            number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
        }
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        try:
            driver.ensure(spec(command=("sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status")))
            assert ended(driver).phase is Phase.SUCCEEDED
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            for number, handler in ignored.items():
                signal.signal(number, handler)
        masks = dict(line.split(":") for line in log(driver).splitlines())
        named = sum(1 << number - 1 for number in signal.valid_signals())  # the C library keeps 32 and 33 to itself
        assert {name: int(mask, 16) & named for name, mask in masks.items()} == {"SigBlk": 0, "SigIgn": 0}

    def test_working_directory_is_kept_between_attempts(self, driver: EmbeddedCluster) -> None:
        driver.directory("w-one").joinpath("input.txt").write_text("uploaded")
        driver.ensure(spec("open('result', 'w').write(open('input.txt').read())"))
        ended(driver)
        driver.remove(spec().ref)
        driver.ensure(spec("print(open('result').read())", name="w-one-2", attempt=2))
        assert ended(driver, "w-one-2").phase is Phase.SUCCEEDED
        assert log(driver, "w-one-2") == "uploaded\n"

    def test_ranks_of_a_gang_have_their_own_cards_and_logs(self, driver: EmbeddedCluster) -> None:
        places = (PodPlacement(0, "n1", (0,)), PodPlacement(1, "n2", (3,)))
        code = "import os; print(os.environ['RANK'], os.environ['WORLD_SIZE'], os.environ['CUDA_VISIBLE_DEVICES'])"
        driver.ensure(spec(code, pods=2, placement=places))
        assert ended(driver).phase is Phase.SUCCEEDED
        assert [log(driver, rank=0), log(driver, rank=1)] == ["0 2 0\n", "1 2 3\n"]

    def test_gang_ends_with_the_exit_code_of_the_rank_that_fails(self, driver: EmbeddedCluster) -> None:
        places = (PodPlacement(0, "n1", (0,)), PodPlacement(1, "n2", (3,)))
        code = f"import os, sys\nif os.environ['RANK'] == '1': sys.exit(3)\n{FOREVER}"
        driver.ensure(spec(code, pods=2, placement=places))
        assert (ended(driver).phase, ended(driver).exit_code) == (Phase.FAILED, 3)


class TestRefusals:
    def test_unknown_image_is_refused_with_the_list_of_declared_images(self, driver: EmbeddedCluster) -> None:
        with pytest.raises(Refused, match=r"pytorch:2 has no interpreter .* declared are: python:3.11-demo") as refusal:
            driver.ensure(spec(image="pytorch:2"))
        assert refusal.value.code == "unknown_image"
        assert driver.observe() == ()

    def test_an_undeclared_card_is_refused(self, driver: EmbeddedCluster) -> None:
        with pytest.raises(Refused, match="n1 with card 8"):
            driver.ensure(spec(placement=(PodPlacement(0, "n1", (8,)),)))

    def test_run_name_of_another_submission_is_refused_and_its_run_untouched(self, driver: EmbeddedCluster) -> None:
        driver.ensure(spec(FOREVER))
        running(driver)
        with pytest.raises(Refused) as refusal:
            driver.ensure(spec("print('mine')", ref=RunRef("w-one-1", "", "another")))
        assert refusal.value.code == "name_taken"
        assert running(driver).ref.submission_id == "id-of-w-one-1"

    @pytest.mark.parametrize("name", ["../escape", ".hidden", "a/b", "", "-x"])
    def test_run_name_that_would_leave_its_directory_is_refused(self, driver: EmbeddedCluster, name: str) -> None:
        with pytest.raises(Refused):
            driver.ensure(spec(ref=RunRef(name, "", "x")))
        with pytest.raises(Refused):
            driver.directory(name)

    def test_cluster_needs_debug_mode_and_a_loopback_address(self, tmp_path: Path) -> None:
        with pytest.raises(Refused, match="DEBUG=true"):
            cluster(tmp_path, debug=False)
        for host in ("0.0.0.0", "192.168.1.5", "::", "gpu.example.org"):
            with pytest.raises(Refused, match="BIND_HOST"):
                cluster(tmp_path, bind_host=host)
        for host in ("127.0.0.1", "::1", "localhost"):
            cluster(tmp_path, bind_host=host)

    def test_cluster_with_an_unusable_directory_is_unreachable(self, tmp_path: Path) -> None:
        driver = cluster(tmp_path / "cluster")
        (tmp_path / "cluster" / "runs").rmdir()
        (tmp_path / "cluster" / "runs").write_text("no directory")
        with pytest.raises(Unreachable):
            driver.observe()
        with pytest.raises(Unreachable):
            driver.ensure(spec())


class TestStop:
    def test_sigterm_lets_the_command_exit_by_itself(self, driver: EmbeddedCluster) -> None:
        driver.ensure(spec(POLITE))
        up(driver)
        driver.stop(spec().ref, grace=20)
        run = ended(driver)
        assert (run.exit_code, run.reason) == (0, "Stopped")
        assert log(driver) == "up\nbye\n"

    def test_command_is_killed_after_the_grace(self, driver: EmbeddedCluster) -> None:
        driver.ensure(spec(STUBBORN))
        up(driver)
        driver.stop(spec().ref, grace=1)
        assert observed(driver).stopping
        run = ended(driver)
        assert run.exit_code == 137
        assert run.finished_at is not None

    def test_repeated_stop_can_shorten_the_grace_but_never_extend_it(self, driver: EmbeddedCluster) -> None:
        driver.ensure(spec(STUBBORN))
        up(driver)
        driver.stop(spec().ref, grace=600)
        driver.stop(spec().ref, grace=0)
        driver.stop(spec().ref, grace=600)
        assert ended(driver).exit_code == 137

    def test_stop_ends_grandchildren_including_those_in_another_session(self, driver: EmbeddedCluster) -> None:
        driver.ensure(
            spec(
                "import subprocess, sys\n"
                "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
                "detached = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
                "print('up', detached.pid, flush=True)\n" + FOREVER
            )
        )
        up(driver)
        detached = int(log(driver).split()[1])
        assert is_alive(detached)
        driver.stop(spec().ref, grace=0)
        ended(driver)
        assert not is_alive(detached)
        eventually(lambda: processes_of(driver) == [])

    def test_stopping_an_unknown_or_ended_run_is_harmless(self, driver: EmbeddedCluster) -> None:
        driver.stop(spec().ref, grace=0)
        driver.remove(spec().ref)
        driver.announce(spec().ref, None)
        driver.announce(spec().ref, dt.datetime.now(dt.UTC))
        driver.ensure(spec("print(1)"))
        first = ended(driver)
        driver.stop(spec().ref, grace=0)
        assert observed(driver) == first
        driver.remove(spec().ref)
        driver.remove(spec().ref)
        assert driver.observe() == ()
        with pytest.raises(NoSuchRun):
            driver.logs(spec().ref)

    def test_running_run_is_not_removed(self, driver: EmbeddedCluster) -> None:
        driver.ensure(spec(FOREVER))
        running(driver)
        driver.remove(spec().ref)
        assert running(driver).phase is Phase.RUNNING

    def test_run_that_exceeds_its_maximum_runtime_is_stopped_and_fails(self, driver: EmbeddedCluster) -> None:
        driver.ensure(spec(POLITE, max_runtime=1))
        run = ended(driver)
        assert (run.phase, run.reason) == (Phase.FAILED, "DeadlineExceeded")
        assert "1 s" in run.message

    def test_repeated_ensure_extends_the_maximum_runtime(self, driver: EmbeddedCluster) -> None:
        driver.ensure(spec(FOREVER, max_runtime=2))
        driver.ensure(spec(FOREVER, max_runtime=600))
        started = running(driver).started_at
        assert started is not None
        eventually(lambda: dt.datetime.now(dt.UTC) - started > dt.timedelta(seconds=3))
        assert observed(driver).phase is Phase.RUNNING


class TestReclaimContract:
    def test_notice_file_is_written_for_the_command_and_removed_on_withdrawal(self, driver: EmbeddedCluster) -> None:
        driver.ensure(
            spec(
                "import os, time\npath = os.environ['PORTAL_RECLAIM_AT_FILE']\n"
                "print(os.path.exists(path), flush=True)\n"
                "while not os.path.exists(path): time.sleep(.02)\nprint(open(path).read(), flush=True)\n"
                "while os.path.exists(path): time.sleep(.02)\nprint('withdrawn')"
            )
        )
        eventually(lambda: "False" in log(driver))
        driver.announce(spec().ref, dt.datetime(2026, 11, 21, 18, 20, tzinfo=dt.timezone(dt.timedelta(hours=8))))
        eventually(lambda: "2026-11-21T10:20:00Z" in log(driver))
        driver.announce(spec().ref, None)
        assert ended(driver).phase is Phase.SUCCEEDED
        assert log(driver).splitlines()[-1] == "withdrawn"

    def test_ready_file_and_checkpoints_are_observed(self, driver: EmbeddedCluster) -> None:
        driver.ensure(
            spec(
                "import os\nopen('checkpoint-1', 'w').close()\nopen(os.environ['PORTAL_READY_FILE'], 'w').close()\n"
                + FOREVER
            )
        )
        up(driver)
        run = observed(driver)
        assert run.ready
        assert run.checkpointed_at is not None
        assert run.started_at is not None
        assert abs(run.checkpointed_at - run.started_at) < dt.timedelta(seconds=10)


class TestLogs:
    def test_log_can_be_read_in_parts_from_an_offset_until_its_end(self, driver: EmbeddedCluster) -> None:
        driver.ensure(spec("for n in range(1000): print(f'line {n}')"))
        ended(driver)
        whole, offset = b"", 0
        while True:
            chunk = driver.logs(spec().ref, offset=offset, limit=100)
            assert chunk.offset == offset
            whole, offset = whole + chunk.data, offset + len(chunk.data)
            if chunk.end:
                break
        assert whole.decode() == "".join(f"line {n}\n" for n in range(1000))

    def test_tail_of_a_log_has_the_offset_of_its_begin(self, driver: EmbeddedCluster) -> None:
        driver.ensure(spec("for n in range(1000): print(f'line {n}')"))
        ended(driver)
        chunk = driver.logs(spec().ref, tail=2)
        assert (chunk.data, chunk.end) == (b"line 998\nline 999\n", True)
        assert driver.logs(spec().ref, offset=chunk.offset).data == chunk.data

    def test_log_of_a_running_command_has_no_end_yet(self, driver: EmbeddedCluster) -> None:
        driver.ensure(spec(FOREVER))
        up(driver)
        assert driver.logs(spec().ref, offset=3).end is False
