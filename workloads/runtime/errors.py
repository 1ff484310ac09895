"""Errors of a cluster: a part of the contract in base.py."""

from __future__ import annotations


class ClusterError(Exception):
    """Any error of a driver. `code` is stable and shown; `detail` is a sentence for people."""

    code = "cluster_error"

    def __init__(self, detail: str, code: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or self.code


class Unreachable(ClusterError):
    """The cluster did not answer (time-out, connection refused, 429, 5xx). Nothing is known; try again later."""

    code = "cluster_unreachable"

    def __init__(self, detail: str, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


EXCEEDED = "exceeded_quota"


class Refused(ClusterError):
    """The cluster refused the request (403, 422, unknown image, name taken). Repeating it does not help, except if the code
    is EXCEEDED: the department's ResourceQuota may lag behind the plan.
    """

    code = "refused"


class NoSuchRun(ClusterError):
    code = "no_such_run"
