"""Files and functions stay small enough to read whole."""

from __future__ import annotations

import ast

from tests.architecture import sources

FILE, FUNCTION, TEMPLATE = 800, 60, 200


def test_files_have_at_most_800_lines() -> None:
    sizes = {sources.name(path): len(path.read_text().splitlines()) for path in sources.files()}
    assert {name: size for name, size in sizes.items() if size > FILE} == {}


def test_functions_have_at_most_60_lines() -> None:
    long = {
        f"{sources.name(path)}:{node.name}": node.end_lineno - node.lineno + 1
        for path in sources.files()
        for node in ast.walk(sources.tree(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno is not None
        if node.end_lineno - node.lineno + 1 > FUNCTION
    }
    assert long == {}


def test_templates_have_at_most_200_lines() -> None:
    sizes = {
        sources.name(path): len(path.read_text().splitlines()) for path in (sources.ROOT / "templates").rglob("*.html")
    }
    assert {name: size for name, size in sizes.items() if size > TEMPLATE} == {}


def test_there_is_no_drawer_for_odds_and_ends() -> None:
    forbidden = {"utils.py", "helpers.py", "services.py", "common.py", "misc.py"}
    assert [sources.name(path) for path in sources.files() if path.name in forbidden] == []
