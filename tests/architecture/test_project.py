"""The project as a whole: Django's checks, templates, documents, tasks and messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.core.management import call_command
from django.template.loader import get_template

from portal.background.hints import WAKES
from portal.celery import TIMETABLE, app
from portal.text import catalogs
from tests.architecture import sources

TEMPLATES = sorted((sources.ROOT / "templates").rglob("*.html"))


@pytest.mark.django_db
def test_models_and_migrations_agree() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


def test_system_checks_find_nothing() -> None:
    call_command("check", fail_level="WARNING")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.relative_to(sources.ROOT / "templates").as_posix())
def test_template_compiles(path: object) -> None:
    get_template(path.relative_to(sources.ROOT / "templates").as_posix())  # type: ignore[attr-defined]


def test_templates_load_no_script_or_style_from_elsewhere() -> None:
    outside = re.compile(r"<(?:script|link|img)[^>]+(?:src|href)=[\"']https?://")
    assert [sources.name(path) for path in TEMPLATES if outside.search(path.read_text())] == []


def test_only_elements_with_a_role_have_an_aria_label() -> None:
    """Screen readers may ignore the name of an element without a role (ARIA 1.2, 6.6: generic, paragraph)."""
    named = re.compile(r"<(?:div|span|pre|p|code|em|strong|small|b|i)\b(?![^>]*\brole=)[^>]*\baria-label(?:ledby)?=")
    assert [
        f"{sources.name(path)}: {found[0]}" for path in TEMPLATES if (found := named.search(path.read_text()))
    ] == []


def test_documents_and_headings_that_docstrings_refer_to_exist() -> None:
    """The page exists, and so does the heading in quotes after it; decisions exist by their number."""
    missing = []
    for path in [*sources.files(), *(sources.ROOT / "tests").rglob("*.py")]:
        if "sharing" in path.parts:
            continue  # they refer to documents of other projects
        text = " ".join(path.read_text().split())
        for page, heading in re.findall(r'(?<![\w/.])(docs/[\w/-]+\.md)(?:, "([^"]+)")?', text):
            file = sources.ROOT / page
            headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE) if file.is_file() else []
            if not file.is_file() or (heading and heading not in headings):
                missing.append(f"{sources.name(path)}: {page} {heading}".strip())
        for number in re.findall(r"docs/adr/(\d{4})", text):
            if not list((sources.ROOT / "docs" / "adr").glob(f"{number}-*.md")):
                missing.append(f"{sources.name(path)}: docs/adr/{number}")
    assert missing == []


def test_decisions_are_numbered_without_gaps_and_listed_in_order() -> None:
    folder = sources.ROOT / "docs" / "adr"
    files = sorted(folder.glob("[0-9]*.md"))
    numbers = [int(path.name[:4]) for path in files]
    assert numbers == list(range(1, len(files) + 1))
    titles = [path.read_text().partition("\n")[0].removeprefix("# ") for path in files]
    assert [f"{int(path.name[:4])}.{path.stem[4:]}" for path in files] == [
        re.sub(r"[^a-z0-9.]+", "-", title.lower().replace("'s", "s")) for title in titles
    ]
    listed = re.findall(r"^\| (\d+) \| \[.+\]\((.+)\) \|$", (folder / "README.md").read_text(), re.MULTILINE)
    assert [(int(number), name) for number, name in listed] == [
        (n, path.name) for n, path in zip(numbers, files, strict=True)
    ]


def test_every_woken_or_scheduled_task_is_registered() -> None:
    app.loader.import_default_modules()
    assert {*WAKES, *TIMETABLE} - set(app.tasks) == set()


@pytest.mark.parametrize("language", catalogs.LANGUAGES)
def test_messages_are_complete(language: str) -> None:
    assert catalogs.faults(language) == []


def test_extraction_sees_python_templates_and_plurals() -> None:
    messages = {message.id for message in catalogs.extract() if message.id}
    assert "Not found, or you do not have access." in messages  # marked with N_
    assert "quota owner" in messages  # gettext_lazy


DOCUMENTS = [
    path for path in sorted(sources.ROOT.rglob("*.md"))
    if not {"node_modules", ".venv", "static", ".demo", ".cache"} & set(path.relative_to(sources.ROOT).parts)
]  # fmt: skip


@pytest.mark.parametrize("path", DOCUMENTS, ids=sources.name)
def test_links_and_named_files_of_documents_exist(path: Path) -> None:
    text = path.read_text()
    targets = {link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link}
    missing = {target for target in targets if target and not (path.parent / target).exists()}
    named = set(re.findall(r"`((?:portal|quotas|workloads|tests|deploy|requirements|docs)/[\w/.-]+\.\w+)`", text))
    missing |= {name for name in named if not (sources.ROOT / name).exists()}
    assert missing == set()
