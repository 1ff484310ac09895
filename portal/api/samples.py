"""An API call as code to copy: for curl, Python with requests, and gpuq if it has a command for it."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

Json = Any
HEADERS = {"If-Match": '"3"', "Idempotency-Key": "build-4711"}  # headers that a sample shows, with an example value
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Sample:
    name: str  # label of its tab
    text: str


def samples(method: str, path: str, operation: dict[str, Any]) -> list[Sample]:
    """`operation` as in the schema, with its examples (portal/api/operations.py)."""
    filled = path
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            filled = filled.replace(f"{{{parameter['name']}}}", quote(str(parameter["example"]), safe="/"))
    filled = filled.removeprefix("/api/v1")
    headers = {p["name"]: HEADERS[p["name"]] for p in operation.get("parameters", ()) if p["name"] in HEADERS}
    if method != "post":
        headers.pop("Idempotency-Key", None)
    contents = operation.get("requestBody", {}).get("content", {})
    media = JSON if JSON in contents else next(iter(contents), "")
    body = contents[media]["example"] if media else None
    is_open = not operation.get("security")
    both = [
        Sample("curl", _curl(method, filled, headers, media, body, is_open)),
        Sample("Python", _python(method, filled, headers, media, body, is_open)),
    ]
    return [*both, Sample("gpuq", operation["x-gpuq"])] if "x-gpuq" in operation else both


def _curl(method: str, path: str, headers: dict[str, str], media: str, body: Json, is_open: bool) -> str:
    parts = ["curl -sSf" + ("" if method == "get" else f" -X {method.upper()}")]
    if not is_open:
        parts.append('-H "Authorization: Bearer $GPUQ_TOKEN"')
    parts += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items()]
    if media == JSON:
        parts.append(f"--json {shlex.quote(json.dumps(body, ensure_ascii=False))}")
    elif media:
        parts += [f"-H 'Content-Type: {media}'", "--data-binary @results.csv"]
    parts.append(f'"$GPUQ_URL/api/v1{path}"')
    return " \\\n  ".join(parts)


def _python(method: str, path: str, headers: dict[str, str], media: str, body: Json, is_open: bool) -> str:
    given = [f'    os.environ["GPUQ_URL"] + "/api/v1{path}",']
    pairs = [] if is_open else ['"Authorization": "Bearer " + os.environ["GPUQ_TOKEN"]']
    pairs += [f'"{name}": {value!r}' for name, value in headers.items()]
    if media and media != JSON:
        pairs.append(f'"Content-Type": "{media}"')
    if pairs:
        given.append(f"    headers={{{', '.join(pairs)}}},")
    if media == JSON:
        given.append(f"    json={body!r},")
    elif media:
        given.append('    data=open("results.csv", "rb"),')
    lines = ["import os, requests", "", f"answer = requests.{method}(", *given, ")", "answer.raise_for_status()"]
    return "\n".join(lines)
