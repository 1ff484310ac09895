"""Bearer tokens: `gqp_<prefix>_<secret>`. The prefix finds the row, the secret is stored as a SHA-256 digest.

The secret has 256 random bits, so a fast digest is enough. Every failure gives the same 401.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import ipaddress
import secrets

from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.request import Request

from portal.access import Actor, Right
from portal.ids import ALPHABET
from portal.models import ApiToken, User
from portal.prepared import Prepared

MARK = "gqp"
TOKENS = Prepared(
    lambda prefix: ApiToken.objects.select_related("holder", "department", "parent").filter(prefix=prefix)
)
USED_EVERY = dt.timedelta(minutes=1)  # last_used_at is written at most this often


def new_secret() -> tuple[str, str, str]:
    """(prefix, whole token, digest); the whole token is shown once."""
    prefix = "".join(secrets.choice(ALPHABET) for _i in range(12))
    token = f"{MARK}_{prefix}_{secrets.token_urlsafe(32)}"
    return prefix, token, digest_of(token)


def digest_of(secret: str) -> str:
    """The digest that is stored for the random secret of a token or an invitation."""
    return hashlib.sha256(secret.encode()).hexdigest()


def bearer_of(request: Request) -> str | None:
    """The bearer token of the Authorization header; None without one."""
    scheme, _space, value = get_authorization_header(request).decode("latin1").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else None


class TokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        given = bearer_of(request)
        if given is None:
            return None
        token = live_token(given)
        if token is None or not address_allowed(token, client_address(request._request)):
            raise exceptions.AuthenticationFailed(_("This token is not valid here."))
        note_use(token)
        return token.holder, token

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="api"'


def live_token(given: str) -> ApiToken | None:
    """The row of a bearer token as it was sent; None if it is unknown, has ended or must not be used."""
    mark, _under, rest = given.partition("_")
    prefix, _under, secret = rest.partition("_")
    if mark != MARK or not secret or len(given) > 120 or not given.isascii():
        return None
    token = TOKENS.first(prefix)
    if token is None or not hmac.compare_digest(token.digest, digest_of(given)):
        return None
    return token if may_be_used(token) else None


def may_be_used(token: ApiToken) -> bool:
    """Whether the token has neither ended nor lost the right it was created under (`is_backed`)."""
    return token.is_live(timezone.now()) and is_backed(token)


def is_backed(token: ApiToken) -> bool:
    """Whether the right that the token was created under still exists.

    The holder must not be locked. A token for the whole installation needs an operator as holder; a service account's
    token needs the person who created it to be able to manage the department (`quota`).
    """
    holder, maker = token.holder, token.made_by
    if not holder.is_active:
        return False
    if token.department_id is None:
        return holder.is_operator
    if holder.service_of_id is None:
        return True
    return maker is not None and maker.is_active and Actor(maker).may(Right.STEER, token.department_id)


def client_address(request: HttpRequest) -> str:
    """The client's IP address, as portal.web.middleware.client_address has set it."""
    return str(request.META.get("REMOTE_ADDR", ""))


def address_allowed(token: ApiToken, address: str) -> bool:
    if not token.addresses:
        return True
    try:
        client = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(client, ipaddress.IPv6Address) and client.ipv4_mapped:
        client = client.ipv4_mapped
    return any(client in ipaddress.ip_network(network) for network in token.addresses)


def note_use(token: ApiToken) -> None:
    """Writes `last_used_at`, at most once in USED_EVERY."""
    now = timezone.now()
    if token.last_used_at is None or token.last_used_at < now - USED_EVERY:
        stale = Q(last_used_at=None) | Q(last_used_at__lt=now - USED_EVERY)
        ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)
