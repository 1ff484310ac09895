"""Commands and variables reach the container unchanged; only in words of the portal or a preset its own names are replaced.

Kubernetes rewrites `command` and plain values of `env` before a container starts (k8s.io/kubernetes,
third_party/forked/golang/expansion): `$(NAME)` of a known variable becomes its value and `$$` becomes `$`. Someone who
types `echo $$` or `$(date)` wants their shell to expand it, so both are escaped for Kubernetes, and the embedded cluster
replaces nothing. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set

OWN = re.compile(r"\$\((PORTAL_[A-Z_]+)\)")  # a name of the portal in a preset: --port=$(PORTAL_PORT)
REWRITTEN = re.compile(r"\$(?=[$(])")  # the only dollars that Kubernetes changes
BEFORE_NAME = re.compile(r"\$(?=[$(]|\Z)")  # the same at the end of a text that a reference follows


def has_names(word: str) -> bool:
    return OWN.search(word) is not None


def escaped(text: str) -> str:
    """The text escaped so that Kubernetes' expansion returns it unchanged."""
    return REWRITTEN.sub("$$", text)


def for_kubernetes(words: Sequence[str], own: Set[int]) -> list[str]:
    """A container's `command`. `own`: positions of words in which the portal's names are replaced, by the kubelet."""
    return [_with_names(word) if position in own else escaped(word) for position, word in enumerate(words)]


def _with_names(word: str) -> str:
    *pieces, last = OWN.split(word)  # text, name, text, name, …, text
    expanded = [f"$({piece})" if at % 2 else BEFORE_NAME.sub("$$", piece) for at, piece in enumerate(pieces)]
    return "".join(expanded) + escaped(last)


def for_process(words: Sequence[str], own: Set[int], variables: Mapping[str, str]) -> list[str]:
    """The words as arguments of a process; names without a value stay unchanged."""

    def value(match: re.Match[str]) -> str:
        return variables.get(match[1], match[0])

    return [OWN.sub(value, word) if position in own else word for position, word in enumerate(words)]
