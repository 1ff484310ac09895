"""Form fields for commands and variables: a command runs as a terminal would run it."""

import subprocess
from pathlib import Path

import pytest
from django.core.exceptions import ValidationError
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.requests.text_fields import CommandField, VariablesField


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
def test_command_of_plain_words_runs_without_a_shell(line: str) -> None:
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
def test_command_with_shell_syntax_runs_in_a_shell(line: str) -> None:
    words = CommandField().clean(line)
    assert words == ("sh", "-ec", line)
    assert CommandField().prepare_value(words) == line


@settings(max_examples=150)
@given(st.text(st.sampled_from("ab '\"\\\\$=|&;<*~#"), max_size=12))
def test_command_gets_the_same_words_as_from_a_shell(tmp_path_factory: pytest.TempPathFactory, line: str) -> None:
    """Tested with printf, which prints its arguments, and in bash, which knows $'…' like a newer `sh`."""
    typed = f"printf '%s.' {line}"
    try:
        words = CommandField().clean(typed)
    except ValidationError:
        return
    empty = Path(tmp_path_factory.mktemp("empty"))
    if words[0] != "sh":
        outputs = [
            subprocess.run(each, cwd=empty, capture_output=True).stdout for each in (words, ("bash", "-c", typed))
        ]
        assert outputs[0] == outputs[1]


def test_comment_alone_is_an_empty_command() -> None:
    assert CommandField(required=False).clean("  # later") == ()


def test_unclosed_quotation_mark_is_reported() -> None:
    with pytest.raises(ValidationError, match="not closed"):
        CommandField().clean("python 'train.py")


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
TRICKY = st.text(st.sampled_from("a=<'\"\\\\ \n\r$#;END_"), max_size=20)


def through_a_browser(text: str) -> str:
    """The text as a text area sends it: every line ends with CR LF (HTML, "newline normalization")."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")


@settings(max_examples=500)
@given(st.lists(st.one_of(TEXT, TRICKY, st.sampled_from(["exec", "A=1", "sh", "-ec", "", "cd"])), max_size=5))
def test_any_argument_list_survives_a_round_trip_through_the_form(words: list[str]) -> None:
    field = CommandField(required=False)
    assert field.clean(through_a_browser(str(field.prepare_value(words)))) == tuple(words)


@settings(max_examples=300)
@given(st.one_of(TEXT, TRICKY, st.sampled_from(["python train.py", "  a\n b\n", "a\r\nb"])))
def test_any_script_survives_a_round_trip_through_the_form(script: str) -> None:
    field = CommandField(required=False)
    assert field.clean(through_a_browser(field.prepare_value(("sh", "-ec", script)))) == ("sh", "-ec", script)


def test_multiline_argument_stays_an_argument() -> None:
    line = "python -c 'import time\nprint(1)' --name \"two words\""
    words = CommandField().clean(line)
    assert words == ("python", "-c", "import time\nprint(1)", "--name", "two words")
    assert CommandField().clean(CommandField().prepare_value(words)) == words


@settings(max_examples=500)
@given(
    st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True), st.one_of(TEXT, TRICKY), max_size=4)
)
def test_any_variables_survive_a_round_trip_through_the_form(variables: dict[str, str]) -> None:
    field = VariablesField(required=False)
    assert field.clean(through_a_browser(field.prepare_value(variables))) == variables


def test_multiline_value_is_shown_as_a_here_document() -> None:
    shown = VariablesField().prepare_value({"A": "1", "KEY": "-----BEGIN\nEND\nx"})
    assert shown == "A=1\nKEY<<END_\n-----BEGIN\nEND\nx\nEND_"
    with pytest.raises(ValidationError, match="not closed by a line EOF"):
        VariablesField().clean("KEY<<EOF\na\nb")
    with pytest.raises(ValidationError, match="A is defined twice"):
        VariablesField().clean("A=1\nA=2")
