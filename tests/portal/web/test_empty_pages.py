"""In a new installation every list says what would be in it, and leads to the next step."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from tests import builders as make

pytestmark = pytest.mark.django_db

PAGES = {  # page → where it leads
    "/operator/clusters/": "/help/kubernetes/",
    "/operator/images/": "/operator/images/new/",
    "/operator/departments/": "/operator/configuration/",
    "/operator/groups/": "/help/sign-in/",
    "/operator/nodes/": "/operator/clusters/",
    "/operator/pools/": "/operator/clusters/",
    "/operator/estimates/": "/operator/workloads/",
    "/operator/": "/help/operations/",
    "/pools/": "/operator/clusters/",
    "/usage/": "/usage/",
    "/d/vision/quotas/": "/operator/clusters/",
    "/d/vision/caps/": "/d/vision/requests/new/",
    "/d/vision/webhooks/": "/help/api/",
    "/d/vision/workloads/": "/d/vision/workloads/new/",
    "/d/vision/": "/pools/",
}


@pytest.mark.parametrize("path", PAGES)
def test_an_empty_list_leads_to_the_next_step(path: str) -> None:
    if path.startswith("/d/"):
        make.department("vision")
    client = Client(headers={"Accept-Language": "en"})
    client.force_login(make.user("oscar", is_operator=True), backend="django.contrib.auth.backends.ModelBackend")
    page = client.get(path).content.decode()
    links = re.findall(r'class="empty-action">\s*<a class="[^"]+" href="([^"]+)"', page)
    assert PAGES[path] in links


@pytest.mark.parametrize(
    "path", ["/requests/", "/inbox/", "/decisions/", "/tokens/", "/d/vision/workloads/", "/operator/audit/"]
)
def test_empty_list_has_no_filters_unless_one_is_set(path: str) -> None:
    make.department("vision")
    client = Client(headers={"Accept-Language": "en"})
    client.force_login(make.user("oscar", is_operator=True), backend="django.contrib.auth.backends.ModelBackend")
    assert 'class="list-tools' not in client.get(path).content.decode()
    assert 'class="list-tools' in client.get(f"{path}?q=word").content.decode(), "a filter that was set can be removed"
