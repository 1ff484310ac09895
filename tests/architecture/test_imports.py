"""Directions of imports, and places to which some calls are limited."""

from __future__ import annotations

import ast

from importlinter.cli import lint_imports

from tests.architecture import sources


def test_import_contracts_hold() -> None:
    assert lint_imports(config_filename=str(sources.ROOT / ".importlinter"), no_cache=True) == 0


def test_no_module_imports_tasks() -> None:
    violations = [
        f"{sources.name(path)} imports {imported}"
        for path in sources.files("portal", "quotas", "workloads")
        for imported in sources.imports(path)
        if imported.split(".")[:2] in (["portal", "tasks"], ["quotas", "tasks"], ["workloads", "tasks"])
    ]
    assert violations == []


def test_only_the_kubernetes_driver_imports_the_client() -> None:
    violations = [
        sources.name(path)
        for path in sources.files("portal", "quotas", "workloads")
        if sources.name(path) not in ("workloads/kubernetes/driver.py", "workloads/kubernetes/exec.py")
        for imported in sources.imports(path)
        if imported.split(".")[0] == "kubernetes"
    ]
    assert violations == []


def test_tasks_are_sent_in_one_place_only() -> None:
    senders = {"delay", "apply_async", "send_task", "delay_on_commit"}
    violations = [
        f"{sources.name(path)}:{call.lineno}"
        for path in sources.files("portal", "quotas", "workloads")
        if sources.name(path) != "portal/background/hints.py"
        for call in sources.calls(path)
        if isinstance(call.func, ast.Attribute) and call.func.attr in senders
    ]
    assert violations == []


def test_row_locks_never_block_foreign_keys() -> None:
    """A plain FOR UPDATE blocks every insert that refers to the row; see docs/concurrency.md."""
    violations = [
        f"{sources.name(path)}:{call.lineno}"
        for path in sources.files("portal", "quotas", "workloads")
        for call in sources.calls(path)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "select_for_update"
        if not any(keyword.arg == "no_key" for keyword in call.keywords)
    ]
    assert violations == []


def test_models_have_no_signals_and_no_save_of_their_own() -> None:
    violations = [
        sources.name(path)
        for path in sources.files("portal", "quotas", "workloads")
        for imported in sources.imports(path)
        if imported.startswith(("django.db.models.signals", "django.dispatch"))
    ]
    violations += [
        f"{sources.name(path)}: save()"
        for path in sources.files("portal", "quotas", "workloads")
        if path.name == "models.py"
        for node in ast.walk(sources.tree(path))
        if isinstance(node, ast.FunctionDef) and node.name == "save"
    ]
    assert violations == []
