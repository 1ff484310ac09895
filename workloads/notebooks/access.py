"""Access to notebooks and services: a one-use ticket from the portal is exchanged for a cookie on the notebook's own
origin.

Each request carries the cookie, and the right is checked again (at most every RECHECK seconds): the reader is signed in, is
still a member who may submit, is the author or the notebook is shared, and this attempt still runs; a service is open to its
whole department. The requests are passed on by workloads/notebooks/proxy.py.
"""

from __future__ import annotations

import datetime as dt
import secrets
import time
from dataclasses import asdict, dataclass
from urllib.parse import urlencode

import orjson
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_POST

from portal.access import Actor, NotVisible, Right, actor_of, department_for, visible
from portal.accounts import sessions
from portal.errors import N_, Problem
from portal.infra.crypt import Undecryptable, decrypt, encrypt
from portal.models import User
from workloads.clusters.drivers import driver_for
from workloads.clusters.run_spec import ref_of, tokens_of
from workloads.models import Attempt, Kind, Workload
from workloads.runtime.base import ClusterError, base_path

TICKET_LIFE = 30  # seconds
ENTER_PATH = "/enter"
COMES_UP = dt.timedelta(minutes=5)  # after its container started; the server of a large image may need that long
RECHECK = 3.0  # seconds that the result of a check is reused
_answers: dict[str, tuple[float, Seat | Problem]] = {}


class NotYours(Problem):
    status = 403
    code = "notebook_not_shared"
    message = N_("Only its author can open this notebook, unless it is shared.")


class NotRunning(Problem):
    status = 409
    code = "notebook_not_running"
    message = N_("It is not running. Open it from the portal when it runs.")


class StillStarting(Problem):
    status = 503
    code = "notebook_starting"
    message = N_("Its server is starting. This page retries automatically.")


class Unanswered(Problem):
    status = 502
    code = "notebook_unreachable"
    message = N_("Its server does not respond.")


class NoTicket(Problem):
    status = 403
    code = "notebook_ticket"
    message = N_("This link was already used or has expired. Open it from the portal again.")


class FromElsewhere(Problem):
    status = 403
    code = "notebook_other_origin"
    message = N_("This request came from another site and was rejected.")


@dataclass(frozen=True)
class Holder:
    """The user and attempt for which a ticket or cookie was issued. It ends with the portal session `session`."""

    user: int
    session: str
    workload: str
    attempt: int
    kind: str = Kind.NOTEBOOK.value

    @property
    def base_path(self) -> str:
        return base_path(self.kind, self.workload)


@dataclass(frozen=True)
class Seat:
    """The server's address, and headers added to each request; neither is ever shown to the browser."""

    host: str
    port: int
    headers: tuple[tuple[bytes, bytes], ...]
    young: bool = False  # its server may still be starting


def origin_of(workload: str) -> str:
    """The origin of a notebook; each has its own if NOTEBOOK_URL has a `*`."""
    return str(settings.NOTEBOOK_URL).replace("*", workload)


@require_POST
@login_required
def open_notebook(request: HttpRequest, department: str, workload: str) -> HttpResponse:
    """The "Open" button: redirect to the notebook's origin with a ticket that works once."""
    actor = actor_of(request)
    row = Workload.objects.filter(department=department_for(actor, department), public_id=workload).first()
    if row is None:
        raise NotVisible
    address = issue_ticket(actor, request.session.session_key or "", row.public_id)
    return HttpResponse(status=303, headers={"Location": address, "Referrer-Policy": "no-referrer"})


def issue_ticket(actor: Actor, session: str, workload: str) -> str:
    """The address that opens the notebook once, within TICKET_LIFE. Raises NotVisible, Forbidden, NotYours, NotRunning."""
    attempt = running_attempt(actor, workload)
    if actor.user is None:
        raise NotVisible
    ticket = secrets.token_urlsafe(32)
    holder = Holder(actor.user.pk, session, workload, attempt.number, attempt.workload.kind)
    cache.set(f"notebook-ticket:{ticket}", asdict(holder), TICKET_LIFE)
    return f"{origin_of(workload)}{ENTER_PATH}?{urlencode({'ticket': ticket})}"


def redeem(ticket: str) -> Holder:
    """The ticket's holder. Raises NoTicket for an invalid or used ticket: only one caller's delete succeeds."""
    key = f"notebook-ticket:{ticket}"
    holder = cache.get(key)
    if not holder or not cache.delete(key):
        raise NoTicket
    return Holder(**holder)


def seal(holder: Holder) -> str:
    """The cookie's value."""
    return encrypt(orjson.dumps(asdict(holder)).decode())


def unseal(cookie: str) -> Holder:
    try:
        return Holder(**orjson.loads(decrypt(cookie)))
    except (Undecryptable, orjson.JSONDecodeError, TypeError):
        raise NoTicket from None


def running_attempt(actor: Actor, workload: str) -> Attempt:
    """The running attempt that the actor may open. Raises NotVisible, Forbidden, NotYours, NotRunning."""
    served = Workload.objects.filter(public_id=workload, kind__in=[Kind.NOTEBOOK, Kind.SERVICE])
    notebook = visible(actor, served.select_related("department")).first()
    if notebook is None:
        raise NotVisible
    if notebook.kind == Kind.NOTEBOOK:
        actor.require(Right.SUBMIT, notebook.department)
        if not notebook.shared and (actor.user is None or notebook.author_id != actor.user.pk):
            raise NotYours
    live = notebook.attempts.filter(finished_at=None).exclude(started_at=None)
    attempt = live.select_related("cluster", "workload").last()
    if attempt is None:
        raise NotRunning
    return attempt


def seat_of(cookie: str) -> Seat:
    """The seat of the cookie's holder, checked in the database and the cluster, or cached for RECHECK seconds. Raises Problem."""
    now = time.monotonic()
    asked, answer = _answers.get(cookie, (-RECHECK, NoTicket()))
    if now - asked >= RECHECK:
        try:
            answer = _find_seat(unseal(cookie))
        except Problem as problem:
            answer = problem
        for old in [key for key, (at, _) in list(_answers.items()) if now - at >= RECHECK]:
            _answers.pop(old, None)
        if not isinstance(answer, StillStarting | Unanswered):  # those are checked again at once
            _answers[cookie] = (now, answer)
    if isinstance(answer, Problem):
        raise answer
    return answer


def _find_seat(holder: Holder) -> Seat:
    user = User.objects.filter(pk=holder.user, is_active=True).first()
    if user is None or not sessions.is_live(holder.session, user):
        raise NoTicket
    attempt = running_attempt(Actor(user), holder.workload)
    if attempt.number != holder.attempt:
        raise NotRunning
    try:
        endpoint = driver_for(attempt.cluster).endpoint(ref_of(attempt))
    except ClusterError as error:
        raise Unanswered from error
    if endpoint is None:
        raise StillStarting
    young = attempt.started_at is not None and timezone.now() - attempt.started_at < COMES_UP
    return Seat(*endpoint, forwarded_headers(attempt, user), young)


def forwarded_headers(attempt: Attempt, user: User) -> tuple[tuple[bytes, bytes], ...]:
    """Headers added to each request: the notebook's secret, and for a service also the user's name."""
    secret = tokens_of(attempt)["notebook"].encode()
    if attempt.workload.kind == Kind.NOTEBOOK:
        return ((b"authorization", b"token " + secret),)
    return ((b"authorization", b"Bearer " + secret), (b"x-forwarded-user", user.username.encode()))
