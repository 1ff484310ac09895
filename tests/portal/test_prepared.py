from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from portal.models import ApiToken, Department
from portal.prepared import Prepared
from tests import builders as make
from tests.clients import token_of

pytestmark = pytest.mark.django_db(transaction=True)
TOKENS = Prepared(lambda prefix: ApiToken.objects.select_related("holder", "department").filter(prefix=prefix))


def test_each_call_asks_the_database_anew_with_its_own_value() -> None:
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


def test_every_thread_has_its_own() -> None:
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
