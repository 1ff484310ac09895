"""How often one holder (a person with all their tokens, a service account with its own, or an address before login) may call
the API: a counter in Redis or, without Redis, in this process.

It uses one INCR, which is atomic; DRF's own throttle reads and writes a list.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import redis
import structlog
from django.conf import settings
from django.core.cache import cache
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from portal.infra.shared_redis import shared
from portal.models import ApiToken

if TYPE_CHECKING:
    from rest_framework.views import APIView

WINDOW = 60  # seconds
log = structlog.get_logger(__name__)


class PerHolder(BaseThrottle):
    def allow_request(self, request: Request, view: APIView) -> bool:
        limit: int = settings.API_RATE_PER_MINUTE
        now = time.time()
        self.reset = int(WINDOW - now % WINDOW) + 1
        count = self.count(f"portal:rate:{budget_of(request)}:{int(now // WINDOW)}")
        request._request.rate_limit = (limit, max(0, limit - count), self.reset)  # type: ignore[attr-defined]
        return count <= limit

    def count(self, key: str) -> int:
        """This call's number in the window; 0 if Redis is unreachable, so that calls are not limited then."""
        try:
            return _counted(key) if settings.REDIS_URL else _counted_here(key)
        except redis.RedisError as error:
            log.warning("throttle.redis_away", error=str(error))
            return 0

    def wait(self) -> float:
        return self.reset


def _counted(key: str) -> int:
    with shared().pipeline(transaction=False) as pipe:
        pipe.incr(key)
        pipe.expire(key, 2 * WINDOW)
        return int(pipe.execute()[0])


def _counted_here(key: str) -> int:
    cache.add(key, 0, timeout=2 * WINDOW)
    try:
        return cache.incr(key)
    except ValueError:  # evicted between the two
        return 1


def budget_of(request: Request) -> str:
    """The holder whose rate limit the request counts against: all tokens of one holder share it."""
    if request.user is not None and request.user.is_authenticated:
        return f"user:{request.user.pk}"
    return holder_of(request)


def holder_of(request: Request) -> str:
    """The holder whose idempotency keys the request uses: the token, the user, or the address."""
    if isinstance(request.auth, ApiToken):
        return f"token:{request.auth.pk}"
    if request.user is not None and request.user.is_authenticated:
        return f"user:{request.user.pk}"
    return f"address:{request.META.get('REMOTE_ADDR', '')}"


def rate_headers(request: Request) -> dict[str, str]:
    """RateLimit headers of a response; {} if the throttle did not run."""
    rate = getattr(request._request, "rate_limit", None)
    if rate is None:
        return {}
    limit, remaining, reset = rate
    return {"RateLimit-Limit": str(limit), "RateLimit-Remaining": str(remaining), "RateLimit-Reset": str(reset)}
