"""What pages call the codes of events, audit entries, jobs and errors. Codes are for programs: the API, webhooks and logs
have them as they are."""

from __future__ import annotations

import re

from django.utils.translation import gettext as _

from portal.errors import N_

EVENTS = {
    "cluster.added": N_("Cluster added"),
    "cluster.changed": N_("Cluster changed"),
    "cluster.measured": N_("Use measured again"),
    "cluster.metrics_removed": N_("Prometheus disconnected"),
    "cluster.metrics_set": N_("Prometheus connected"),
    "cluster.not_measured": N_("Use no longer measured"),
    "cluster.reached": N_("Cluster responding again"),
    "cluster.unreachable": N_("Cluster unreachable"),
    "demo.seeded": N_("Demo data loaded"),
    "department.changed": N_("Department changed"),
    "department.created": N_("Department created"),
    "department.removed": N_("Department deleted"),
    "image.added": N_("Image added"),
    "image.changed": N_("Image changed"),
    "invitation.withdrawn": N_("Invitation withdrawn"),
    "member.added": N_("Member added"),
    "member.changed": N_("Member role changed"),
    "member.invited": N_("Invitation sent"),
    "member.removed": N_("Member removed"),
    "member.role_changed": N_("Member role changed"),
    "node.changed": N_("Node changed"),
    "node.drained": N_("Node drained"),
    "node.lost": N_("Node lost"),
    "node.mode_change": N_("Node mode change in progress"),
    "node.mode_change_asked": N_("Node mode change requested"),
    "node.mode_change_cancelled": N_("Node mode change cancelled"),
    "node.pinned": N_("Node mode pinned"),
    "node.returned": N_("Node back in service"),
    "operator.made": N_("Operator role granted"),
    "policy.changed": N_("Policy changed"),
    "pool.added": N_("Pool added"),
    "pool.nominal_changed": N_("Pool capacity changed"),
    "pool.policy_changed": N_("Pool policy changed"),
    "pool.price_changed": N_("Pool price changed"),
    "preset.added": N_("Preset added"),
    "preset.changed": N_("Preset changed"),
    "quota.changed": N_("Quota changed"),
    "quota.requested": N_("Quota requested"),
    "quota.request_approved": N_("Quota request approved"),
    "quota.request_comment": N_("Comment on a quota request"),
    "quota.request_denied": N_("Quota request denied"),
    "quota.request_withdrawn": N_("Quota request withdrawn"),
    "quota.term_begun": N_("Granted quota began"),
    "quota.term_delayed": N_("Granted quota delayed"),
    "quota.term_ended": N_("Granted quota ended"),
    "quota.term_missed": N_("Granted quota never began"),
    "quota.term_ending": N_("Granted quota ends soon"),
    "recall.asked": N_("Recall requested"),
    "recall.done": N_("Recall complete"),
    "recall.ended": N_("Recall ended"),
    "recall.withdrawn": N_("Recall withdrawn"),
    "service_account.created": N_("Service account created"),
    "service_account.removed": N_("Service account deleted"),
    "token.created": N_("Token created"),
    "token.ended": N_("Token expired"),
    "token.expiring": N_("Token expiring soon"),
    "token.revoked": N_("Token revoked"),
    "user.changed": N_("Account changed"),
    "user.created": N_("Account created"),
    "user.locked": N_("Account locked"),
    "user.no_operator": N_("Operator role removed"),
    "user.operator": N_("Operator role granted"),
    "user.password_changed": N_("Password changed"),
    "user.password_reset": N_("Password reset"),
    "user.sessions_ended": N_("Logged out everywhere"),
    "user.unlocked": N_("Account unlocked"),
    "user_cap.changed": N_("Per-user cap changed"),
    "webhook.added": N_("Webhook added"),
    "webhook.changed": N_("Webhook changed"),
    "webhook.failing": N_("Webhook failing repeatedly"),
    "webhook.removed": N_("Webhook deleted"),
    "webhook.switched": N_("Webhook enabled or disabled"),
    "webhook.test": N_("Webhook test"),
    "webhook.tested": N_("Webhook tested"),
    "workload.admitted": N_("Capacity assigned"),
    "workload.cancelled": N_("Cancelled"),
    "workload.extended": N_("Runtime extended"),
    "workload.failed": N_("Failed"),
    "workload.files_removed": N_("Files deleted"),
    "workload.lost": N_("Lost with its node"),
    "workload.queue": N_("Queue position or waiting reason changed"),
    "workload.queued": N_("Queued"),
    "workload.ranks": N_("Pod status changed"),
    "workload.ready": N_("Reported its work as saved"),
    "workload.recalled": N_("Recall started"),
    "workload.rejected": N_("Rejected"),
    "workload.requeued": N_("Stopped and queued again"),
    "workload.retried": N_("Failed and restarting"),
    "workload.running": N_("Running"),
    "workload.shared": N_("Sharing changed"),
    "workload.starting": N_("Starting"),
    "workload.stopped": N_("Stop requested"),
    "workload.stopping": N_("Stopping"),
    "workload.submitted": N_("Submitted"),
    "workload.succeeded": N_("Succeeded"),
    "workload.withdrawn": N_("Recall withdrawn; keeps running"),
}
JOBS = {
    "quotas.plan_all": N_("Planning"),
    "quotas.meter": N_("Metering"),
    "quotas.terms": N_("Terms of granted quotas"),
    "workloads.converge_all": N_("Cluster reconciliation"),
    "workloads.knock": N_("Service probes"),
    "workloads.deadlines": N_("Deadlines"),
    "workloads.inventory": N_("Node inventory"),
    "workloads.modes": N_("Node mode changes"),
    "workloads.measure": N_("Measuring of use"),
    "portal.deliver": N_("Mail and webhooks"),
    "portal.clean_up": N_("Cleanup: events and messages"),
    "quotas.clean_up": N_("Cleanup: planning passes"),
    "workloads.clean_up": N_("Cleanup: files and logs"),
}
FACTS = {  # the names of what entries of the audit log tell of
    "active": N_("Active"),
    "auth": N_("Authorization"),
    "ca": N_("CA certificate"),
    "exporters": N_("Exporters"),
    "new_secret": N_("New secret"),
    "selector": N_("Label matchers"),
    "url": N_("Address"),
    "username": N_("User name"),
    "addresses": N_("Addresses"),
    "borrow_limit": N_("Borrow limit"),
    "change": N_("Change"),
    "drained": N_("Drained"),
    "email": N_("E-mail"),
    "event": N_("Event"),
    "grace": N_("Grace"),
    "guaranteed": N_("Guaranteed"),
    "holder": N_("Holder"),
    "host": N_("Host"),
    "image": N_("Image"),
    "kind": N_("Kind"),
    "kinds": N_("Kinds"),
    "lend_limit": N_("Lend limit"),
    "max_runtime": N_("Maximum runtime"),
    "mode": N_("Mode"),
    "name": N_("Name"),
    "new_connection": N_("New connection"),
    "nodes": N_("Nodes"),
    "nominal": N_("Capacity"),
    "notice": N_("Notice"),
    "operator": N_("Operator"),
    "options": N_("Options"),
    "parent": N_("Parent"),
    "paused": N_("Paused"),
    "pods": N_("Pods"),
    "policy": N_("Policy"),
    "pool": N_("Pool"),
    "product": N_("GPU product"),
    "role": N_("Role"),
    "scopes": N_("Scopes"),
    "shape": N_("Format"),
    "shared": N_("Shared"),
    "sharing": N_("Sharing"),
    "title": N_("Title"),
    "units": N_("Units"),
    "units_per_pod": N_("Units per pod"),
    "unrestricted": N_("Unrestricted pods"),
    "until": N_("Until"),
    "wanted": N_("What"),
    "before": N_("Before"),
    "starts_at": N_("From"),
    "ends_at": N_("Until"),
    "windows": N_("Lending windows"),
    "zone": N_("Time zone"),
    "note": N_("Note"),
    "weight": N_("Weight"),
    "why": N_("Reason"),
}
ERRORS = [  # what a text of the system says → what it means; the first that is found counts
    (r"gaierror|NameResolutionError|Name or service not known|name resolution|nodename nor servname",
     N_("its host name cannot be resolved")),
    (r"CERTIFICATE_VERIFY_FAILED|SSLCertVerification|certificate verify", N_("its certificate is not trusted")),
    (r"SSLError|SSL:|WRONG_VERSION_NUMBER", N_("it does not speak TLS")),
    (r"ConnectionRefused|Connection refused|actively refused", N_("the connection was refused: nothing is listening there")),
    (r"[Tt]ime(d )?-?out", N_("it did not respond in time")),
    (r"No route to host|Network is unreachable|EHOSTUNREACH|ENETUNREACH", N_("the network is unreachable")),
    (r"ConnectionReset|reset by peer|RemoteProtocolError|Server disconnected|BrokenPipe|ProtocolError",
     N_("it closed the connection")),
]  # fmt: skip
CLASS = re.compile(r"^(?:[\w.]*(?:Error|Exception|Timeout|Failure)\d*)(?:\([^)]*\))?:\s*")
ERRNO = re.compile(r"\[Errno -?\d+\]\s*")


def event_label(code: str) -> str:
    """The label of an event or audit action; an unknown code as its own words."""
    known = EVENTS.get(code) or JOBS.get(code)
    return _(known) if known else code.replace("_", " ").replace(".", ": ")


def fact_name(key: str) -> str:
    """The label of a value in an audit entry."""
    known = FACTS.get(key)
    return _(known) if known else key.replace("_", " ").capitalize()


def technical(text: str) -> str:
    """The text itself if `plain_error` has no better words for it, else ""; shown on hover."""
    return "" if any(re.search(pattern, text) for pattern, _meaning in ERRORS) else text


def plain_error(text: str) -> str:
    """A connection error in plain words; any other text without the names of exception classes."""
    for pattern, meaning in ERRORS:
        if re.search(pattern, text):
            before = re.match(r"^[^:()\[\]]*[a-z] [^:()\[\]]*: ", text)  # "the watch broke: gaierror: …"
            return (before[0] if before and not re.search(pattern, before[0]) else "") + _(meaning)
    return ERRNO.sub("", CLASS.sub("", text))
