"""The only way in which the portal sends requests to addresses that a person entered.

`post` is for webhooks: only hosts that the operator has allowed, because any quota owner can enter an address. `get` is for
operators' own settings (a cluster's Prometheus), which may be internal: it refuses only addresses that are not those of another
machine.
For both: redirects are not followed, one deadline covers the whole request, the response's size is limited, proxies of the
environment are ignored, and the connection goes to exactly the IP address that was checked, so that a name cannot resolve
differently a moment later.
"""

from __future__ import annotations

import asyncio
import ipaddress
import queue
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
from django.conf import settings

from portal.errors import N_, Invalid

DEADLINE = 8.0
"""Seconds for a whole request: resolving the name, connecting, and a response that may arrive byte by byte."""
LONGEST_ANSWER = 64 * 1024


class TooSlow(OSError):
    def __init__(self, seconds: float | None = None) -> None:
        super().__init__(f"no complete answer within {DEADLINE if seconds is None else seconds:g} s")


class TooLong(OSError):
    """The response is longer than the limit."""

    def __init__(self, longest: int) -> None:
        super().__init__(f"the answer is longer than {longest:,} bytes")


class NotAllowed(Invalid):
    code = "host_not_allowed"
    message = N_("%(host)s is not among the hosts that the operator allows for webhooks: %(allowed)s.")


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of WEBHOOK_HOSTS: `host`, `host:port` or `.domain` (everything below it), with `http://` if TLS is
    not required."""

    scheme: str
    host: str
    port: int

    @property
    def below(self) -> bool:
        return self.host.startswith(".")

    def allows(self, scheme: str, host: str, port: int) -> bool:
        named = host.endswith(self.host) if self.below else host == self.host
        return named and (scheme, port) == (self.scheme, self.port)


def rules() -> list[Rule]:
    parsed = []
    for entry in settings.WEBHOOK_HOSTS:
        parts = urlsplit(entry if "://" in entry else f"https://{entry}")
        port = parts.port or (80 if parts.scheme == "http" else 443)
        parsed.append(Rule(parts.scheme, (parts.hostname or "").lower(), port))
    return parsed


class ReservedAddress(Invalid):
    code = "address_not_allowed"
    message = N_("%(host)s resolves to %(address)s, which is not an address of another machine.")


def check(url: str) -> Rule:
    """The rule that allows the address. Raises NotAllowed, Invalid."""
    scheme, host, port = checked_parts(url)
    for rule in rules():
        if rule.allows(scheme, host, port):
            return rule
    raise NotAllowed(field="url", host=f"{host}:{port}", allowed=", ".join(settings.WEBHOOK_HOSTS) or "–")


def checked_parts(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of an http or https address without credentials. Raises Invalid (field url)."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
        host.encode("idna")
    except ValueError:  # also for an invalid host name: one with a label that is empty or longer than 63 characters
        raise Invalid(N_("This is not a valid address."), field="url") from None
    if parts.scheme not in {"https", "http"} or not host:
        raise Invalid(N_("The address must begin with https:// or http://."), field="url")
    if parts.username or parts.password:
        raise Invalid(N_("The address must not contain a user name or password."), field="url")
    return parts.scheme, host, port or (80 if parts.scheme == "http" else 443)


def host_of(url: str) -> str:
    return (urlsplit(url).hostname or "").lower()


def address_of(host: str, port: int, rule: Rule) -> str:
    """The IP address to connect to. A host that the operator named may be anywhere; one below an allowed domain must
    be public.

    Raises NotAllowed, OSError.
    """
    infos = resolve(host, port)
    for *_rest, sockaddr in infos:
        address = ipaddress.ip_address(str(sockaddr[0]).split("%")[0])
        if not rule.below or address.is_global:
            return str(address)
    raise NotAllowed(field="url", host=f"{host} ({infos[0][4][0]})", allowed=", ".join(settings.WEBHOOK_HOSTS))


def inside_address_of(host: str, port: int, seconds: float) -> str:
    """The IP address to connect to for a setting of an operator: any but link-local ones (where clouds hand out
    credentials), multicast and "no address".

    Raises ReservedAddress, OSError.
    """
    addresses = [ipaddress.ip_address(str(info[4][0]).split("%")[0]) for info in resolve(host, port, seconds)]
    for address in addresses:
        if not (address.is_link_local or address.is_multicast or address.is_unspecified):
            return str(address)
    raise ReservedAddress(field="url", host=host, address=str(addresses[0]))


def resolve(host: str, port: int, seconds: float | None = None) -> list[Any]:
    """`getaddrinfo` with a deadline: it runs in a thread that is abandoned after `seconds` (default: DEADLINE).

    Raises OSError, TooSlow.
    """
    seconds = DEADLINE if seconds is None else seconds
    answers: queue.SimpleQueue[list[Any] | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            answers.put(error if isinstance(error, OSError) else OSError(str(error)))

    threading.Thread(target=ask, name="look-up", daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except queue.Empty:
        raise TooSlow(seconds) from None
    if isinstance(answer, OSError):
        raise answer
    return answer


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    location: str = ""  # target of a redirect, which is not followed


def post(url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
    """Sends a POST request; blocks for at most DEADLINE. Only the first LONGEST_ANSWER bytes of a response are read.

    Raises NotAllowed, Invalid, OSError (TooSlow), httpx.HTTPError.
    """
    begun = time.monotonic()
    rule = check(url)
    target = httpx.URL(url)
    address = address_of(target.host, target.port or rule.port, rule)
    request = _request("POST", target, address, headers, DEADLINE, body)
    (answer,) = asyncio.run(exchange([request], begun + DEADLINE - time.monotonic(), LONGEST_ANSWER, cut=True))
    return answer


def get(urls: Sequence[str], headers: Mapping[str, str], *, seconds: float, longest: int, ca: str = "") -> list[Answer]:
    """The responses to GET for several addresses of one host, requested one after the other. `seconds` is the deadline for all
    of
    them, `longest` the limit on the bytes of one response. `ca`: certificates (PEM) to trust instead of the system's.

    Raises Invalid (also for invalid certificates), OSError (TooSlow, TooLong), httpx.HTTPError.
    """
    begun = time.monotonic()
    _scheme, host, port = checked_parts(urls[0])
    address = inside_address_of(host, port, seconds)
    requests = [_request("GET", httpx.URL(url), address, headers, seconds) for url in urls]
    left = begun + seconds - time.monotonic()
    return asyncio.run(exchange(requests, left, longest, verify=trust(ca) if ca else True))


def trust(ca: str) -> ssl.SSLContext:
    """TLS that trusts these certificates only. Raises Invalid (field ca)."""
    try:
        return ssl.create_default_context(cadata=ca)
    except (ssl.SSLError, ValueError) as error:
        raise Invalid(N_("This is not a PEM certificate."), field="ca") from error


def _request(
    method: str, target: httpx.URL, address: str, headers: Mapping[str, str], seconds: float, body: bytes = b""
) -> httpx.Request:
    """A request to the IP address that was checked, with the Host header and SNI of the host that was entered."""
    return httpx.Request(
        method,
        target.copy_with(host=address),
        content=body or None,
        headers={
            **headers,
            "Host": target.netloc.decode("ascii"),
            "Accept-Encoding": "identity",
            "User-Agent": f"gpu-quota-portal/{settings.VERSION}",
        },
        extensions={"sni_hostname": target.host, "timeout": httpx.Timeout(seconds).as_dict()},
    )


async def exchange(
    requests: Sequence[httpx.Request], seconds: float, longest: int, *, cut: bool = False,
    verify: ssl.SSLContext | bool = True,
) -> list[Answer]:  # fmt: skip
    """The responses. Runs in its own event loop, where one deadline covers all steps, even if headers or body arrive byte by
    byte. Responses are read as they are sent, never decompressed. Raises as `post` and `get`."""
    try:
        async with (
            asyncio.timeout(seconds),
            httpx.AsyncClient(trust_env=False, follow_redirects=False, verify=verify) as client,
        ):
            return [await _one(client, request, longest, cut=cut) for request in requests]
    except (TimeoutError, httpx.TimeoutException):
        raise TooSlow(round(seconds, 1)) from None


async def _one(client: httpx.AsyncClient, request: httpx.Request, longest: int, *, cut: bool) -> Answer:
    response = await client.send(request, stream=True)
    received = bytearray()
    async for part in response.aiter_raw():  # not decompressed: a kilobyte could become gigabytes
        received += part
        if len(received) > longest:
            break
    await response.aclose()
    if len(received) > longest and not cut:
        raise TooLong(longest)
    return Answer(response.status_code, bytes(received[:longest]), response.headers.get("Location", ""))
