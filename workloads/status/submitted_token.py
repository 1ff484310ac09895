"""Which token a workload was submitted with, for those who may know the token."""

from __future__ import annotations

from portal.access import Actor
from portal.models import ApiToken
from workloads.models import Workload


def token_shown_to(actor: Actor, workload: Workload) -> ApiToken | None:
    """The token with which the workload was submitted, even if it has been revoked, for its holder, the workload's author and
    the department's owners. None for others, and if no token was used."""
    token = workload.token
    if token is None:
        return None
    is_own = actor.user is not None and actor.user == token.holder
    return token if is_own or actor.may(actor.right_over(workload.author), workload.department) else None
