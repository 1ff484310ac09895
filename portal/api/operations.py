"""What the schema has for each operation besides types: summary, text, examples, and gpuq's command.

The texts are in `operations.yaml` of each app's `api`, by operation. Examples are generated from the schema with each field's
usual value (`example_values.yaml`); that of a body may be given in `operations.yaml` instead. The schema is in English;
`operations.zh.yaml` has the summaries and texts in Chinese, for the API's page.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from django.conf import settings

Json = Any
DEEPEST = 8  # levels of an example, since schemas may be recursive


@cache
def words(file: str = "operations.yaml") -> dict[str, dict[str, Any]]:
    """Operation → `summary`, and optionally `text`, `body` and `gpuq`."""
    by_operation: dict[str, dict[str, Any]] = {}
    for app in ("portal", "quotas", "workloads"):
        by_operation |= yaml.safe_load((settings.BASE_DIR / app / "api" / file).read_text("utf-8"))
    return by_operation


def chinese_words() -> dict[str, dict[str, str]]:
    """Operation → `summary` and `text` in Chinese."""
    return words("operations.zh.yaml")


@cache
def _values() -> dict[str, list[Json]]:
    """Name of a field or parameter → values it may have, the likeliest first."""
    raw = yaml.safe_load((Path(__file__).parent / "example_values.yaml").read_text("utf-8"))
    return {name: value if isinstance(value, list) else [value] for name, value in raw.items()}


def add_examples(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Post-processing hook of drf-spectacular: adds an example to each parameter, body and response."""
    schemas = result["components"]["schemas"]
    for operations in result["paths"].values():
        for operation in operations.values():
            own = words().get(operation["operationId"], {})
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path" or parameter.get("required"):
                    parameter["example"] = example(parameter["schema"], schemas, parameter["name"])
            for media, content in operation.get("requestBody", {}).get("content", {}).items():
                content["example"] = (
                    own["body"] if media == "application/json" and "body" in own else _of(content, schemas)
                )
            for response in operation["responses"].values():
                for content in response.get("content", {}).values():
                    content["example"] = _of(content, schemas)
            if own.get("gpuq"):
                operation["x-gpuq"] = own["gpuq"]
    return result


def _of(content: dict[str, Any], schemas: dict[str, Any]) -> Json:
    return example(content["schema"], schemas, "")


def example(schema: dict[str, Any], schemas: dict[str, Any], name: str, deep: int = 0) -> Json:
    """A value that the schema allows; `name` is the field's, which selects its usual value."""
    if "$ref" in schema:
        return example(schemas[schema["$ref"].rpartition("/")[2]], schemas, name, deep)
    for parts in ("allOf", "oneOf", "anyOf"):
        if parts in schema:
            return example(schema[parts][0], schemas, name, deep)
    if "default" in schema and schema["default"] not in (None, "", []):
        return schema["default"]
    for value in _values().get(name, ()):
        if _allowed(schema, value):
            return value
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "object")
    kinds = kind if isinstance(kind, list) else [kind]
    if "object" in kinds:
        return _object(schema, schemas, deep)
    if "array" in kinds:
        return [] if deep > DEEPEST else [example(schema.get("items", {}), schemas, name, deep + 1)]
    if "null" in kinds:
        return None
    return _plain(kinds[0], schema)


def _object(schema: dict[str, Any], schemas: dict[str, Any], deep: int) -> dict[str, Json]:
    if deep > DEEPEST:
        return {}
    fields = schema.get("properties", {})
    if fields:
        return {name: example(field, schemas, name, deep + 1) for name, field in fields.items()}
    more = schema.get("additionalProperties")
    return {"vision": example(more, schemas, "", deep + 1)} if isinstance(more, dict) and more else {}


def _allowed(schema: dict[str, Any], value: Json) -> bool:
    if "enum" in schema:
        return value in schema["enum"]
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    names = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object", type(None): "null"}
    ours = names.get(type(value))
    if (
        ours == "string"
        and schema.get("format") in ("date", "date-time")
        and (len(value) > 10) != (schema["format"] == "date-time")
    ):
        return False
    return ours in kinds or (ours == "integer" and "number" in kinds)


def _plain(kind: str, schema: dict[str, Any]) -> Json:
    if kind == "string":
        times = {
            "date-time": "2026-11-27T08:00:00Z",
            "date": "2026-11-27",
            "uri": "https://gpu.example.org/",
            "binary": "…",
        }
        return times.get(schema.get("format", ""), "…")
    if kind == "boolean":
        return False
    return math.ceil(max(0, schema.get("minimum", 0)))
