"""Names that are older than the rule for names (docs/adr/0031): lists those that it would refuse today, and cleans them on
request.

Line breaks, control characters and direction marks become blanks or are removed; in a word of letters that only look like Latin
ones, Latin letters replace them. If a cleaned name looks like another one, a number is appended.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import models

from portal import audit, names
from portal.access import Actor
from portal.errors import Invalid
from portal.infra.locks import durable
from portal.models import Department, User

APART = {(User, "username"), (Department, "name")}  # names that identify somebody must not look alike


class Command(BaseCommand):
    help = "Lists stored names that the rule for names refuses today; with --apply each is cleaned and audited."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--apply", action="store_true", help="write the cleaned names; without it nothing is changed"
        )

    def handle(self, *args: Any, apply: bool, **options: Any) -> None:
        refused = 0
        for model, column in columns():
            for pk, old in list(model._default_manager.order_by("pk").values_list("pk", column)):
                if (new := cleaned(model, column, old)) == old:
                    continue
                new = apart(model, column, new or f"{model._meta.model_name}-{pk}", pk)
                refused += 1
                self.stdout.write(f"{model._meta.label} {pk}: {column} {old!a} → {new}")
                if apply:
                    write(model, column, pk, old, new)
        if not apply and refused:
            raise CommandError(
                f"{refused} names are refused today. `manage.py clean_names --apply` writes the ones shown."
            )
        self.stdout.write(f"{refused} names were cleaned." if refused else "All names are as the rule wants them.")


def columns() -> Iterator[tuple[type[models.Model], str]]:
    """Every column that holds a name or one line of text, and the login names: (model, column)."""
    for model in apps.get_models():
        for field in model._meta.fields:
            if isinstance(field, names.LineField) or (model is User and field.name == "username"):
                yield model, field.name


def cleaned(model: type[models.Model], column: str, old: str) -> str:
    """The nearest value that the rule accepts; the value itself if it is accepted."""
    field: Any = model._meta.get_field(column)
    if column != "username":
        return names.cleaned(old, name=isinstance(field, names.NameField))[: field.max_length]
    try:
        names.login(old)
    except (Invalid, ValidationError):
        text = names.cleaned(old).replace(" ", "-")
        return text if any(sign.isalnum() for sign in text) else ""
    return old


def apart(model: type[models.Model], column: str, new: str, pk: int) -> str:
    """The name with a number added if another row's name looks the same and the column must be distinct."""
    field: Any = model._meta.get_field(column)
    if not field.unique and (model, column) not in APART:
        return new
    others = list(model._default_manager.exclude(pk=pk).values_list(column, flat=True))
    for number in itertools.count(2):
        if not names.same_looking(new, others):
            return new
        end = f"-{number}"
        new = new.removesuffix(f"-{number - 1}")[: field.max_length - len(end)] + end
    raise AssertionError


def write(model: type[models.Model], column: str, pk: int, old: str, new: str) -> None:
    """Writes and audits the new value, unless it was changed in the meantime."""
    with durable():
        if model._default_manager.filter(pk=pk, **{column: old}).update(**{column: new}):
            target = f"{model._meta.model_name} {pk}"
            audit.record(Actor(None), "name.cleaned", target, before={column: old}, after={column: new})
