"""How requests are written on the command line."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from portal.text.words import percent

HOME = Path(__file__).resolve().parents[2] / "gpuq"


@pytest.fixture(scope="module")
def cli() -> Any:
    """The package as it is installed: from its own folder."""
    sys.path.insert(0, str(HOME))
    try:
        for name in [name for name in sys.modules if name.split(".")[0] == "gpuq"]:
            del sys.modules[name]
        yield importlib.import_module("gpuq.arguments")
    finally:
        sys.path.remove(str(HOME))


def body(cli: Any, *words: str, unit: str = "card") -> dict[str, Any]:
    given: dict[str, Any] = cli.body_of(cli.parser().parse_args(["run", *words]), unit)
    return given


def test_everything_after_the_dashes_is_the_unchanged_command(cli: Any) -> None:
    given = body(cli, "--pool", "a100", "--cards", "2", "--", "python", "train.py", "--lr", "1e-3", "-q")
    assert given == {
        "pool": "a100", "units_per_pod": 2, "command": ["python", "train.py", "--lr", "1e-3", "-q"], "name": "train.py",
    }  # fmt: skip


def test_times_and_memory_are_parsed_with_their_units(cli: Any) -> None:
    given = body(cli, "--max-runtime", "8h", "--max-wait", "30m", "--memory", "8GiB", "--cpu", "0.5")
    assert given == {"max_runtime": 28800, "max_wait": 1800, "memory_mib": 8192, "cpu": 0.5}
    for wrong in (
        ["--max-runtime", "soon"],
        ["--memory", "8 GB"],
        ["--cards", "two"],
        ["--cards", "1", "--units", "2"],
    ):
        with pytest.raises(SystemExit) as end:
            body(cli, *wrong)
        assert end.value.code == 2


@pytest.mark.parametrize("wrong", ["NaN", "1e400", "inf", "four", "", "4 cores"])
def test_cores_must_be_a_number(cli: Any, wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert body(cli, "--cpu", "0.5")["cpu"] == 0.5
    with pytest.raises(SystemExit) as end:
        body(cli, "--cpu", wrong)
    assert end.value.code == 2
    assert "is not a number of cores such as 0.5 or 4" in capsys.readouterr().err


def test_quota_request_ends_after_its_last_day(cli: Any) -> None:
    words = ["request", "--pool", "a100", "--total", "60GiB", "--why", "a paper"]
    given = cli.parser().parse_args([*words, "--until", "2027-01-31"])
    assert (given.amount, given.wanted, given.ends_at[:19]) == ("60GiB", "guaranteed", "2027-02-01T00:00:00")
    assert cli.parser().parse_args([*words, "--borrow-limit"]).wanted == "borrow_limit"
    for wrong in ([*words, "--until", "soon"], words[:-2], ["request", "--pool", "a100", "--why", "x"]):
        with pytest.raises(SystemExit) as end:
            cli.parser().parse_args(wrong)
        assert end.value.code == 2


def test_amounts_are_written_as_on_the_pages(cli: Any) -> None:
    for text in ("6GiB", "6", "half", "25%", "1.5 GiB"):
        assert body(cli, "--pool", "t4", "--units", text, unit="MiB") == {"pool": "t4", "amount": text}
    assert body(cli, "--memory", "16")["memory_mib"] == 16384
    with pytest.raises(SystemExit):
        body(cli, "--memory", "16384")
    arguments = importlib.import_module("gpuq.arguments")
    assert [
        arguments.amount(*each)
        for each in (
            (6144, "MiB"),
            (7680, "MiB"),
            (2611, "MiB"),
            (512, "MiB"),
            (2, "card"),
            (1, "card"),
            (25, "percent"),
            (1600, "percent"),
            (2000, "card"),
            (2048 * 1024, "MiB"),
        )
    ] == [
        "6 GiB",
        "7.5 GiB",
        "2.5 GiB",
        "512 MiB",
        "2 cards",
        "1 card",
        "25 %",
        "1,600 %",
        "2,000 cards",
        "2,048 GiB",
    ]


def test_hours_of_memory_are_of_gib_and_those_of_shares_of_whole_cards(cli: Any) -> None:
    hours_of = importlib.import_module("gpuq.arguments").hours_of
    assert [hours_of(unit) for unit in ("card", "MiB", "percent", "slice")] == ["card", "GiB", "card", "slice"]


@pytest.mark.parametrize("used", [0, 0.004, 0.25, 1, 9.99, 285.32, 4024])
def test_share_of_a_budget_is_written_as_on_the_pages(cli: Any, used: float) -> None:
    share = importlib.import_module("gpuq.arguments").share
    assert share(used * 200, 200) == percent(used)
    assert share(57064, 200) == "285×"


def test_secret_variables_are_read_from_the_environment_and_marked(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_KEY", "k")
    given = body(cli, "--env", "LR=0.1=x", "--secret", "WANDB_KEY")
    assert given["env"] == {"LR": "0.1=x", "WANDB_KEY": {"secret": "k"}}
    monkeypatch.delenv("WANDB_KEY")
    with pytest.raises(SystemExit):
        body(cli, "--secret", "WANDB_KEY")


def test_cards_are_refused_for_a_pool_with_another_unit(cli: Any) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="counts MiB"):
        body(cli, "--pool", "t4", "--cards", "1", unit="MiB")


@pytest.mark.parametrize(
    ("state", "reason", "code", "expected"),
    [
        ("succeeded", "", 0, 0),
        ("failed", "", 3, 3),
        ("failed", "", -9, 137),
        ("failed", "ImagePullBackOff", None, 1),
        ("cancelled", "", 143, 122),
        ("rejected", "max_wait", None, 123),
        ("rejected", "", None, 121),
    ],
)
def test_exit_code_reflects_how_the_workload_ended(
    cli: Any, state: str, reason: str, code: int | None, expected: int
) -> None:
    follow = importlib.import_module("gpuq.follow")
    assert follow.exit_code({"state": state, "reason": reason, "exit_code": code}) == expected


def test_distributed_jobs_and_services_have_their_own_options(cli: Any) -> None:
    given = body(
        cli, "--kind", "distributed", "--pods", "2", "--cards", "4", "--template", "torch", "--max-restarts", "3",
        "--shm", "8GiB", "--", "torchrun", "a.py",
    )  # fmt: skip
    assert (given["kind"], given["pods"], given["units_per_pod"]) == ("distributed", 2, 4)
    assert given["setup"] == {"template": "torch", "max_restarts": 3, "shm_mib": 8192}
    given = body(cli, "--kind", "service", "--port", "8000", "--ready-path", "/healthz")
    assert given == {"kind": "service", "setup": {"port": 8000, "ready_path": "/healthz"}}


def test_estimate_with_only_a_latest_start_is_not_shown_as_a_range(cli: Any) -> None:
    commands = importlib.import_module("gpuq.cli")
    at = "2017-10-02T12:10:05+00:00"
    estimate = {"low": at, "high": at, "latest": at, "confidence": None}
    assert commands.start_of({"estimate": estimate}) == f"{commands.local(at)} at the latest"


@pytest.mark.parametrize(("minutes", "expected"), [(0, "about {low}"), (80, "{low} to {high}"), (None, "{low} to ?")])
def test_estimate_of_equal_times_is_shown_as_one_time(cli: Any, minutes: int | None, expected: str) -> None:
    commands = importlib.import_module("gpuq.cli")
    low, high = "2017-10-02T12:10:05+00:00", "2017-10-02T13:30:05+00:00"
    times = {"low": commands.local(low), "high": commands.local(high)}
    estimate = {"low": low, "high": {0: low, 80: high, None: None}[minutes]}
    assert commands.start_of({"estimate": estimate}) == expected.format(**times)
    assert commands.start_of({"estimate": {**estimate, "confidence": 0.8}}) == expected.format(**times) + " (80 %)"
