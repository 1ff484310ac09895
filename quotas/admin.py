"""The records of quotas in the admin site, read only."""

from __future__ import annotations

from portal.admin import show
from quotas import models

show(models.Cluster, "name", "kind", "active", "seen_at", "unreachable_since", hidden=("connection",))
show(models.PoolGroup, "name", "cluster", "planned_at")
show(models.Pool, "slug", "name", "group", "product", "sharing", "unit", "nominal", search=("slug", "name"))
show(models.Node, "name", "cluster", "product", "sharing", "present", "drained", "held_back", search=("name",))
show(models.Card, "node", "index", "pool", "units", "healthy", "quarantined", search=("node__name",))
show(models.Quarantine, "node", "card", "sign", "began_at", "ended_at", search=("node__name", "public_id"))
show(
    models.Quota,
    "department",
    "pool",
    "guaranteed",
    "borrow_limit",
    "lend_limit",
    "version",
    search=("department__slug",),
)
show(models.UserCap, "department", "pool", "units")
show(models.Budget, "department", "person", "pool", "hours", "action", "starts_on", "ends_on")
show(
    models.Claim,
    "public_id",
    "name",
    "department",
    "pool",
    "state",
    "units",
    "started_at",
    search=("public_id", "name"),
)
show(models.PlanPass, "public_id", "group", "at", "milliseconds", hidden=("snapshot", "plan"))
show(models.Decision, "public_id", "at", "kind", "department", "pool", "claim", search=("public_id",))
show(models.LedgerEntry, "department", "pool", "own", "lender", "units", "started_at", "ended_at")
show(models.UsageHour, "hour", "department", "pool", "guaranteed", "own", "borrowed", "lent")
show(models.WorkHour, "hour", "department", "pool", "person", "kind", "own", "lender", "unit_seconds")
