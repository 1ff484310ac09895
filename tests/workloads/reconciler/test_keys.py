"""Rotation of ENCRYPTION_KEYS: add a new key, re-encrypt everything, remove the old key; and what fails without a key."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.apps import apps
from django.core.management import CommandError, call_command

from portal.infra.crypt import COLUMNS, Undecryptable, decrypt, encrypt
from portal.models import IdempotencyKey, Webhook
from tests.architecture import sources
from tests.architecture.doors import World, build
from tests.clients import person
from workloads.models import Attempt, MetricsSource, Workload
from workloads.nodes import inventory
from workloads.reconciler.reconcile import _create, reconcile_cluster

pytestmark = pytest.mark.django_db
OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()


@pytest.fixture
def world(settings: Any, tmp_path: Path) -> World:
    settings.DATA_DIR, settings.ENCRYPTION_KEYS = tmp_path, [OLD]
    world = build()
    workload = Workload.objects.get()
    Workload.objects.update(secret_env=encrypt('{"TOKEN": "s3cret"}'))
    Attempt.objects.update(secrets=encrypt('{"ready": "r", "notebook": "n"}'))
    Webhook.objects.update(secret=encrypt("shared"))
    type(workload.pool.group.cluster).objects.update(kind="kubernetes", connection=encrypt("apiVersion: v1"))
    MetricsSource.objects.create(
        cluster=workload.pool.group.cluster, url="http://p", auth="bearer", secret=encrypt("t")
    )
    IdempotencyKey.objects.create(
        holder="user:1", method="POST", path="/", key="k", body_digest="", body=encrypt("{}"), status=200
    )
    return world


def all_secrets() -> dict[str, str]:
    return {
        f"{label}.{column}": getattr(row, column)
        for label, column in COLUMNS
        for row in apps.get_model(label)._default_manager.all()
    }


def test_old_key_can_be_removed_after_reencryption_with_the_new_one(world: World, settings: Any) -> None:
    before = {name: decrypt(text) for name, text in all_secrets().items()}
    assert all(before.values())
    settings.ENCRYPTION_KEYS = [NEW, OLD]
    call_command("reencrypt", stdout=StringIO())
    settings.ENCRYPTION_KEYS = [NEW]
    assert {name: decrypt(text) for name, text in all_secrets().items()} == before
    call_command("reencrypt", "--check", stdout=StringIO())


def test_secrets_that_no_key_decrypts_are_reported_and_left_unchanged(world: World, settings: Any) -> None:
    settings.ENCRYPTION_KEYS = [NEW]
    before, output = all_secrets(), StringIO()
    with pytest.raises(CommandError, match="6 secrets"):
        call_command("reencrypt", stdout=output)
    assert all_secrets() == before
    assert "(ci): secret" in output.getvalue()


def test_every_module_that_encrypts_is_covered_by_the_command() -> None:
    """Add every new encrypted column to COLUMNS; a notebook's cookie and secrets that are shown once are not columns."""
    ours = [path for path in sources.files() if sources.name(path).split("/")[0] in ("portal", "quotas", "workloads")]
    users = {sources.name(path) for path in ours if re.search(r"(?<!def )\bencrypt\(", path.read_text())}
    assert users - {"portal/infra/crypt.py"} == {
        "portal/notify/webhooks.py", "portal/sign_in/adapters.py", "portal/web/once.py", "portal/web/one_time_secrets.py",
        "workloads/actions.py",
        "workloads/measurement/sources.py", "workloads/notebooks/access.py", "workloads/nodes/cluster_registry.py",
        "workloads/clusters/run_spec.py", "workloads/reconciler/external_runs.py",
    }  # fmt: skip


def test_without_the_key_only_the_affected_operations_fail(world: World, settings: Any) -> None:
    settings.ENCRYPTION_KEYS, settings.API_RATE_PER_MINUTE = [NEW], 10**6
    attempt = Attempt.objects.select_related("workload__department", "cluster").get()
    inventory.refresh(attempt.cluster)
    reconcile_cluster(attempt.cluster)
    attempt.cluster.refresh_from_db()
    assert attempt.cluster.unreachable_since is not None
    error = _create(attempt)
    assert "The tokens of" in str(error) or "secret variables" in str(error)
    client = person(world.people["owner"])
    assert client.get(f"/api/v1/workloads/{attempt.workload.public_id}/").status_code == 200
    response = client.post(f"/api/v1/workloads/{attempt.workload.public_id}/rerun/")
    assert (response.status_code, response.json()["code"]) == (409, "undecryptable")
    assert "The secret variables of train cannot be read" in response.json()["detail"]
    page = world.client("owner").get(f"/d/vision/workloads/new/?from={attempt.workload.public_id}")
    assert page.status_code == 200
    with pytest.raises(Undecryptable):
        decrypt(Workload.objects.get().secret_env)
