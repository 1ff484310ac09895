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

POSING = {"X-Forwarded-User": "somebody", "X_Forwarded_User": "owner", "Proxy": "http://192.0.2.1:80"}


def test_a_service_is_its_departments_and_has_the_whole_of_its_origin(site: Site) -> None:  # noqa: F811
    bed = site.bed
    setup = Setup(port=8000)
    work = bed.submit(bed.alice, bed.vision, ECHO, kind="service", setup=setup)
    bed.until(lambda: bed.state(work) == "running" and work.attempts.get().ranks[0]["ready"] is True)
    viewer = make.member(bed.vision, Role.VIEWER, "vera")
    browser = Client()
    browser.force_login(viewer)
    shown = browser.get(f"/d/vision/workloads/{work.public_id}/").content.decode()
    origin = re.search(r'<code id="origin"[^>]*>([^<]+)</code>', shown)
    assert origin is not None
    assert origin[1] == access.origin_of(work.public_id) + "/"
    stray = Reader(site, work.public_id).get("/")  # who comes to it without the portal is led to its page
    link = re.search(r'href="([^"]+)"', stray.text)
    assert (stray.status_code, link is not None) == (403, True)
    led = browser.get(link[1].removeprefix(settings.BASE_URL), follow=True)  # type: ignore[index]
    assert led.redirect_chain == [(f"/d/vision/workloads/{work.public_id}/", 302)]
    address = access.issue_ticket(Actor(viewer), site.session(viewer), work.public_id)
    reader = Reader(site, work.public_id)
    answer = reader.get(address.split(f":{site.port}")[1])
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    reader.cookie = answer.headers["set-cookie"].split(";")[0]
    told = reader.get("/v1/models?x=1", Authorization="Bearer mine", **POSING).json()
    given = {name.lower(): value for name, value in told["headers"]}
    assert not {name for name in given if "_" in name or name == "proxy"}
    assert told["path"] == "/v1/models?x=1"
    assert given["x-forwarded-user"] == "vera"
    assert given["authorization"] == f"Bearer {tokens_of(work.attempts.get())['notebook']}"
    assert "sessionid" not in given.get("cookie", "")
    with pytest.raises(NotVisible):
        access.issue_ticket(Actor(bed.bob), site.session(bed.bob), work.public_id)
