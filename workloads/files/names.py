"""Names of files for display; everywhere else they are the text that volume_program.text_of makes of their bytes."""

from __future__ import annotations

import re

from workloads.runtime.volume_program import KEPT, bytes_of

HARMFUL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")


def display_name(name: str) -> str:
    r"""A file name for display: bytes that are not UTF-8 as Chinese (the usual encoding of such archives) or as \xc4,
    and characters that break lines, move or hide others escaped as \n and \u202e."""
    if KEPT.search(name):
        data = bytes_of(name)
        try:
            name = data.decode("gb2312")
        except UnicodeDecodeError:
            name = data.decode("utf-8", "backslashreplace")
    return HARMFUL.sub(lambda match: match[0].encode("unicode_escape").decode(), name)
