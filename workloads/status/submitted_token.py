"""Which token a workload was submitted with, for those who may know the token."""

from __future__ import annotations

from portal.access import Actor
from portal.models import ApiToken
from workloads.models import Workload


def token_shown_to(actor: Actor, workload: Workload) -> ApiToken | None:
    """The token of the submission, ended or not, for its holder, the workload's author and the department's owners: for
    whoever may list it. None for others, and where no token was used."""
    token = workload.token
    if token is None:
        return None
    is_own = actor.user is not None and actor.user == token.holder
    return token if is_own or actor.may(actor.right_over(workload.author), workload.department) else None
