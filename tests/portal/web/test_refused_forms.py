"""A refused form begins with links to the fields at fault, each with its error; the first one has the focus."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django import forms

from tests.architecture.doors import World, build
from tests.architecture.sources import ROOT
from tests.portal.web.forms import forms_of

pytestmark = pytest.mark.django_db
LINK = re.compile(r'<li><a href="#([\w-]+)"( autofocus)?>[^<]+</a>: [^<]+</li>')
KEPT = ("csrfmiddlewaretoken", "once", "version", "seen", "next", "TOTAL_FORMS", "INITIAL_FORMS")
WRONG = ("", "-1")


@pytest.fixture
def world(settings: Any, tmp_path: Path) -> World:
    settings.DATA_DIR, settings.DEBUG = tmp_path, True
    return build()


def refused_forms(answer: Any) -> Iterator[forms.BaseForm]:
    """The forms with errors in the context of a page."""
    found = [value for layer in answer.context or () for values in layer.dicts for value in values.values()]
    for value in found:
        for form in value if isinstance(value, forms.BaseFormSet) else [value]:
            if isinstance(form, forms.BaseForm) and form.errors:
                yield form


def test_every_form_with_a_preview_has_the_note_that_it_would_be_refused() -> None:
    """The note is beside the button, which static/portal.js makes secondary while the preview is refused."""
    panels = {path: re.findall(r'hx-get="[^"]*[^>]*hx-include="#([\w-]+)"[^>]*from:#\1', path.read_text()) for path in
              (ROOT / "templates").rglob("*.html")}  # fmt: skip
    forms = [(path, form) for path, named in panels.items() for form in named if "palette" not in form]
    assert len(forms) > 10
    without = []
    for path, form in forms:
        [source] = re.findall(rf'<form[^>]*id="{form}".*?</form>', path.read_text(), re.DOTALL)
        if not re.search(r'<button class="btn.*?</button>.*"_components/refused_now.html"', source, re.DOTALL):
            without.append(path.name)
    assert without == []


@pytest.mark.timeout(600)
def test_every_refused_form_links_to_each_field_at_fault(world: World) -> None:
    client, faulty, blamed = world.client("operator"), set[str](), set[str]()
    sendable = {(action, *fields): (page, fields) for page, action, fields in forms_of(world, "operator")}
    for (action, *_names), (page, fields) in sendable.items():
        if action in ("/login/", "/logout/", "/preferences/"):
            continue
        for wrong in WRONG:
            body = {name: value if name.endswith(KEPT) else wrong for name, value in fields.items()}
            answer = client.post(action, body)
            text = answer.content.decode() if answer.status_code == 422 else ""
            if "<html" not in text:
                continue
            links = dict(LINK.findall(text))
            for bound in (bound for form in refused_forms(answer) for bound in form.visible_fields() if bound.errors):
                target = bound.id_for_label or f"{bound.auto_id}_0"
                blamed.add(f"{action} {bound.name}")
                if target not in links or text.count(f' id="{target}"') != 1:
                    faulty.add(f"{page} → {action}: {bound.name}")
            if links and " autofocus" not in links.values():
                faulty.add(f"{page} → {action}: without focus")
    assert faulty == set()
    assert len(blamed) > 25
