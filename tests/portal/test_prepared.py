from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import IntegrityError, connection, transaction

from portal.models import ApiToken, AuditEntry, Department, Event
from portal.prepared import Prepared, insert
from tests import builders as make
from tests.clients import token_of

pytestmark = pytest.mark.django_db(transaction=True)
TOKENS = Prepared(lambda prefix: ApiToken.objects.select_related("holder", "department").filter(prefix=prefix))


def test_each_call_queries_the_database_again_with_its_own_value() -> None:
    vision = make.department("vision")
    one, _text = token_of(make.member(vision, username="alice"), vision, ["read"])
    other, _text = token_of(make.member(vision, username="bob"), vision, ["submit"])
    for _ in range(2):
        first, second = TOKENS.first(one.prefix), TOKENS.first(other.prefix)
        assert first is not None
        assert second is not None
        assert (first.pk, first.holder.username, first.scopes) == (one.pk, "alice", ["read"])
        assert (second.pk, second.holder.username, second.scopes) == (other.pk, "bob", ["submit"])
    Department.objects.update(name="Seeing")
    first = TOKENS.first(one.prefix)
    assert first is not None
    assert first.department.name == "Seeing"
    assert TOKENS.first("nobody's") is None


def test_prepared_query_can_be_used_by_several_threads() -> None:
    vision = make.department("vision")
    tokens = [token_of(make.member(vision), vision, ["read"])[0] for _ in range(8)]

    def look(token: ApiToken) -> bool:
        from django.db import connections

        try:
            return all(
                (found := TOKENS.first(token.prefix)) is not None and found.holder_id == token.holder_id
                for _ in range(20)
            )
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(look, tokens))


def test_insert_writes_the_same_row_as_save() -> None:
    vision = make.department("vision")

    def entry(target: str) -> AuditEntry:
        return AuditEntry(action="workload.submitted", actor_name="alice", department=vision, target=target,
                          before=None, after={"pods": 2, "name": "größe"})  # fmt: skip

    saved = entry("one")
    saved.save(force_insert=True)
    for target in ("two", "three"):
        written = insert(entry(target))
        assert written.pk > saved.pk
        found = AuditEntry.objects.get(pk=written.pk)
        same = [field.attname for field in AuditEntry._meta.local_fields if field.attname not in {"id", "at", "target"}]
        assert [getattr(found, name) for name in same] == [getattr(saved, name) for name in same]
        assert (found.target, found.at) == (target, written.at)
        written.target = "changed"
        written.save()  # the row exists: an update
        assert AuditEntry.objects.get(pk=written.pk).target == "changed"
    assert AuditEntry.objects.count() == 3


def test_insert_returns_the_values_that_the_database_fills_in() -> None:
    with transaction.atomic():
        first, second = insert(Event(kind="one")), insert(Event(kind="two"))
    third = insert(Event(kind="three"))
    assert first.tx == second.tx == Event.objects.get(pk=first.pk).tx
    assert (third.tx > second.tx) is (connection.vendor == "postgresql")


def test_refused_insert_marks_its_transaction_for_rollback() -> None:
    make.department("vision")
    with transaction.atomic():
        with pytest.raises(IntegrityError):
            insert(Department(slug="vision", name="another"))
        assert connection.needs_rollback
    assert Department.objects.count() == 1
