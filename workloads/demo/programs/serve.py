#!/usr/bin/env python3
"""A model server in miniature: answers with a linear model's prediction. Standard library only.

It listens on PORTAL_PORT, is healthy at /healthz after a short warm-up, and greets the user that the portal's proxy names
in X-Forwarded-User.
"""

from __future__ import annotations

import html
import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

WEIGHTS = [2.0, -3.0, 0.5, 1.25]
WARM_UP = 3.0  # s
began = time.monotonic()

PAGE = """<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Demo model</title>
<style>body{{font:1rem/1.5 system-ui;max-width:34rem;margin:3rem auto;padding:0 1rem;color-scheme:light dark}}
input{{font:inherit;width:100%}}</style>
<h1>Demo model</h1><p>Hello {user}. This answers from attempt {attempt}; no GPU is behind it.</p>
<form action="predict"><label>Four numbers <input name="x" value="1, 0, 2, 1"></label><p><button>Predict</button></form>"""


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/healthz":
            warm = time.monotonic() - began > WARM_UP
            self.give(200 if warm else 503, "text/plain", "ready\n" if warm else "warming up\n")
        elif url.path == "/predict":
            self.predict(parse_qs(url.query).get("x", [""])[0])
        elif url.path == "/":
            user = html.escape(self.headers.get("X-Forwarded-User", "stranger"))
            self.give(200, "text/html", PAGE.format(user=user, attempt=os.environ.get("PORTAL_ATTEMPT", "?")))
        else:
            self.give(404, "text/plain", "there is /, /predict?x=1,0,2,1 and /healthz\n")

    def predict(self, text: str) -> None:
        try:
            inputs = [float(part) for part in text.split(",")]
            prediction = {"x": inputs, "y": sum(w * x for w, x in zip(WEIGHTS, inputs, strict=True))}
        except ValueError:
            self.give(422, "application/json", json.dumps({"error": f"give {len(WEIGHTS)} numbers with commas"}))
            return
        self.give(200, "application/json", json.dumps(prediction))

    def give(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, text: str, *parts: object) -> None:
        if "healthz" not in self.path:
            print(time.strftime("%H:%M:%S"), text % parts, flush=True)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    where = (os.environ.get("PORTAL_ADDRESS", "127.0.0.1"), int(os.environ.get("PORTAL_PORT", "8000")))
    print(f"listening on {where[0]}:{where[1]}", flush=True)
    ThreadingHTTPServer(where, Answer).serve_forever()


if __name__ == "__main__":
    main()
