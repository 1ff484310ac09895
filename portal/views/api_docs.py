"""`/api/v1/docs/`: the API's guide first, then every operation with its parameters, examples and calls to copy.

Generated from the schema at `/api/v1/schema/`, with its summaries and descriptions in the reader's language; `/api/v1/docs/try/`
has forms to try the operations.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import translation
from drf_spectacular.generators import SchemaGenerator

from portal.access import NotVisible
from portal.api.operations import chinese_words
from portal.api.samples import Sample, samples
from portal.text.markdown import render as render_markdown
from portal.web import guides

METHODS = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True, slots=True)
class Example:
    """`where`: "request" or an HTTP status; `text`: "" for an empty body."""

    where: str
    media: str
    text: str


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    kind: str  # such as "query · string · required"
    text: str
    values: str  # those that it may have, or ""
    example: str


@dataclass(frozen=True, slots=True)
class Operation:
    name: str
    method: str
    path: str
    summary: str
    text: str  # HTML
    parameters: tuple[Parameter, ...]
    body: Example | None
    answers: tuple[Example, ...]
    samples: tuple[Sample, ...]


@cache
def _document() -> dict[str, Any]:
    """The schema is the same for everybody, in English, and generated once in each process."""
    with translation.override("en"):
        generator: Any = SchemaGenerator()  # type: ignore[no-untyped-call]
        document: dict[str, Any] = generator.get_schema(request=None, public=True)
    return document


def operations() -> dict[str, list[Operation]]:
    """Tag → its operations, in the reader's language."""
    return _operations(_reads_chinese())


@cache
def _operations(in_chinese: bool) -> dict[str, list[Operation]]:
    by_tag: dict[str, list[Operation]] = {}
    for path, item in _document()["paths"].items():
        for method in METHODS:
            if method in item:
                made = _operation(method, path, item[method], in_chinese)
                by_tag.setdefault(item[method]["tags"][0], []).append(made)
    return dict(sorted(by_tag.items()))


def _reads_chinese() -> bool:
    return (translation.get_language() or "").startswith("zh")


@cache
def chinese_terms() -> dict[str, str]:
    """Tags, and words and descriptions of parameters → the same in Chinese."""
    terms: dict[str, str] = yaml.safe_load(Path(__file__).with_name("api_docs.zh.yaml").read_text("utf-8"))
    return terms


def _term(english: str, in_chinese: bool) -> str:
    return chinese_terms().get(english, english) if in_chinese else english


def _operation(method: str, path: str, operation: dict[str, Any], in_chinese: bool) -> Operation:
    own = chinese_words().get(operation["operationId"], {}) if in_chinese else {}
    body = next(
        (_example("request", *pair) for pair in operation.get("requestBody", {}).get("content", {}).items()), None
    )
    answers = []
    for status, response in operation["responses"].items():
        if status == "default":
            continue  # errors are the same for all operations, and described in the guide
        contents = response.get("content", {})
        answers += [_example(status, *pair) for pair in contents.items()] or [Example(status, "", "")]
    return Operation(
        name=operation["operationId"], method=method, path=path, summary=own.get("summary", operation["summary"]),
        text=render_markdown(own.get("text", operation.get("description", "")), lambda link: link).html,
        parameters=tuple(_parameter(each, in_chinese) for each in operation.get("parameters", ())),
        body=body, answers=tuple(answers), samples=tuple(samples(method, path, operation)),
    )  # fmt: skip


def _parameter(parameter: dict[str, Any], in_chinese: bool) -> Parameter:
    schema = parameter["schema"]
    kinds = [parameter["in"], schema.get("type", ""), "required" if parameter.get("required") else ""]
    return Parameter(
        name=parameter["name"],
        kind=" · ".join(_term(kind, in_chinese) for kind in kinds if kind),
        text=_term(parameter.get("description", ""), in_chinese).replace("`", ""),
        values=" · ".join(map(str, schema.get("enum", ()))),
        example=str(parameter.get("example", "")),
    )


def _example(where: str, media: str, content: dict[str, Any]) -> Example:
    example = content["example"]
    return Example(
        where, media, example if isinstance(example, str) else json.dumps(example, indent=2, ensure_ascii=False)
    )


def index(request: HttpRequest) -> HttpResponse:
    guide = guides.guide("api")
    contents = [each for each in guide.document.sections if each.level == 2] if guide else []
    tags = [(tag, _term(tag, _reads_chinese()), rows) for tag, rows in operations().items()]
    return render(request, "portal/api_docs.html", {"guide": guide, "contents": contents, "tags": tags})


def group(request: HttpRequest, tag: str) -> HttpResponse:
    """Raises NotVisible if there is no such part of the API."""
    if tag not in operations():
        raise NotVisible
    heading = _term(tag, _reads_chinese())
    return render(
        request, "portal/api_docs_group.html", {"tag": tag, "heading": heading, "operations": operations()[tag]}
    )
