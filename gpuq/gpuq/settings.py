"""The portal's address and the token, from the environment. Invalid values are refused before anything is sent."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass

import httpx

from gpuq.words import harmless

PATIENCE = 300.0  # s
TOKEN = re.compile(r"gqp_[0-9a-z]+_[A-Za-z0-9_-]+")
IN_TEXT = re.compile(r"gqp_[\x21-\x7e]+")
DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?", re.ASCII)
SECONDS = {None: 1, "s": 1, "m": 60, "min": 60, "h": 3600}


class Failure(Exception):
    """Ends gpuq with exit code `code`; its text is printed to stderr."""

    code = 2


class Misconfigured(Failure):
    pass


@dataclass(frozen=True)
class Settings:
    url: str  # without a slash at the end
    token: str
    patience: float = PATIENCE  # s
    language: str = "en"

    @classmethod
    def from_environment(cls) -> Settings:
        """Raises Misconfigured, whose text names the variable and never contains the token."""
        given = {name: os.environ.get(name, "").strip() for name in ("GPUQ_URL", "GPUQ_TOKEN", "GPUQ_PATIENCE")}
        if not given["GPUQ_URL"] or not given["GPUQ_TOKEN"]:
            raise Misconfigured("set GPUQ_URL and GPUQ_TOKEN (a token is made in the portal under Profile, API tokens)")
        return cls(
            url_of(given["GPUQ_URL"]), token_of(given["GPUQ_TOKEN"]), patience_of(given["GPUQ_PATIENCE"]), language()
        )


def without_tokens(text: str) -> str:
    return IN_TEXT.sub("gqp_…", text)


def url_of(text: str) -> str:
    """ "https://gpu.example.org/" → "https://gpu.example.org"; the address of the API is accepted too."""
    shown = harmless(without_tokens(text))
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError) as error:
        raise Misconfigured(f"GPUQ_URL is {shown!r}, which is not an address: {without_tokens(str(error))}") from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise Misconfigured(f"GPUQ_URL is {shown!r}; write it with https:// or http://, as in https://gpu.example.org")
    if url.userinfo:
        raise Misconfigured(
            "GPUQ_URL holds a user name or a password; gpuq shows the token GPUQ_TOKEN, and nothing else"
        )
    if url.query or url.fragment:
        raise Misconfigured(f"GPUQ_URL is {shown!r}; it ends before the ? or #")
    return re.sub(r"(/api(/v1)?)?/*$", "", text.rstrip("/"))


def token_of(text: str) -> str:
    text = re.sub(r"^(?:Authorization:\s*)?Bearer\s+", "", text.strip("\"'"), flags=re.IGNORECASE)
    if not TOKEN.fullmatch(text):
        raise Misconfigured(
            "GPUQ_TOKEN holds no complete token of the portal: one has the form gqp_…_…, with letters, digits, - and _ only "
            "(it is made in the portal under Profile, API tokens)"
        )
    return text


def patience_of(text: str) -> float:
    """ "" → 300 s, "90" → 90 s, "5m" → 300 s."""
    if not text:
        return PATIENCE
    found = DURATION.fullmatch(text)
    seconds = float(found[1]) * SECONDS[found[2]] if found else math.nan
    if not math.isfinite(seconds):
        raise Misconfigured(
            f"GPUQ_PATIENCE is {harmless(without_tokens(text))!r}; it is seconds, or as in 90s, 5m or 1h"
        )
    return seconds


def language() -> str:
    """The portal's code for the language of the terminal."""
    words = (os.environ.get(name, "") for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return "zh-hans" if next(filter(None, words), "").startswith("zh") else "en"
