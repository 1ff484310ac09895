"""Pages leave compressed; what streams and the API do not."""

from __future__ import annotations

import gzip

import pytest

from tests import builders as make

pytestmark = pytest.mark.django_db
TAKES_GZIP = {"Accept-Encoding": "gzip, br"}


def test_a_page_is_compressed_for_who_takes_it(client):
    client.force_login(make.member(make.department()))
    page = client.get("/pools/", headers=TAKES_GZIP)
    assert page.headers["Content-Encoding"] == "gzip"
    assert b"</html>" in gzip.decompress(page.content)
    assert int(page.headers["Content-Length"]) == len(page.content) < 10_000
    assert "Accept-Encoding" in page.headers["Vary"]
    assert "Content-Encoding" not in client.get("/pools/").headers


def test_the_api_and_what_streams_are_not(client):
    client.force_login(make.member(make.department()))
    for address in ("/api/v1/pools/", "/events/"):
        response = client.get(address, headers=TAKES_GZIP)
        assert response.status_code == 200
        assert "Content-Encoding" not in response.headers
