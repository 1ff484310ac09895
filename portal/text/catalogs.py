"""Message catalogs for translators, using Babel alone, so that no gettext tools are needed.

Extracts from Python and templates, merges into locale/<language>/LC_MESSAGES/django.po, compiles to django.mo.
The sources are in English: the English catalog is filled with the sentences themselves.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_python
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from django.conf import settings
from django.utils.translation import gettext_noop
from django.utils.translation.template import templatize


def ngettext_noop(one: str, many: str) -> tuple[str, str]:
    """Marks a sentence with a plural that is translated elsewhere."""
    return one, many


# Django's own sentences, where its Chinese translation uses 你, for which the portal uses 您, or no space before figures. The
# portal's catalog has precedence.
FROM_DJANGO = (
    gettext_noop("Ensure this value is less than or equal to %(limit_value)s."),
    gettext_noop("Ensure this value is greater than or equal to %(limit_value)s."),
    gettext_noop("Ensure this value is a multiple of step size %(limit_value)s."),
    gettext_noop("Your password can’t be too similar to your other personal information."),
    gettext_noop("Your password can’t be a commonly used password."),
    ngettext_noop(
        "Your password must contain at least %(min_length)d character.",
        "Your password must contain at least %(min_length)d characters.",
    ),
)

LANGUAGES = {"zh_Hans": "zh_Hans_CN", "en": "en"}  # folder of locale/: Babel's name for it
PLACES = ("portal", "quotas", "workloads", "templates")
KEYWORDS: dict[str, Any] = {
    **dict.fromkeys(("_", "N_", "gettext", "gettext_lazy", "gettext_noop")),
    **dict.fromkeys(("ngettext", "ngettext_lazy", "ngettext_noop"), (1, 2)),
    **dict.fromkeys(("pgettext", "pgettext_lazy"), ((1, "c"), 2)),
    **dict.fromkeys(("npgettext", "npgettext_lazy"), ((1, "c"), 2, 3)),
}


def po_file(language: str) -> Path:
    return Path(settings.LOCALE_PATHS[0]) / language / "LC_MESSAGES" / "django.po"


def sources() -> Iterator[Path]:
    for place in PLACES:
        for path in sorted((Path(settings.BASE_DIR) / place).rglob("*")):
            if path.suffix in {".py", ".html", ".txt"} and "migrations" not in path.parts:
                yield path


def extract() -> Catalog:
    """Every sentence of the sources, sorted by file, without line numbers (they would change every day)."""
    catalog = Catalog(charset="utf-8")
    for path in sources():
        text = path.read_text()
        if path.suffix != ".py":
            code = templatize(text, origin=str(path))
            text = "\n".join(line.strip() for line in code.splitlines())
        where = (str(path.relative_to(settings.BASE_DIR)), 0)
        file = io.BytesIO(text.encode())
        for _line, function, words, comments in extract_python(file, KEYWORDS, ["Translators"], {"encoding": "utf-8"}):
            add(catalog, str(function or "_"), words, where, list(comments or ()))
    return catalog


def add(catalog: Catalog, function: str, sentences: Any, where: tuple[str, int], comments: list[str]) -> None:
    arguments: list[Any] = list(sentences) if isinstance(sentences, (tuple, list)) else [sentences]
    context = arguments.pop(0) if "pgettext" in function else None
    plural = "ngettext" in function or "npgettext" in function
    ids = [text for text in arguments[: 2 if plural else 1] if isinstance(text, str) and text]
    if len(ids) < (2 if plural else 1):
        return  # not a literal: it is marked where it is defined
    catalog.add(tuple(ids) if plural else ids[0], locations=[where], auto_comments=comments, context=context)


def read(language: str) -> Catalog:
    path = po_file(language)
    if not path.exists():
        return empty(language)
    with path.open("rb") as file:
        return read_po(file, locale=LANGUAGES[language])


def empty(language: str) -> Catalog:
    return Catalog(
        locale=LANGUAGES[language],
        charset="utf-8",
        project="gpu-quota-portal",
        header_comment="# Made by `make messages`.",
        fuzzy=False,
    )


def update(language: str) -> Catalog:
    """Adds new sentences and drops unused ones; translations are not guessed, so none is fuzzy."""
    catalog = read(language)
    catalog.update(extract(), no_fuzzy_matching=True, update_creation_date=False)
    catalog.obsolete.clear()
    if language == "en":
        for message in catalog:
            if message.id:
                message.string = message.id
                message.flags.discard("fuzzy")  # a sentence that got or lost its plural
    path = po_file(language)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        write_po(file, catalog, width=0, include_lineno=False, sort_by_file=True, omit_header=False)
    return catalog


def texts(message: Message) -> list[str]:
    """The message's translations: one, or one for each plural form; empty ones included."""
    string = message.string or ""
    return [string] if isinstance(string, str) else list(string)


def faults(language: str) -> list[str]:
    """What makes the catalog incomplete: missing, unused, untranslated or fuzzy sentences, and wrong placeholders."""
    catalog, wanted = read(language), extract()
    have = {(message.context, message.id): message for message in catalog if message.id}
    need = {(message.context, message.id) for message in wanted if message.id}
    problems = [f"missing: {key[1]!r}" for key in need - have.keys()]
    problems += [f"no longer used: {key[1]!r}" for key in have.keys() - need]
    for message in have.values():
        if message.fuzzy:
            problems.append(f"fuzzy: {message.id!r}")
        elif not all(texts(message)):
            problems.append(f"not translated: {message.id!r}")
        problems += [f"{error}: {message.id!r}" for error in message.check(catalog)]
    return sorted(problems)


def compile_one(language: str) -> bool:
    """Writes django.mo if it is older than django.po; True if it was written."""
    source = po_file(language)
    target = source.with_suffix(".mo")
    if not source.exists() or (target.exists() and target.stat().st_mtime >= source.stat().st_mtime):
        return False
    partial = target.with_suffix(f".{os.getpid()}.mo")  # a file per process, because two may compile at once
    with partial.open("wb") as file:
        write_mo(file, read(language))
    partial.replace(target)
    return True
