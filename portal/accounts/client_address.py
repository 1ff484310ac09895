"""Who is at the other end: behind a proxy the address that the proxy wrote, and nobody else's word for it."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Any

from django.conf import settings

WITH_PORT = re.compile(r"^(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+))(?::[0-9]{1,5})?$")  # as some proxies write it


def client_of(peer: str, forwarded: str) -> str:
    """The address of whoever asks: `peer`, or what our proxy wrote last into X-Forwarded-For (`forwarded`)."""
    written = WITH_PORT.sub(r"\1\2", forwarded.rsplit(",", 1)[-1].strip())
    return written if is_proxy(peer) and parsed(written) is not None else peer


def is_proxy(peer: str) -> bool:
    """Whether it is one of PROXY_ADDRESSES."""
    address = parsed(peer)
    return address is not None and any(address in network for network in networks(tuple(settings.PROXY_ADDRESSES)))


def believe_only_proxies(environ: dict[str, Any]) -> None:
    """Puts the client's address into REMOTE_ADDR and takes away what only our proxy may say. Once for a request.

    `portal.forwarded` tells whether somebody claims to speak for another, whoever that is."""
    peer = str(environ.get("REMOTE_ADDR", ""))
    if is_proxy(peer):
        environ["REMOTE_ADDR"] = client_of(peer, str(environ.get("HTTP_X_FORWARDED_FOR", "")))
    else:
        environ.pop("HTTP_X_FORWARDED_PROTO", None)
    environ["portal.forwarded"] = environ.pop("HTTP_X_FORWARDED_FOR", None) is not None


def parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """None for what is no address. An IPv4 address in IPv6 clothes is the IPv4 address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


@lru_cache(maxsize=8)
def networks(texts: tuple[str, ...]) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    return tuple(ipaddress.ip_network(text) for text in texts)
