"""Files, functions and the interfaces between folders stay small."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

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


def test_there_are_no_catch_all_modules() -> None:
    forbidden = {"utils.py", "helpers.py", "services.py", "common.py", "misc.py"}
    assert [sources.name(path) for path in sources.files() if path.name in forbidden] == []


@pytest.mark.parametrize("app", ["portal", "quotas", "workloads"])
def test_folders_of_tests_are_named_like_the_folders_they_test(app: str) -> None:
    folders = {path.parent.name for path in (sources.ROOT / "tests" / app).glob("*/__init__.py")}
    rooms = {path.parent.name for path in (sources.ROOT / app).glob("*/__init__.py")}
    assert folders
    assert folders <= rooms


# How many names of a folder other folders may use. Above 15, nobody who changes the folder knows what others rely on.
NAMES = 15
MORE = {
    "workloads/runtime": 84,  # the contract itself: the types and errors that drivers and everything above them share
    "workloads/requests": 56,  # checks, prices, verdicts, display, templates: pages, API, actions, a file each use some of them
    "workloads/files": 16,  # stored logs, working directories, previews: pages, API and jobs each use some of them
    "workloads/sharing": 37,  # a module for each sharing system, most of them named by the modes that switch between them
    "workloads/replay": 27,  # used by a command, backtests and estimates; arguments of the command and of measurements
    "workloads/idle": 48,  # the rule, policies, exemptions, spells: the round, forms, pages, lists and the API each use some
    "workloads/measurement": 32,  # measuring, storing, showing: the job, pages, lists, the API and reports each use some of it
    "workloads/nodes/modes": 23,  # what preview, form and page of a change all need to know
    "portal/infra": 36,  # small foundations of everything else: locks, keys, logs, versions
    "portal/infra/providers": 17,  # the settings of four kinds of providers, and the requests to two of them
    "portal/text": 39,  # with json_values, which bounds bodies and fields, plain errors, sentences, spaces, charges, limits
    "portal/notify": 28,  # with safe_http, which sends every request to other people's servers, and webhooks
    "portal/accounts": 37,  # one name for each thing that people do with accounts, members and tokens
    "portal/sign_in": 46,  # adapters that settings name, rules, links, directories, guesses: pages and the API each use some
    "portal/server": 22,  # with reason_against, which readiness and its waiters share, and claimed, for the demo
    "portal/web": 47,  # frame of all pages, fields, lists, tours, responses to repeated requests, which the API shares
    "portal/api": 28,  # the frame that every view of the API is built on
    "portal/views": 76,  # a name for each page: page_urls.py lists them
    "quotas/views": 51,
    "quotas/reports": 20,  # query, sums, wording: page, CSV, API and the monthly mail each use some of them
    "quotas/requests": 22,  # submitting, deciding, preview, end: pages, API and a job each use some of them
    "quotas/engine": 92,  # types, reasons and their JSON; counting and placement for a replay
    "quotas/health": 17,  # judging, begin, end, preview, storage: inventory, pages, API and jobs each use some of them
    "quotas/previews": 19,
    "quotas/budgets": 17,  # setting, checks, access, display: pages, API and a job each use some of them
    "quotas/spending": 29,  # what was used: reports, budgets, balances, boards, metrics, the pass and a replay read the same sums
    "quotas/forms": 23,  # a backtest has the forms of quotas and pool rules, too; fields for durations are used everywhere
    "quotas/rules": 43,  # one name for each setting, its check and its bounds
    "quotas/board": 45,  # reading, drawing, wording: boards, pools, the card map, metrics and the API each use some
    "quotas/lending": 18,
    "quotas/planning": 21,  # with the rows of a snapshot, which a backtest has with other values, and the ledger's sources
}


def _folder_of(name: str) -> str:
    """The folder of a dotted module; a folder inside another one counts as part of it."""
    parts = name.split(".")
    is_package = (sources.ROOT / Path(*parts)).is_dir()
    return "/".join(parts if is_package else parts[:-1])


def _used_from_outside(app: str) -> dict[str, set[str]]:
    """Folder → names of its modules that modules outside of it (other than the lists of URLs) use."""
    used: dict[str, set[str]] = {}
    for path in sources.files("portal", "quotas", "workloads"):
        folder, modules = "/".join(path.relative_to(sources.ROOT).parent.parts), {}
        if path.name in ("urls.py", "api_urls.py"):
            continue
        for full in sources.imports(path):
            module, _, name = full.rpartition(".")
            if not full.startswith(f"{app}."):
                continue
            if (sources.ROOT / Path(*full.split("."))).with_suffix(".py").exists():
                modules[name] = full
            elif _is_outside(folder, _folder_of(module)):
                used.setdefault(_folder_of(module), set()).add(full)
        for node in ast.walk(sources.tree(path)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
                full = modules[node.value.id]
                if _is_outside(folder, _folder_of(full)):
                    used.setdefault(_folder_of(full), set()).add(f"{full}.{node.attr}")
    return used


def _is_outside(here: str, room: str) -> bool:
    return not (here == room or here.startswith(f"{room}/") or (room.startswith(f"{here}/") and "/" in here))


@pytest.mark.parametrize("app", ["portal", "quotas", "workloads"])
def test_a_folder_has_at_most_15_names_that_others_use(app: str) -> None:
    used = {room: len(names) for room, names in _used_from_outside(app).items() if "/" in room}
    assert {room: count for room, count in used.items() if count > MORE.get(room, NAMES)} == {}


@pytest.mark.parametrize("app", ["portal", "quotas", "workloads"])
def test_no_two_folders_import_each_other(app: str) -> None:
    arrows = set()
    for path in sources.files(app):
        here = sources.name(path).removesuffix(".py").split("/")
        mine = here[1] if len(here) > 2 else here[-1]
        for full in sources.imports(path):
            there = full.split(".")
            if there[0] == app and len(there) > 1 and there[1] != mine:
                arrows.add((mine, there[1]))
    assert {pair for pair in arrows if pair[::-1] in arrows} == set()


# Words that do not say what they name, and how many names outside of quotas/engine still are such a word.
VAGUE = {"found", "told", "mine", "here", "said", "kept", "theirs", "gone", "happened", "shown", "thing", "stands"}
VAGUE_MOST = 1  # a column of a table; never raise it


def _names(node: ast.AST) -> list[str]:
    """What a node of a syntax tree names: a variable, a parameter, a function or a class."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
    return []


def test_vague_names_do_not_increase() -> None:
    """A name says what it holds: `victims`, not `told`; `matches`, not `found`."""
    vague = [
        f"{sources.name(path)}: {name}"
        for path in sources.files("portal", "quotas", "workloads")
        if not sources.name(path).startswith("quotas/engine/")
        for node in ast.walk(sources.tree(path))
        for name in _names(node)
        if name in VAGUE
    ]
    assert len(vague) <= VAGUE_MOST, vague
