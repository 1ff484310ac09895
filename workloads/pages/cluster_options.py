"""The options of a cluster as the guide *Workloads on Kubernetes* describes them, beside the values that one cluster has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from portal.web.guides import guide
from workloads.kubernetes.manifests.options import OF_CLUSTER, OF_SHARING

GUIDE = "kubernetes"
KNOWN = OF_CLUSTER | OF_SHARING
NAME = re.compile("<code>([a-z_]+)</code>")


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the guide: one option, or a few that belong together."""

    names: tuple[str, ...]
    default: str  # HTML, as is `meaning`
    meaning: str
    present: tuple[tuple[str, str], ...]  # (name, JSON) of those that are set


def lines(options: Mapping[str, Any]) -> Iterator[Line]:
    """The guide's rows in its order, in the reader's language; each option once."""
    listed: set[str] = set()
    document = guide(GUIDE)
    for row in document.document.rows if document else ():
        names = tuple(name for name in NAME.findall(row[0]) if name in KNOWN)
        if names and len(row) == 3 and not listed.intersection(names):
            listed.update(names)
            present = tuple((name, json.dumps(options[name], ensure_ascii=False)) for name in names if name in options)
            yield Line(names, row[1], row[2], present)
