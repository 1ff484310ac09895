"""Secrets that are shown once: kept encrypted in the session, from the POST that created them to the page after its redirect.

The page's URL has a random key of the secret, so that the page can be reloaded for ten minutes, as after a change of language
or theme; not in another session, and not at another URL.
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
    """The `facts` for this page; {} if there are none, or not any more."""
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
