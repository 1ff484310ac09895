"""The changes of a draft, in the reader's language."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from django.utils.translation import gettext as _

from portal.web.code_names import fact_name
from workloads.configuration.words import value_in_words
from workloads.models import Backtest


def in_words(row: Backtest, departments: Mapping[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """(path in the configuration, name, before, after) of each change; "" for a value that is not set. `departments`: id →
    name."""
    pools = {pool.slug: pool for pool in row.group.pools.all()}
    for path, before, after in row.changes:
        pool, section = None, path.split(".")[0]
        match path.split("."):
            case ["departments", department, ("quotas" | "user_caps") as section, slug, *rest]:
                name, pool = rest[0] if rest else "units", pools.get(slug)
                place = [departments.get(department, department), pool.name if pool else slug]
            case ["pools", slug, name]:
                pool = pools.get(slug)
                place = [pool.name if pool else slug]
            case [_section, slug, name]:
                place = [departments.get(slug, slug)]
            case _:
                raise ValueError(path)
        label = _("Cap per user") if section == "user_caps" else fact_name(name)
        yield (
            path,
            " · ".join([*place, label]),
            value_in_words(section, name, before, pool),
            value_in_words(section, name, after, pool),
        )
