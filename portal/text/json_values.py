"""How deeply a JSON value is nested."""

from __future__ import annotations

from typing import Any

DEEPEST = 20
"""Allowed levels of lists and objects in a request body; ours need three."""


def depth(data: Any) -> int:
    """How deeply lists and objects are nested; 0 for a plain value. Not recursive, so that no input exhausts the
    stack."""
    depth_reached, level = 0, [data]
    while level := [value for value in level if isinstance(value, dict | list)]:
        depth_reached += 1
        level = [inner for value in level for inner in (value.values() if isinstance(value, dict) else value)]
    return depth_reached
