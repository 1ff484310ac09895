"""The records of workloads in the admin site."""

from __future__ import annotations

from portal.admin import show
from workloads import models

show(models.Image, "title", "name", "active", search=("name", "title"))
show(models.Preset, "slug", "title", "pool", "image", "active")
show(models.RequestTemplate, "public_id", "name", "department", "person", search=("name",), hidden=("body",))
show(
    models.Workload, "public_id", "name", "department", "author", "pool", "state", "submitted_at",
    search=("public_id", "name"), hidden=("secret_env", "env"),
)  # fmt: skip
show(
    models.Attempt, "run_name", "workload", "cluster", "node", "started_at", "finished_at", "outcome", "exit_code",
    search=("run_name",), hidden=("secrets", "token_digest"),
)  # fmt: skip
