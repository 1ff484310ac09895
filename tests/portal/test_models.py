import pytest
from django.core.management import call_command

from portal.models import Event


@pytest.mark.django_db
def test_migrations_match_the_models() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


@pytest.mark.django_db(transaction=True)
def test_event_records_the_transaction_that_wrote_it() -> None:
    first, second = Event.objects.create(kind="a"), Event.objects.create(kind="b")
    first.refresh_from_db()
    second.refresh_from_db()
    assert second.tx > first.tx > 0
