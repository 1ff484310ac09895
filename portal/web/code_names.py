"""What pages call the codes of events, audit entries, jobs and errors. Codes are for programs: the API, webhooks and logs
have them as they are."""

from __future__ import annotations

import re

from django.utils.translation import gettext as _

from portal.errors import N_

EVENTS = {
    "cluster.added": N_("a cluster was added"),
    "cluster.changed": N_("a cluster was changed"),
    "cluster.reached": N_("the cluster answers again"),
    "cluster.unreachable": N_("the cluster does not answer"),
    "demo.seeded": N_("the demo was filled in"),
    "department.changed": N_("a department was changed"),
    "department.created": N_("a department was made"),
    "department.removed": N_("a department was removed"),
    "image.added": N_("an image was added"),
    "image.changed": N_("an image was changed"),
    "invitation.withdrawn": N_("an invitation was withdrawn"),
    "member.added": N_("somebody became a member"),
    "member.changed": N_("a member's role was changed"),
    "member.invited": N_("somebody was invited"),
    "member.removed": N_("a member was removed"),
    "member.role_changed": N_("a member's role was changed"),
    "node.changed": N_("a node has changed"),
    "node.drained": N_("a node was drained"),
    "node.lost": N_("a node was lost"),
    "node.mode_change": N_("a node changes its mode"),
    "node.mode_change_asked": N_("a change of mode was asked for"),
    "node.mode_change_cancelled": N_("a change of mode was cancelled"),
    "node.pinned": N_("a node's mode was pinned"),
    "node.returned": N_("a node takes work again"),
    "operator.made": N_("somebody became operator"),
    "policy.changed": N_("a policy was changed"),
    "pool.added": N_("a pool was added"),
    "pool.nominal_changed": N_("a pool's capacity was changed"),
    "pool.policy_changed": N_("a pool's policy was changed"),
    "preset.added": N_("a preset was added"),
    "preset.changed": N_("a preset was changed"),
    "quota.changed": N_("a quota was changed"),
    "recall.asked": N_("capacity was called back"),
    "recall.done": N_("capacity that was called back is back"),
    "recall.ended": N_("a recall has ended"),
    "recall.withdrawn": N_("a recall was withdrawn"),
    "service_account.created": N_("a service account was made"),
    "service_account.removed": N_("a service account was removed"),
    "token.created": N_("a token was made"),
    "token.ended": N_("a token has ended"),
    "token.expiring": N_("a token is about to end"),
    "token.revoked": N_("a token was revoked"),
    "user.changed": N_("an account was changed"),
    "user.created": N_("an account was made"),
    "user.locked": N_("an account was locked"),
    "user.no_operator": N_("somebody is operator no more"),
    "user.operator": N_("somebody became operator"),
    "user.password_changed": N_("a password was changed"),
    "user.password_reset": N_("a password was reset"),
    "user.sessions_ended": N_("somebody was logged out everywhere"),
    "user.unlocked": N_("an account was unlocked"),
    "user_cap.changed": N_("a cap for each user was changed"),
    "webhook.added": N_("a webhook was added"),
    "webhook.changed": N_("a webhook was changed"),
    "webhook.failing": N_("a webhook fails again and again"),
    "webhook.removed": N_("a webhook was removed"),
    "webhook.switched": N_("a webhook was switched on or off"),
    "webhook.test": N_("test of a webhook"),
    "webhook.tested": N_("a webhook was tried"),
    "workload.admitted": N_("it has its capacity"),
    "workload.cancelled": N_("it was stopped"),
    "workload.extended": N_("it may run longer"),
    "workload.failed": N_("it failed"),
    "workload.files_removed": N_("its files were removed"),
    "workload.lost": N_("it was lost with its machine"),
    "workload.queue": N_("its place or its reasons to wait have changed"),
    "workload.queued": N_("it was queued"),
    "workload.ranks": N_("the state of its pods has changed"),
    "workload.ready": N_("it said that its work is saved"),
    "workload.recalled": N_("its capacity is called back"),
    "workload.rejected": N_("it was rejected"),
    "workload.requeued": N_("it was stopped and queued again"),
    "workload.retried": N_("it failed and begins again"),
    "workload.running": N_("it runs"),
    "workload.shared": N_("it was shared, or is not any more"),
    "workload.starting": N_("it is starting"),
    "workload.stopped": N_("somebody stopped it"),
    "workload.stopping": N_("it is stopping"),
    "workload.submitted": N_("it was submitted"),
    "workload.succeeded": N_("it finished"),
    "workload.withdrawn": N_("its recall was withdrawn"),
}
JOBS = {
    "quotas.plan_all": N_("planning passes"),
    "quotas.meter": N_("metering"),
    "workloads.converge_all": N_("looking at the clusters"),
    "workloads.knock": N_("knocking at services"),
    "workloads.deadlines": N_("deadlines"),
    "workloads.inventory": N_("inventory of nodes"),
    "workloads.modes": N_("changes of mode"),
    "portal.deliver": N_("mails and webhooks"),
    "portal.clean_up": N_("cleaning up: events and messages"),
    "quotas.clean_up": N_("cleaning up: plans"),
    "workloads.clean_up": N_("cleaning up: files and logs"),
}
ERRORS = [  # what a text of the system says → what it means; the first that is found counts
    (r"gaierror|NameResolutionError|Name or service not known|name resolution|nodename nor servname",
     N_("its host name is not known")),
    (r"CERTIFICATE_VERIFY_FAILED|SSLCertVerification|certificate verify", N_("its certificate is not trusted")),
    (r"SSLError|SSL:|WRONG_VERSION_NUMBER", N_("it does not speak TLS")),
    (r"ConnectionRefused|Connection refused|actively refused", N_("nothing listens there: the connection was refused")),
    (r"[Tt]ime(d )?-?out", N_("it did not answer in time")),
    (r"No route to host|Network is unreachable|EHOSTUNREACH|ENETUNREACH", N_("no way in the network leads there")),
    (r"ConnectionReset|reset by peer|RemoteProtocolError|Server disconnected|BrokenPipe|ProtocolError",
     N_("it broke the connection off")),
]  # fmt: skip
CLASS = re.compile(r"^(?:[\w.]*(?:Error|Exception|Timeout|Failure)\d*)(?:\([^)]*\))?:\s*")
ERRNO = re.compile(r"\[Errno -?\d+\]\s*")


def happened(code: str) -> str:
    """An event or an entry of the audit log, as words; one that is not known as its own words."""
    known = EVENTS.get(code) or JOBS.get(code)
    return _(known) if known else code.replace("_", " ").replace(".", ": ")


def technical(text: str) -> str:
    """The text as the system said it, where we have no words for it; for whoever runs the system, on hover."""
    return "" if any(re.search(pattern, text) for pattern, _meaning in ERRORS) else text


def plain_error(text: str) -> str:
    """What the system said of a connection, in the reader's words; anything else without the names of our classes."""
    for pattern, meaning in ERRORS:
        if re.search(pattern, text):
            before = re.match(r"^[^:()\[\]]*[a-z] [^:()\[\]]*: ", text)  # "the watch broke: gaierror: …"
            return (before[0] if before and not re.search(pattern, before[0]) else "") + _(meaning)
    return ERRNO.sub("", CLASS.sub("", text))
