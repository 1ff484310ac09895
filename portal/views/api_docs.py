"""`/api/v1/docs/`: the API's guide first, then every operation with its parameters, examples and calls to copy.

Generated from the schema at `/api/v1/schema/`; `/api/v1/docs/try/` has forms to try the operations.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import translation
from drf_spectacular.generators import SchemaGenerator

from portal.access import NotVisible
from portal.api.samples import Sample, samples
from portal.text.markdown import render as render_markdown
from portal.views.guides import reads_another_language
from portal.web import guides

METHODS = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True, slots=True)
class Example:
    """`where`: "request" or an HTTP status; `text`: "" for an empty body."""

    where: str
    media: str
    text: str


@dataclass(frozen=True, slots=True)
class Operation:
    name: str
    method: str
    path: str
    summary: str
    text: str  # HTML
    parameters: tuple[dict[str, Any], ...]
    body: Example | None
    answers: tuple[Example, ...]
    samples: tuple[Sample, ...]


@cache
def operations() -> dict[str, list[Operation]]:
    """Tag → its operations. The schema is the same for everybody, in English, and generated once in each process."""
    with translation.override("en"):
        generator: Any = SchemaGenerator()  # type: ignore[no-untyped-call]
        document = generator.get_schema(request=None, public=True)
    by_tag: dict[str, list[Operation]] = {}
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                by_tag.setdefault(item[method]["tags"][0], []).append(_operation(method, path, item[method]))
    return dict(sorted(by_tag.items()))


def _operation(method: str, path: str, operation: dict[str, Any]) -> Operation:
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
        name=operation["operationId"], method=method, path=path, summary=operation["summary"],
        text=render_markdown(operation.get("description", ""), lambda link: link).html,
        parameters=tuple(operation.get("parameters", ())), body=body, answers=tuple(answers),
        samples=tuple(samples(method, path, operation)),
    )  # fmt: skip


def _example(where: str, media: str, content: dict[str, Any]) -> Example:
    example = content["example"]
    return Example(
        where, media, example if isinstance(example, str) else json.dumps(example, indent=2, ensure_ascii=False)
    )


def index(request: HttpRequest) -> HttpResponse:
    guide = guides.guide("api")
    contents = [each for each in guide.document.sections if each.level == 2] if guide else []
    context = {"guide": guide, "contents": contents, "tags": operations(), "in_english": reads_another_language()}
    return render(request, "portal/api_docs.html", context)


def group(request: HttpRequest, tag: str) -> HttpResponse:
    """Raises NotVisible if there is no such part of the API."""
    if tag not in operations():
        raise NotVisible
    return render(
        request, "portal/api_docs_group.html", {"tag": tag, "operations": operations()[tag], "tags": operations()}
    )
