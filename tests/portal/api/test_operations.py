"""Every operation of the API is documented: summary, text, valid examples, and the command of gpuq."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import translation
from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator

from gpuq.gpuq.arguments import parser
from portal.api.operations import chinese_words, words
from portal.views.api_docs import chinese_terms

METHODS = ("get", "post", "put", "patch", "delete")
HAN = re.compile(r"[\u3400-\u9fff]")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    with translation.override("en"):
        generated: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return generated


def operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield {"path": path, "method": method} | item[method]


def contents(operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The request body and the responses of an operation, as (where, the media type's part of the document)."""
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"request {media}", content
    for status, response in operation["responses"].items():
        for media, content in response.get("content", {}).items():
            yield f"{status} {media}", content


def test_every_operation_has_a_summary_a_text_and_examples(document: dict[str, Any]) -> None:
    missing = []
    for each in operations(document):
        name, summary = each["operationId"], each.get("summary", "")
        if not 5 <= len(summary) <= 70 or summary.endswith("."):
            missing.append((name, "summary"))
        if len(each.get("description", "")) < 10:
            missing.append((name, "text"))
        missing += [(name, where) for where, content in contents(each) if "example" not in content]
        missing += [(name, p["name"]) for p in each.get("parameters", ()) if p["in"] == "path" and "example" not in p]
    assert missing == []


def test_no_two_operations_have_the_same_summary(document: dict[str, Any]) -> None:
    summaries = [each["summary"] for each in operations(document)]
    assert len(summaries) > 100
    assert sorted(summaries) == sorted(set(summaries))


def test_examples_are_valid_against_the_schema(document: dict[str, Any]) -> None:
    wrong = []
    for each in operations(document):
        for where, content in contents(each):
            schema = {**content["schema"], "components": document["components"]}
            faults = list(Draft202012Validator(schema).iter_errors(content["example"]))
            wrong += [(each["operationId"], where, fault.json_path, fault.message[:80]) for fault in faults]
    assert wrong == []


def test_every_operation_with_a_body_has_its_own_example_body(document: dict[str, Any]) -> None:
    """A generated example with every field is no help: the one shown is what a user would send."""
    bodies = {each["operationId"] for each in operations(document)
              if "application/json" in each.get("requestBody", {}).get("content", {})}  # fmt: skip
    assert sorted(bodies) == sorted(name for name, own in words().items() if "body" in own)


def test_texts_exist_for_exactly_the_operations_of_the_schema(document: dict[str, Any]) -> None:
    assert sorted(words()) == sorted(each["operationId"] for each in operations(document))


def test_every_operation_has_a_summary_and_a_text_in_chinese(document: dict[str, Any]) -> None:
    names = sorted(each["operationId"] for each in operations(document))
    assert sorted(chinese_words()) == names
    assert [name for name in names if not HAN.search(chinese_words()[name].get("summary", ""))] == []
    with_text = [each["operationId"] for each in operations(document) if each.get("description")]
    assert len(with_text) > 100
    assert [name for name in with_text if not HAN.search(chinese_words()[name].get("text", ""))] == []
    assert {key for own in chinese_words().values() for key in own} == {"summary", "text"}
    summaries = [own["summary"] for own in chinese_words().values()]
    assert sorted(summaries) == sorted(set(summaries))


def test_the_chinese_texts_have_the_same_code_as_the_english_ones(document: dict[str, Any]) -> None:
    code = re.compile(r"`[^`]+`")
    texts = {each["operationId"]: each["description"] for each in operations(document)}
    pairs = [(texts[name], own["text"]) for name, own in chinese_words().items()] + list(chinese_terms().items())
    assert [chinese for english, chinese in pairs if not set(code.findall(english)) <= set(code.findall(chinese))] == []


def test_all_tags_and_parameters_are_translated_to_chinese(document: dict[str, Any]) -> None:
    """And only terms that the page shows are translated."""
    shown = {tag for each in operations(document) for tag in each["tags"]} | {"required"}
    for each in operations(document):
        for parameter in each.get("parameters", ()):
            shown |= {parameter["in"], parameter["schema"]["type"], parameter.get("description", "")}
    assert sorted(chinese_terms()) == sorted(shown - {""})
    assert [name for name, term in chinese_terms().items() if not HAN.search(term)] == ["webhooks"]


def test_every_parameter_is_described_by_a_sentence(document: dict[str, Any]) -> None:
    """Of the path, the query and the header; a default or a range in its schema is also in the sentence."""
    missing, count = [], 0
    for path, item in document["paths"].items():
        for operation in (item[method] for method in METHODS if method in item):
            for parameter in [*item.get("parameters", ()), *operation.get("parameters", ())]:
                count += 1
                text, schema = parameter.get("description", ""), parameter["schema"]
                facts = [str(schema[name]) for name in ("minimum", "maximum") if name in schema and schema[name] != 1]
                if "default" in schema:
                    facts += [str(schema["default"]).replace("_", " "), "by default"]
                is_sentence = len(text.split()) >= 3 and text.endswith(".") and not text[0].islower()
                if not is_sentence or any(fact not in text for fact in facts):
                    missing.append((operation["operationId"], path, parameter["in"], parameter["name"], text))
    assert missing == []
    assert count > 300


def test_gpuq_can_parse_every_documented_command() -> None:
    commands = [own["gpuq"] for own in words().values() if "gpuq" in own]
    assert len(commands) > 20
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "gpuq"
        parser().parse_args(arguments)  # exits if it cannot parse them
