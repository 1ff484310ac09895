"""Pages are sent compressed; streams and the API are not."""

from __future__ import annotations

import gzip

import pytest

from tests import builders as make

pytestmark = pytest.mark.django_db
TAKES_GZIP = {"Accept-Encoding": "gzip, br"}


def test_page_is_compressed_for_clients_that_accept_gzip(client):
    client.force_login(make.member(make.department()))
    page = client.get("/pools/", headers=TAKES_GZIP)
    assert page.headers["Content-Encoding"] == "gzip"
    assert b"</html>" in gzip.decompress(page.content)
    assert int(page.headers["Content-Length"]) == len(page.content) < 10_000
    assert "Accept-Encoding" in page.headers["Vary"]
    assert "Content-Encoding" not in client.get("/pools/").headers


def test_api_and_streams_are_not_compressed(client):
    client.force_login(make.member(make.department()))
    for address in ("/api/v1/pools/", "/events/"):
        response = client.get(address, headers=TAKES_GZIP)
        assert response.status_code == 200
        assert "Content-Encoding" not in response.headers
