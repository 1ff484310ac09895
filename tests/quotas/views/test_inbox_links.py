"""Every line of the inbox leads to the page that it is about, and so does the link of its mail."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from portal.access import SYSTEM
from portal.models import Department, InboxItem, User
from portal.notify import notices, outbox
from quotas.health import quarantines
from quotas.models import Pool

pytestmark = pytest.mark.django_db(transaction=True)
WITHOUT = {"member.removed", "user.password_forgotten"}
"""Kinds about something that the reader can no longer see, or whose mail has a link of its own."""


@pytest.fixture
def operator(root: User) -> Client:
    client = Client()
    client.force_login(root, backend="django.contrib.auth.backends.ModelBackend")
    return client


def send_notice(to: User, kind: str, **facts: Any) -> InboxItem:
    notices.send(kind, to=[to], **facts)
    return InboxItem.objects.latest("pk")


@pytest.mark.parametrize(
    "kind",
    sorted(kind for kind in notices.SETTABLE if kind not in WITHOUT and not kind.startswith(("node.", "cluster."))),
)
def test_notice_about_a_department_links_to_one_of_its_pages(
    kind: str, vision: Department, pool: Pool, root: User, operator: Client
) -> None:
    item = send_notice(root, kind, department=vision, month="2026-10")
    response = operator.get(f"/inbox/{item.pk}/")
    assert operator.get(response.headers["Location"]).status_code == 200
    if kind.startswith("budget."):
        assert response.headers["Location"] == "/d/vision/budgets/"
    assert f"/inbox/{item.pk}/\n" in str(outbox.letter(item, root).body)


def test_notices_of_quarantines_and_outages_link_to_the_node_and_the_cluster(
    pool: Pool, root: User, operator: Client
) -> None:
    node = pool.cards.first().node
    quarantines.quarantine(actor=SYSTEM, node=node, card=None, why="Smoke", until=None)
    item = InboxItem.objects.get(kind="node.quarantined", user=root)
    targets = {item: f"/operator/nodes/{node.pk}/health/"}
    targets[send_notice(root, "node.quarantine_ended", place="old", why="before facts named the node")] = (
        "/operator/nodes/"
    )
    for kind in ("cluster.not_measured", "cluster.measured"):
        targets[send_notice(root, kind, cluster=node.cluster.name)] = f"/operator/clusters/{node.cluster.name}/metrics/"
    for each, page in targets.items():
        assert operator.get(f"/inbox/{each.pk}/").headers["Location"] == page
        assert operator.get(page).status_code == 200, page
        assert f'href="/inbox/{each.pk}/"' in operator.get("/inbox/").content.decode()
