"""Secrets that are shown once: kept from the POST that made them until the page after its redirect, sealed in the session.

The page's address names the secret by a key of its own, so that it is there again when the reader changes language or
theme, or loads the page again, for ten minutes; in no other session, and under no other address.
"""

from __future__ import annotations

import json
import secrets
import time
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from portal.infra.crypt import Undecryptable, decrypt, encrypt

KEPT = 600  # s
MOST = 3
NAME = "shown_once"


def redirect_with(request: HttpRequest, address: str, **facts: Any) -> HttpResponse:
    """Redirects to the page that shows `facts`, which must be JSON-serialisable."""
    key = secrets.token_urlsafe(9)
    entries = {
        **_live(request),
        key: {"until": time.time() + KEPT, "at": address, "sealed": encrypt(json.dumps(facts))},
    }
    request.session[NAME] = dict(list(entries.items())[-MOST:])
    return HttpResponseRedirect(f"{address}?made={key}")


def revealed(request: HttpRequest) -> dict[str, Any]:
    """What this page may show now; {} if there is nothing, or not any more."""
    row = _live(request).get(request.GET.get("made", ""))
    if row is None or row["at"] != request.path:
        return {}
    try:
        facts: dict[str, Any] = json.loads(decrypt(row["sealed"]))
    except Undecryptable:
        return {}
    return facts


def _live(request: HttpRequest) -> dict[str, Any]:
    now = time.time()
    return {key: row for key, row in request.session.get(NAME, {}).items() if row["until"] > now}
