"""Errors of connections in plain words, in the active language."""

from __future__ import annotations

import re

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop as N_

ERRORS = [  # pattern in the system's message → meaning; the first match counts
    (r"gaierror|NameResolutionError|Name or service not known|name resolution|nodename nor servname",
     N_("its host name cannot be resolved")),
    (r"CERTIFICATE_VERIFY_FAILED|SSLCertVerification|certificate verify", N_("its certificate is not trusted")),
    (r"SSLError|SSL:|WRONG_VERSION_NUMBER", N_("it does not support TLS")),
    (r"ConnectionRefused|Connection refused|actively refused", N_("the connection was refused: nothing is listening there")),
    (r"[Tt]ime(d )?-?out", N_("it did not respond in time")),
    (r"No route to host|Network is unreachable|EHOSTUNREACH|ENETUNREACH", N_("the network is unreachable")),
    (r"ConnectionReset|reset by peer|RemoteProtocolError|Server disconnected|BrokenPipe|ProtocolError",
     N_("it closed the connection")),
]  # fmt: skip
CLASS = re.compile(r"^(?:[\w.]*(?:Error|Exception|Timeout|Failure)\d*)(?:\([^)]*\))?:\s*")
ERRNO = re.compile(r"\[Errno -?\d+\]\s*")


def technical(text: str) -> str:
    """The text itself if `plain_error` has no better words for it, else ""; shown on hover."""
    return "" if any(re.search(pattern, text) for pattern, _meaning in ERRORS) else text


def plain_error(text: str) -> str:
    """A connection error in plain words; any other text without the names of exception classes."""
    for pattern, meaning in ERRORS:
        if re.search(pattern, text):
            before = re.match(r"^[^:()\[\]]*[a-z] [^:()\[\]]*: ", text)  # "the watch broke: gaierror: …"
            return (before[0] if before and not re.search(pattern, before[0]) else "") + _(meaning)
    return ERRNO.sub("", CLASS.sub("", text))
