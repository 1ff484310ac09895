"""What people write in fields of their own: a command is run as a terminal would run it."""

import subprocess
from pathlib import Path

import pytest
from django.core.exceptions import ValidationError
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.inputs import CommandField


@pytest.mark.parametrize(
    "line",
    [
        "python train.py --lr 1e-3",
        "python -c 'print(1); import os && $HOME'",
        'python "a file.py" --name "it is \\"so\\""',
        "python -m torch.distributed.run --nproc-per-node=8 train.py",
        r"python a\ b.py \$HOME",
    ],
)
def test_words_alone_need_no_shell(line: str) -> None:
    words = CommandField().clean(line)
    assert words[0] == "python"
    assert CommandField().clean(CommandField().prepare_value(words)) == words


@pytest.mark.parametrize(
    "line",
    [
        "pip install -r requirements.txt && python train.py",
        "exec python train.py",
        "cd src; python train.py",
        "python train.py --run $HOSTNAME",
        'python train.py --run "$HOSTNAME"',
        "python train.py > out.txt",
        "python train.py data/*.csv",
        "python ~/train.py",
        "SEED=1 python train.py",
        "python train.py | tee log",
        "python train.py `hostname`",
        "python train.py  # the large one",
        "a\nb",
    ],
)
def test_what_a_shell_does_is_left_to_a_shell(line: str) -> None:
    words = CommandField().clean(line)
    assert words == ("sh", "-ec", line)
    assert CommandField().prepare_value(words) == line


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from("ab '\"\\\\$=|&;<*~#"), max_size=12))
def test_it_runs_with_the_words_that_a_shell_gives_it(tmp_path_factory: pytest.TempPathFactory, line: str) -> None:
    """With printf, since its output is its words."""
    written = f"printf '%s.' {line}"
    try:
        words = CommandField().clean(written)
    except ValidationError:
        return
    empty = Path(tmp_path_factory.mktemp("empty"))
    if words[0] != "sh":
        ran = [subprocess.run(each, cwd=empty, capture_output=True).stdout for each in (words, ("sh", "-c", written))]
        assert ran[0] == ran[1]


def test_a_remark_alone_is_no_command() -> None:
    assert CommandField(required=False).clean("  # later") == ()


def test_a_quotation_mark_that_is_not_closed_is_named() -> None:
    with pytest.raises(ValidationError, match="not closed"):
        CommandField().clean("python 'train.py")
