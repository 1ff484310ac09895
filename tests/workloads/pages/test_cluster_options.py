"""The options of a cluster on its page: all of them, with the guide's description and current value, and a form."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.utils import translation

from portal.web.guides import guide
from quotas.models import Cluster, ClusterKind
from tests import builders as make
from workloads.nodes import cluster_registry
from workloads.pages.cluster_options import GUIDE, KNOWN, NAME, lines

ONLY_NAMES = re.compile(r"(<code>[a-z_]+</code>( or |或|, |、| |或 )*)+")


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_guide_describes_exactly_the_known_options(language: str) -> None:
    with translation.override(language):
        names = [name for line in lines({}) for name in line.names]
        document = guide(GUIDE)
        assert document is not None
        rows = document.document.rows
    assert sorted(names) == sorted(KNOWN)
    described = {
        name for row in rows if len(row) == 3 and ONLY_NAMES.fullmatch(row[0]) for name in NAME.findall(row[0])
    }
    assert described == set(KNOWN)


def test_current_values_are_shown_in_the_line_of_their_option() -> None:
    set_lines = [line for line in lines({"volume_size": "1Ti", "pins": {"n1": "whole"}}) if line.present]
    assert [line.present for line in set_lines] == [(("volume_size", '"1Ti"'),), (("pins", '{"n1": "whole"}'),)]


@pytest.fixture
def oscar(db: None) -> Client:
    client = Client(headers={"Accept-Language": "en"})
    client.force_login(make.user("oscar", is_operator=True), backend="django.contrib.auth.backends.ModelBackend")
    return client


@pytest.fixture
def cluster(db: None) -> Cluster:
    return Cluster.objects.create(name="prod", kind=ClusterKind.KUBERNETES, options={"volume": "pvc"})


def test_options_can_be_changed_on_the_page_of_the_cluster(
    oscar: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_registry, "make_driver", lambda row: type("Driver", (), {"nodes": lambda self: ()})())
    page = oscar.get("/operator/clusters/prod/").content.decode()
    assert "volume = &quot;pvc&quot;" in page
    seen = re.search(r'name="seen" value="([^"]+)"', page)
    assert seen
    form = {"seen": seen[1], "options": '{"volume": "emptyDir"}', "kubeconfig": ""}
    assert oscar.post("/operator/clusters/prod/", form).status_code == 302
    cluster.refresh_from_db()
    assert (cluster.options, cluster.connection) == ({"volume": "emptyDir"}, "")
    again = oscar.post("/operator/clusters/prod/", form)  # as from a tab that was opened before
    assert again.status_code == 409


@pytest.mark.parametrize(
    ("options", "problem"),
    [("{", "Enter valid JSON"), ("[1]", "Must be a JSON object"), ('{"volum": "pvc"}', "unknown option volum"),
     ('{"volume": "nfs"}', "option volume")],
)  # fmt: skip
def test_invalid_options_are_refused_at_the_field(oscar: Client, cluster: Cluster, options: str, problem: str) -> None:
    response = oscar.post("/operator/clusters/prod/", {"options": options, "seen": cluster_registry.mark_of(cluster)})
    assert response.status_code == 422
    assert problem in response.content.decode()
    cluster.refresh_from_db()
    assert cluster.options == {"volume": "pvc"}
