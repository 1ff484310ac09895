"""Names stored before the rule existed are listed and cleaned, and stay distinct."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given
from hypothesis import strategies as st

from portal import names
from portal.models import AuditEntry, Department, User
from tests import builders as make


@given(st.text(max_size=30))
def test_cleaned_text_satisfies_the_rule_and_is_not_cleaned_further(text: str) -> None:
    name, line = names.cleaned(text), names.cleaned(text, name=False)
    names.plain(name)
    names.line(line)
    assert (names.cleaned(name), names.cleaned(line, name=False)) == (name, line)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Vision\nteam", "Vision team"),
        ("\u202etxt.exe", "txt.exe"),
        ("раураl", "paypal"),
        ("a\u200bb", "ab"),
        ("视觉 λ", "视觉 λ"),
        ("  two  blanks ", "  two  blanks "),
        ("\u2066\u2069", ""),
    ],
)
def test_name_is_cleaned(old: str, new: str) -> None:
    assert names.cleaned(old) == new


@pytest.mark.django_db(transaction=True)
def test_stored_names_are_listed_then_cleaned_and_stay_distinct() -> None:
    kept = make.department("kept", name="Vision team")
    evil = make.department("evil", name="Vision\nteam")
    more = make.department("more", name="Vision\u200b team")
    empty = make.department("empty", name="\u2066\u2069")
    make.user("olga")
    login = make.user("temporary")
    User.objects.filter(pk=login.pk).update(username="оlgа", first_name="O\u202elga")  # Cyrillic о, а
    before = list(Department.objects.order_by("pk").values_list("name", flat=True))
    out = StringIO()
    with pytest.raises(CommandError, match="5 names are refused"):
        call_command("clean_names", stdout=out)
    assert "'Vision\\nteam'" in out.getvalue()
    assert list(Department.objects.order_by("pk").values_list("name", flat=True)) == before
    call_command("clean_names", "--apply", stdout=out)
    after = dict(Department.objects.values_list("pk", "name"))
    assert (after[kept.pk], after[evil.pk], after[more.pk]) == ("Vision team", "Vision team-2", "Vision team-3")
    assert after[empty.pk] == f"department-{empty.pk}"
    login.refresh_from_db()
    assert (login.username, login.first_name) == ("olga-2", "Olga")
    assert AuditEntry.objects.filter(action="name.cleaned").count() == 5
    out = StringIO()
    call_command("clean_names", stdout=out)
    assert "All names are as the rule wants them" in out.getvalue()
