"""The file: parses YAML to plain values with the line of each, and writes plain values as YAML. Does not interpret them.

Every scalar is a text as written, or null: the field that parses it decides whether `no`, `09:00` or `1.10` is a text, a time
or a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import yaml

from portal.errors import N_, Invalid

Path = tuple[str, ...]
"""Keys from the top of the file; for lists, the index."""

DEEPEST = 12  # levels; the day of a lending window in a department's quota is on the seventh
MOST = 100_000  # values; those of an alias count at each place where it is used
NULLS = frozenset({"", "~", "null", "Null", "NULL"})


class Unreadable(Invalid):
    """The file cannot be parsed; `line` is that of the error, from 1."""

    code = "not_yaml"
    message = N_("This is not valid YAML: line %(line)s, column %(column)s: %(problem)s.")


class TooDeep(Unreadable):
    code = "too_deep"
    message = N_("Line %(line)s: more than %(most)s levels.")


class TooMany(Unreadable):
    code = "too_many_values"
    message = N_("The file has more than %(most)s values.")


class TwiceTheSame(Unreadable):
    code = "twice"
    message = N_("Line %(line)s: %(key)s appears twice, first in line %(first)s.")


@dataclass(frozen=True, slots=True)
class Document:
    values: Any
    lines: Mapping[Path, int] = field(default_factory=dict)  # path → line, from 1

    def line_of(self, path: Path) -> int | None:
        """The line of the path or, if the file does not have it, of the nearest enclosing entry."""
        return next((self.lines[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self.lines), None)


class _Loader(yaml.SafeLoader):
    """Loads every scalar as text."""

    yaml_implicit_resolvers: dict[str, Any] = {}


def read(text: str) -> Document:
    """Parses a file. Raises Unreadable, TooDeep, TooMany, TwiceTheSame."""
    try:
        top = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _unreadable(mark, error.problem or error.context or "") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise Unreadable(
            line=line, column=error.position - text.rfind("\n", 0, error.position), problem=error.reason
        ) from None
    except RecursionError:
        raise TooDeep(line=1, most=DEEPEST) from None
    if top is None:
        return Document(None)
    lines: dict[Path, int] = {(): top.start_mark.line + 1}
    return Document(_value(top, (), lines), lines)


def _unreadable(mark: Any, problem: str) -> Unreadable:
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    return Unreadable(line=line, column=column, problem=problem)


def _value(node: yaml.Node, path: Path, lines: dict[Path, int]) -> Any:
    if len(path) > DEEPEST:
        raise TooDeep(line=node.start_mark.line + 1, most=DEEPEST)
    if len(lines) > MOST:
        raise TooMany(line=node.start_mark.line + 1, most=MOST)
    match node:
        case yaml.MappingNode():
            return dict(_pairs(node, path, lines))
        case yaml.SequenceNode():
            values = []
            for index, each in enumerate(node.value):
                lines[*path, str(index)] = each.start_mark.line + 1
                values.append(_value(each, (*path, str(index)), lines))
            return values
        case yaml.ScalarNode(value=text, style=None) if text in NULLS:
            return None
    return _storable(node)


def _storable(node: yaml.Node) -> str:
    """The text of a scalar. Raises Unreadable for characters that PostgreSQL cannot store."""
    text: str = node.value
    if "\0" in text or any("\ud800" <= sign <= "\udfff" for sign in text):
        raise _unreadable(node.start_mark, "special characters are not allowed")
    return text


def _pairs(node: yaml.MappingNode, path: Path, lines: dict[Path, int]) -> Iterator[tuple[str, Any]]:
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise _unreadable(key.start_mark, "a list or mapping cannot be a key")
        name = _storable(key)
        inner = (*path, name)
        if inner in lines:
            raise TwiceTheSame(line=line, key=name, first=lines[inner])
        lines[inner] = line
        yield name, _value(value, inner, lines)


def write(values: Any) -> str:
    """The values as YAML, with keys in the given order."""
    text: str = yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text


class _Dumper(yaml.SafeDumper):
    """Writes no aliases: repeated values are written out."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _number(dumper: yaml.SafeDumper, value: Decimal) -> yaml.Node:
    text = f"{value.normalize():f}"
    return dumper.represent_scalar(f"tag:yaml.org,2002:{'float' if '.' in text else 'int'}", text)


_Dumper.add_representer(Decimal, _number)


def in_line(value: Any) -> str:
    """A value as YAML on one line: {within: any, reclaim: never}."""
    text = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")


def path_text(path: Path) -> str:
    """The path as text: departments.vision.quotas.a100.guaranteed, or images["python:3.11"].title for a key with a dot."""
    text = ""
    for key in path:
        if "." in key or not key:
            text += f'["{key}"]'
        else:
            text += f".{key}" if text else key
    return text
