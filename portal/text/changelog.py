"""Parses a changelog in the format of Keep a Changelog into versions, groups, and entries with a short headline."""

from __future__ import annotations

import re
from dataclasses import dataclass

from portal.text.markdown import render

SHORT = 140  # characters; a longer headline is cut at a colon or semicolon
# Entries about machines rather than pages: commands, settings, addresses, and what only operators see.
TECHNICAL = re.compile(
    r"`|\*Operator|Helm|chart|Grafana|OpenTelemetry|OpenID|SAML|LDAP|PostgreSQL|Prometheus|API|token|DRA"
)


@dataclass(frozen=True, slots=True)
class Entry:
    headline: str  # HTML
    rest: str  # HTML; "" if there is only a headline
    is_technical: bool


@dataclass(frozen=True, slots=True)
class Group:
    name: str  # Added, Changed, …
    entries: tuple[Entry, ...]  # those that are not technical first


@dataclass(frozen=True, slots=True)
class Version:
    name: str  # "0.1.0", "Unreleased"
    date: str  # "2026-11-25"; "" if it has none
    groups: tuple[Group, ...]


def read(source: str) -> list[Version]:
    """The versions in the file's order, newest first."""
    versions = []
    for part in re.split(r"^## ", source, flags=re.M)[1:]:
        head, _mark, body = part.partition("\n")
        match = re.match(r"\[([^]]+)\](?: - (\S+))?", head)
        groups = [_group(text) for text in re.split(r"^### ", body, flags=re.M)[1:]]
        versions.append(Version(match[1] if match else head, (match and match[2]) or "", tuple(groups)))
    return versions


def _group(text: str) -> Group:
    name, _mark, body = text.partition("\n")
    entries = [_entry(" ".join(item.split())) for item in re.split(r"^- ", body, flags=re.M)[1:]]
    return Group(name.strip(), tuple(sorted(entries, key=lambda entry: entry.is_technical)))


def _entry(text: str) -> Entry:
    headline, rest = _halves(text)
    return Entry(_html(headline), _html(rest), bool(TECHNICAL.search(headline)))


def _halves(text: str) -> tuple[str, str]:
    """The first sentence, or its part before a colon or semicolon if it is long; and the rest."""
    ends = [each.start() for each in re.finditer(r"\. (?=[A-Z`*?(])", text) if _is_whole(text[: each.start()])]
    end = ends[0] if ends else len(text)
    if end > SHORT:
        breaks = [each.start() for each in re.finditer(r"[:;] ", text[:SHORT]) if _is_whole(text[: each.start()])]
        end = max((each for each in breaks if each >= SHORT // 4), default=end)
    return text[:end].rstrip("."), text[end + 1 :].strip()


def _is_whole(text: str) -> bool:
    return text.count("`") % 2 == text.count("*") % 2 == 0 and text.count("(") == text.count(")")


def _html(text: str) -> str:
    html = render(text, lambda link: link if "://" in link else "").html.strip()
    return html.removeprefix("<p>").removesuffix("</p>")
