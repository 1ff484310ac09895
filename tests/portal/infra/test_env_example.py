"""`.env.example` is complete and correct: every variable that is read, with its default."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.architecture import sources

FILE = sources.ROOT / ".env.example"
LINE = re.compile(r"^(#?)([A-Z][A-Z_]+)=(.*)$", re.MULTILINE)
READERS = {"text", "boolean", "integer", "words", "networks"}


def named() -> dict[str, tuple[bool, str]]:
    """Name → (has to be set, value)."""
    return {name: (not mark, value) for mark, name, value in LINE.findall(FILE.read_text())}


def read() -> dict[str, str | None]:
    """Name → its default where it is a literal, from every call of a reader in portal/infra/env.py."""
    found: dict[str, str | None] = {}
    for path in sources.files("portal", "quotas", "workloads"):
        for call in sources.calls(path):
            function = call.func
            if (
                isinstance(function, ast.Attribute)
                and function.attr in READERS
                and ast.unparse(function.value) == "env"
            ):
                name = ast.literal_eval(call.args[0])
                default = call.args[1] if len(call.args) > 1 else None
                found[name] = default_of(function.attr, default)
    return found


def default_of(reader: str, node: ast.expr | None) -> str | None:
    if node is None:
        return "false" if reader == "boolean" else ""
    if not isinstance(node, ast.Constant):
        return None  # derived from other settings
    return str(node.value).lower() if isinstance(node.value, bool) else str(node.value)


def test_example_has_exactly_the_variables_that_are_read() -> None:
    assert set(named()) == set(read())


def test_example_shows_the_actual_defaults() -> None:
    shown = {name: value for name, (required, value) in named().items() if not required}
    wrong = {name: (shown[name], default) for name, default in read().items() if name in shown and default is not None}
    assert {name: pair for name, pair in wrong.items() if pair[0] != pair[1]} == {}


def test_environment_is_read_through_env_py_only() -> None:
    allowed = {"portal/infra/env.py", "portal/celery.py", "portal/wsgi.py", "portal/asgi.py"}
    violations = [
        f"{sources.name(path)}:{node.lineno}"
        for path in sources.files("portal", "quotas", "workloads")
        if sources.name(path) not in allowed and "/demo/programs/" not in sources.name(path)
        for node in ast.walk(sources.tree(path))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"os.environ", "os.getenv"}
    ]
    assert violations == []


def test_installation_starts_with_only_the_required_variables(tmp_path: Path) -> None:
    required = {name: value or "x" * 44 for name, (is_required, value) in named().items() if is_required}
    code = "from portal import settings as s; print(s.DEBUG, s.SECURE_HSTS_SECONDS > 0, sorted(s.ALLOWED_HOSTS))"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=sources.ROOT, env={"PATH": os.environ["PATH"], **required}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert ran.stdout.strip() == "False True ['127.0.0.1', 'gpu.example.org', 'localhost']"
