"""What a draft changes, in the reader's words."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext as _
from rest_framework import serializers

from portal.models import Department
from portal.text.words import duration, exact
from portal.web.code_names import fact_name
from quotas.api.policies import PolicyShape
from quotas.engine.snapshot_json import policy_from_json
from quotas.models import Pool
from quotas.wording import policy_sentences, window_in_words
from workloads.configuration import document
from workloads.configuration.fields import Amount, Duration, LendingWindow
from workloads.configuration.kinds import SECTIONS
from workloads.models import Backtest

UNSET = (None, "", [], {})


def in_words(row: Backtest) -> Iterator[tuple[str, str, str, str]]:
    """(path in the configuration, what it is, before, after) of each; "": it is not set."""
    departments = dict(Department.objects.values_list("slug", "name"))
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
        yield path, " · ".join([*place, label]), _value(section, name, before, pool), _value(section, name, after, pool)


def _value(section: str, name: str, text: str | None, pool: Pool | None) -> str:
    """A value of the configuration; as it is written there if it is not understood any more."""
    raw = document.read(text).values if text else None
    if raw in UNSET:
        return ""
    shape = SECTIONS[section].shape(data={name: raw}, context={"pool": pool})
    if not shape.is_valid() or (pool is None and section != "departments"):
        return text or ""
    value, field = shape.validated_data[name], shape.fields[name]
    match field:
        case Amount() if value is None:
            return _("all") if name == "lend_limit" else _("no limit")
        case Amount():
            return exact(value, pool)
        case Duration():
            return duration(value)
        case serializers.BooleanField():
            return _("yes") if value else _("no")
        case PolicyShape():
            return " ".join(policy_sentences(policy_from_json(value)))
        case serializers.ListSerializer(child=LendingWindow()):
            return _("; ").join(window_in_words(window, pool) for window in value)
    return str(value)
