"""The client's IP address. X-Forwarded-For counts only when it comes from one of our proxies."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Any

from django.conf import settings

WITH_PORT = re.compile(r"^(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+))(?::[0-9]{1,5})?$")  # as some proxies write it


def client_of(peer: str, forwarded: str) -> str:
    """The client's address: `peer`, or if `peer` is one of our proxies the last entry of X-Forwarded-For
    (`forwarded`)."""
    written = WITH_PORT.sub(r"\1\2", forwarded.rsplit(",", 1)[-1].strip())
    return written if is_proxy(peer) and parsed(written) is not None else peer


def is_proxy(peer: str) -> bool:
    """Whether the address lies in one of settings.PROXY_ADDRESSES."""
    address = parsed(peer)
    return address is not None and any(address in network for network in networks(tuple(settings.PROXY_ADDRESSES)))


def believe_only_proxies(environ: dict[str, Any]) -> None:
    """Sets REMOTE_ADDR to the client's address and drops X-Forwarded-* headers of anybody but our proxies. Called
    once a request.

    `portal.forwarded` in the environment says whether the request had an X-Forwarded-For, whoever sent it.
    """
    peer = str(environ.get("REMOTE_ADDR", ""))
    if is_proxy(peer):
        environ["REMOTE_ADDR"] = client_of(peer, str(environ.get("HTTP_X_FORWARDED_FOR", "")))
    else:
        environ.pop("HTTP_X_FORWARDED_PROTO", None)
    environ["portal.forwarded"] = environ.pop("HTTP_X_FORWARDED_FOR", None) is not None


def parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address, with an IPv4-mapped IPv6 address as IPv4; None if the text is not an address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


@lru_cache(maxsize=8)
def networks(texts: tuple[str, ...]) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    return tuple(ipaddress.ip_network(text) for text in texts)
