"""A service behind the portal's own proxy."""

from __future__ import annotations

import re

import pytest
from django.conf import settings
from django.test import Client

from portal.access import Actor, NotVisible
from portal.models import Role
from tests import builders as make
from tests.workloads.notebooks.test_access import ECHO, Reader, Site, site  # noqa: F401 a fixture
from workloads.clusters.run_spec import tokens_of
from workloads.notebooks import access
from workloads.runtime.setups import Setup

FORGED_HEADERS = {"X-Forwarded-User": "somebody", "X_Forwarded_User": "owner", "Proxy": "http://192.0.2.1:80"}


def test_service_is_open_to_its_department_and_has_its_own_origin(site: Site) -> None:  # noqa: F811
    bed = site.bed
    setup = Setup(port=8000)
    work = bed.submit(bed.alice, bed.vision, ECHO, kind="service", setup=setup)
    bed.until(lambda: bed.state(work) == "running" and work.attempts.get().ranks[0]["ready"] is True)
    viewer = make.member(bed.vision, Role.VIEWER, "vera")
    browser = Client()
    browser.force_login(viewer)
    page = browser.get(f"/d/vision/workloads/{work.public_id}/").content.decode()
    origin = re.search(r'<code id="origin"[^>]*>([^<]+)</code>', page)
    assert origin is not None
    assert origin[1] == access.origin_of(work.public_id) + "/"
    # A reader who does not come from the portal is sent to its page.
    without_cookie = Reader(site, work.public_id).get("/")
    link = re.search(r'href="([^"]+)"', without_cookie.text)
    assert (without_cookie.status_code, link is not None) == (403, True)
    redirected = browser.get(link[1].removeprefix(settings.BASE_URL), follow=True)  # type: ignore[index]
    assert redirected.redirect_chain == [(f"/d/vision/workloads/{work.public_id}/", 302)]
    address = access.issue_ticket(Actor(viewer), site.session(viewer), work.public_id)
    reader = Reader(site, work.public_id)
    response = reader.get(address.split(f":{site.port}")[1])
    assert (response.status_code, response.headers["location"]) == (303, "/")
    reader.cookie = response.headers["set-cookie"].split(";")[0]
    body = reader.get("/v1/models?x=1", Authorization="Bearer mine", **FORGED_HEADERS).json()
    headers = {name.lower(): value for name, value in body["headers"]}
    assert not {name for name in headers if "_" in name or name == "proxy"}
    assert body["path"] == "/v1/models?x=1"
    assert headers["x-forwarded-user"] == "vera"
    assert headers["authorization"] == f"Bearer {tokens_of(work.attempts.get())['notebook']}"
    assert "sessionid" not in headers.get("cookie", "")
    with pytest.raises(NotVisible):
        access.issue_ticket(Actor(bed.bob), site.session(bed.bob), work.public_id)
