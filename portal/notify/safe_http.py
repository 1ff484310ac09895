"""The only way a request leaves the portal for an address that a user entered: to hosts the operator has allowed.

Redirects are not followed, the whole of it has one deadline, the answer is limited, no proxy of the environment is used, and
the connection goes to the very address that was checked, so that a name cannot answer differently a moment later.
"""

from __future__ import annotations

import asyncio
import ipaddress
import queue
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
from django.conf import settings

from portal.errors import N_, Invalid

DEADLINE = 8.0
"""Seconds for all of a request: the name's look-up, connecting, and an answer that may come a byte at a time."""
LONGEST_ANSWER = 64 * 1024


class TooSlow(OSError):
    def __init__(self) -> None:
        super().__init__(f"no complete answer within {DEADLINE:g} s")


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


def check(url: str) -> Rule:
    """The rule that allows the address. Raises NotAllowed, Invalid."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        raise Invalid(N_("This is not a valid address."), field="url") from None
    if parts.scheme not in {"https", "http"} or not host:
        raise Invalid(N_("The address must begin with https://."), field="url")
    if parts.username or parts.password:
        raise Invalid(N_("The address must not contain a user name or password."), field="url")
    port = port or (80 if parts.scheme == "http" else 443)
    for rule in rules():
        if rule.allows(parts.scheme, host, port):
            return rule
    raise NotAllowed(field="url", host=f"{host}:{port}", allowed=", ".join(settings.WEBHOOK_HOSTS) or "–")


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


def resolve(host: str, port: int) -> list[Any]:
    """`getaddrinfo` with a deadline: it runs in a thread that is abandoned after DEADLINE. Raises OSError, TooSlow."""
    answers: queue.SimpleQueue[list[Any] | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            answers.put(error if isinstance(error, OSError) else OSError(str(error)))

    threading.Thread(target=ask, name="look-up", daemon=True).start()
    try:
        answer = answers.get(timeout=DEADLINE)
    except queue.Empty:
        raise TooSlow from None
    if isinstance(answer, OSError):
        raise answer
    return answer


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes


def post(url: str, body: bytes, headers: dict[str, str]) -> Answer:
    """Blocks for DEADLINE at most. Raises NotAllowed, Invalid, OSError (TooSlow), httpx.HTTPError."""
    begun = time.monotonic()
    rule = check(url)
    target = httpx.URL(url)
    address = address_of(target.host, target.port or rule.port, rule)
    request = httpx.Request(
        "POST",
        target.copy_with(host=address),
        content=body,
        headers={
            **headers,
            "Host": target.netloc.decode("ascii"),
            "User-Agent": f"gpu-quota-portal/{settings.VERSION}",
        },
        extensions={"sni_hostname": target.host, "timeout": httpx.Timeout(DEADLINE).as_dict()},
    )
    return asyncio.run(_exchange(request, begun + DEADLINE - time.monotonic()))


async def _exchange(request: httpx.Request, seconds: float) -> Answer:
    """Runs in an event loop of its own, where one deadline covers all steps. Raises as `post`."""
    try:
        async with asyncio.timeout(seconds), httpx.AsyncClient(trust_env=False, follow_redirects=False) as client:
            response = await client.send(request, stream=True)
            received = b""
            async for part in response.aiter_bytes():
                received += part
                if len(received) > LONGEST_ANSWER:
                    break
            await response.aclose()
    except (TimeoutError, httpx.TimeoutException):
        raise TooSlow from None
    return Answer(response.status_code, received[:LONGEST_ANSWER])
