"""A Prometheus that is slow, wrong or unreachable: measured values stay, and the cluster shows since when and why it fails."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from django.test import Client
from django.utils import timezone

from portal.access import SYSTEM
from portal.infra.crypt import encrypt
from portal.models import Event, InboxItem
from portal.notify.notices import sentence
from quotas.models import Cluster
from tests import builders as make
from tests.workloads.measurement import bed
from tests.workloads.measurement.bed import Mood, World
from workloads.measurement import buckets, prometheus, sources
from workloads.measurement.sample import measure_all
from workloads.metrics import measured
from workloads.models import MeasuredBucket, MetricsSource

pytestmark = pytest.mark.django_db


@pytest.fixture
def mood() -> Iterator[Mood]:
    created = Mood()
    yield created
    created.over.set()


@pytest.fixture
def here(mood: Mood) -> Iterator[World]:
    with bed.serving(mood) as url:
        yield bed.world(url)


def measure_well(mood: Mood, here: World) -> MeasuredBucket:
    """One good round, after which something is stored."""
    job = bed.attempt(here)
    mood.answer = (200, {}, bed.vector(({"pod": job.run_name, "namespace": "gqp-vision", "UUID": "GPU-1"}, "0.25")))
    measure_all(now=timezone.now())
    here.source.refresh_from_db()
    assert here.source.failing_since is None
    return MeasuredBucket.objects.get()


LONG = prometheus.LONGEST
BAD = {
    "500": ((500, {}, b"oops"), "is not Prometheus (HTTP 500)"),
    "garbage": ((200, {}, b"<html>hello</html>"), "is not Prometheus (HTTP 200)"),
    "empty": ((200, {}, b""), "is not Prometheus"),
    "redirect": ((302, {"Location": "http://169.254.169.254/"}, b""), "redirects to http://169.254.169.254/"),
    "unauthorized": ((401, {}, b""), "rejects the credentials (HTTP 401)"),
    "error": ((400, {}, b'{"status":"error","errorType":"bad_data","error":"parse error"}'), "rejects a query: parse error"),
    "huge": ((200, {}, b" " * 300), "larger than"),
    "cut short": ((200, {"Content-Length": "500", "Connection": "close"}, b"{"), "cannot be reached"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_failing_prometheus_changes_only_since_when_and_why_it_fails(
    mood: Mood, here: World, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = measure_well(mood, here)
    at = here.source.measured_at
    monkeypatch.setattr(prometheus, "LONGEST", 200 if kind == "huge" else LONG)
    monkeypatch.setattr(prometheus, "SECONDS", 2.0)
    mood.answer, words = BAD[kind]
    asked = len(mood.asked)
    for _ in range(2):
        measure_all(now=timezone.now())
    here.source.refresh_from_db()
    assert words in sources.failure_text(here.source.failure)
    assert here.source.measured_at == at
    assert here.source.failing_since is not None
    assert MeasuredBucket.objects.values().get() == MeasuredBucket.objects.filter(pk=before.pk).values().get()
    assert MeasuredBucket.objects.get().gpu == 250
    assert Event.objects.filter(kind="cluster.not_measured").count() == 1
    assert len(mood.asked) > asked
    assert {name for path, _headers in mood.asked for name in [path.split("?")[0]]} == {"/api/v1/query"}  # no redirect


def test_operators_are_notified_once_of_a_lasting_outage_and_once_of_its_end(mood: Mood, here: World) -> None:
    oscar = make.user("oscar", is_operator=True, email="oscar@example.org")
    make.user("left", is_operator=True, is_active=False)
    good, now = mood.answer, timezone.now()

    def notices() -> list[str]:
        return list(InboxItem.objects.filter(user=oscar).order_by("pk").values_list("kind", flat=True))

    for outage in (1, 2):
        mood.answer = (500, {}, b"")
        for minutes in (0, 29, 30, 31, 90):
            measure_all(now=now + dt.timedelta(minutes=minutes))
            expected = ["cluster.not_measured", "cluster.measured"] * (outage - 1)
            assert notices() == expected + (["cluster.not_measured"] if minutes >= 30 else [])
        mood.answer = good
        for minutes in (91, 92):
            measure_all(now=now + dt.timedelta(minutes=minutes))
            assert notices() == ["cluster.not_measured", "cluster.measured"] * outage
        now += dt.timedelta(hours=3)
    item = InboxItem.objects.filter(kind="cluster.not_measured").first()
    assert item is not None
    assert item.mail_due_at is not None
    text = sentence(item.kind, item.data)
    assert text.startswith(f"What pods use on {here.source.cluster.name} has not been measured since")
    assert "500" in text
    assert InboxItem.objects.exclude(user=oscar).count() == 0


def test_message_that_a_killed_round_did_not_write_is_written_by_the_next(
    mood: Mood, here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    make.user("oscar", is_operator=True)
    mood.answer, now = (500, {}, b""), timezone.now()
    measure_all(now=now)

    class Killed(BaseException):
        pass

    def killed(*_who: Any, **_facts: Any) -> None:
        raise Killed

    monkeypatch.setattr("workloads.measurement.sample.notices.send", killed)
    with pytest.raises(Killed):
        measure_all(now=now + dt.timedelta(minutes=40))
    monkeypatch.undo()
    for minutes in (41, 42):
        measure_all(now=now + dt.timedelta(minutes=minutes))
    assert InboxItem.objects.filter(kind="cluster.not_measured").count() == 1


def test_a_new_address_begins_a_new_outage(mood: Mood, here: World) -> None:
    make.user("oscar", is_operator=True)
    mood.answer, now = (500, {}, b""), timezone.now()
    for minutes in (0, 31):
        measure_all(now=now + dt.timedelta(minutes=minutes))
    MetricsSource.objects.update(failing_since=None, notified_at=None, failure={})  # as saving it does
    for minutes in (32, 62, 63, 64):
        measure_all(now=now + dt.timedelta(minutes=minutes))
    assert InboxItem.objects.filter(kind="cluster.not_measured").count() == 2


@pytest.mark.parametrize("seconds", [0, 10, 29, 40])
def test_past_outage_of_prometheus_is_not_reported_as_a_present_one(mood: Mood, here: World, seconds: int) -> None:
    """It was unreachable for half an hour and has no values of that time; at any point of a bucket, it is measured now."""
    job = bed.attempt(here)
    now = buckets.floor(timezone.now(), buckets.BUCKET) + dt.timedelta(seconds=seconds)
    back = now - dt.timedelta(minutes=6)
    MetricsSource.objects.update(complete_until=now - dt.timedelta(minutes=30))
    labels = {"pod": job.run_name, "namespace": "gqp-vision", "UUID": "GPU-1"}
    mood.answer_at = lambda moment: bed.vector((labels, "0.25")) if moment > back else bed.vector()
    for minutes in range(4):
        measure_all(now=now + dt.timedelta(minutes=5 * minutes))
        here.source.refresh_from_db()
        assert (here.source.failing_since, here.source.ranks) == (None, 1)
    assert not Event.objects.filter(kind="cluster.not_measured").exists()
    assert here.source.complete_until > now - dt.timedelta(minutes=15), "one bucket a round"


def test_slow_prometheus_has_one_deadline_for_all_queries_and_delays_no_other(
    mood: Mood, here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "SECONDS", 1.0)
    mood.held = True
    good = Mood()
    with bed.serving(good) as url:
        other = make.pool("h100")
        Cluster.objects.filter(pk=other.group.cluster_id).update(kind="kubernetes")
        quick = MetricsSource.objects.create(cluster=other.group.cluster, url=url, exporters=["dcgm"])
        begun = timezone.now()
        measure_all(now=begun)
    quick.refresh_from_db()
    here.source.refresh_from_db()
    assert quick.measured_at == begun
    assert sources.failure_text(here.source.failure) == "It did not respond within 1 s."
    assert timezone.now() - begun < dt.timedelta(seconds=20)  # not 8 queries of 1 s each


def test_address_on_which_nothing_listens_is_reported(here: World, mood: Mood) -> None:
    MetricsSource.objects.update(url="http://127.0.0.1:9")
    measure_all(now=timezone.now())
    here.source.refresh_from_db()
    assert "nothing is listening there" in sources.failure_text(here.source.failure)
    assert mood.asked == []


@pytest.mark.parametrize("host", ["169.254.169.254", "[fe80::1]", "0.0.0.0", "224.0.0.1"])
def test_address_that_is_not_of_another_machine_is_rejected(here: World, host: str) -> None:
    with pytest.raises(sources.Invalid) as refused:
        sources.try_source(actor=SYSTEM, cluster=here.cluster, wish=sources.Wish(f"http://{host}:9090"))
    assert refused.value.field == "url"
    assert "not an address of another machine" in refused.value.detail


def test_only_the_certificate_that_the_operator_entered_is_trusted(
    here: World, mood: Mood, tmp_path: Path
) -> None:  # fmt: skip
    good, other = certificate(tmp_path, "good"), certificate(tmp_path, "other")
    with bed.serving(mood, certificate=good) as url:
        found = sources.try_source(actor=SYSTEM, cluster=here.cluster, wish=sources.Wish(url, ca=good.read_text()))
        assert found.is_nothing
        asked = len(mood.asked)
        for ca in ("", other.read_text()):
            with pytest.raises(sources.Invalid) as refused:
                sources.try_source(actor=SYSTEM, cluster=here.cluster, wish=sources.Wish(url, ca=ca))
            assert "certificate is not trusted" in refused.value.detail
        assert len(mood.asked) == asked  # nothing was sent, not even a token


def certificate(folder: Path, name: str) -> Path:
    """A self-signed certificate for 127.0.0.1 and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - dt.timedelta(days=1))
    builder = builder.not_valid_after(now + dt.timedelta(days=1)).add_extension(address, critical=False)
    signed = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    (folder / name).write_bytes(signed + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return folder / name


def test_path_of_the_address_is_part_of_every_request(here: World, mood: Mood) -> None:
    sources.try_source(actor=SYSTEM, cluster=here.cluster, wish=sources.Wish(f"{here.source.url}/prometheus/"))
    assert {path.split("?")[0] for path, _headers in mood.asked} == {"/prometheus/api/v1/query"}


def test_credentials_are_sent_only_to_the_address_they_were_entered_for(here: World, mood: Mood) -> None:
    wish = sources.Wish(here.source.url, auth="bearer", secret="t0ken")
    sources.set_source(actor=SYSTEM, cluster=here.cluster, wish=wish)
    assert {headers["Authorization"] for _path, headers in mood.asked} == {"Bearer t0ken"}
    with pytest.raises(sources.Invalid) as refused:
        sources.set_source(actor=SYSTEM, cluster=here.cluster, wish=sources.Wish("http://127.0.0.2:9", auth="bearer"))
    assert refused.value.field == "secret"
    kept = sources.Wish(f"{here.source.url}/", auth="bearer", exporters=["dcgm"])
    sources.set_source(actor=SYSTEM, cluster=here.cluster, wish=kept)
    assert mood.asked[-1][1]["Authorization"] == "Bearer t0ken"
    sources.set_source(
        actor=SYSTEM, cluster=here.cluster, wish=sources.Wish(here.source.url, auth="basic", username="u", secret="p")
    )
    assert mood.asked[-1][1]["Authorization"] == "Basic dTpw"


def test_secret_that_cannot_be_decrypted_fails_without_a_request(here: World, mood: Mood, settings: Any) -> None:
    MetricsSource.objects.update(auth="bearer", secret=encrypt("t0ken"))
    settings.ENCRYPTION_KEYS = ["o" * 43 + "="]
    measure_all(now=timezone.now())
    here.source.refresh_from_db()
    assert "enter it again" in sources.failure_text(here.source.failure)
    assert mood.asked == []


@pytest.mark.parametrize(
    ("field", "wish"),
    [
        ("url", sources.Wish("")),
        ("url", sources.Wish("ftp://prometheus")),
        ("url", sources.Wish("http://user:secret@prometheus:9090")),
        ("url", sources.Wish("http://prometheus:9090/?a=b")),
        ("url", sources.Wish("http://prometheus:9090/#graph")),
        ("ca", sources.Wish("https://prometheus", ca="no certificate")),
        ("exporters", sources.Wish("https://prometheus", exporters=["windows"])),
        ("exporters", sources.Wish("https://prometheus", exporters=[])),
        ("selector", sources.Wish("https://prometheus", selector='a="b"} or up{c="d"')),
        ("secret", sources.Wish("https://prometheus", auth="bearer")),
        ("secret", sources.Wish("https://prometheus", auth="bearer", secret="tök\nen")),
        ("username", sources.Wish("https://prometheus", auth="basic", username="a:b", secret="x")),
    ],
)
def test_invalid_settings_are_rejected_with_their_field(
    here: World, mood: Mood, field: str, wish: sources.Wish
) -> None:
    before = MetricsSource.objects.values().get()
    with pytest.raises(sources.Invalid) as refused:
        sources.set_source(actor=SYSTEM, cluster=here.cluster, wish=wish)
    assert refused.value.field == field
    assert MetricsSource.objects.values().get() == before
    assert mood.asked == []


@pytest.mark.parametrize("count", [10, 500])
def test_the_number_of_queries_does_not_grow_with_the_pods(here: World, mood: Mood, count: int) -> None:
    gang = bed.attempt(here, kind="distributed", pods=count)
    rows = [
        ({"pod": f"{gang.run_name}-{rank}-abcde", "namespace": "gqp-vision", "UUID": f"GPU-{rank}"}, "0.5")
        for rank in range(count)
    ]
    mood.answer = (200, {}, bed.vector(*rows))
    begin = dt.datetime(2026, 5, 4, 10, 0, tzinfo=dt.UTC)
    MetricsSource.objects.update(complete_until=begin)
    type(gang).objects.update(started_at=begin)
    asked = []
    for minute in range(1, 8):
        before = len(mood.asked)
        measure_all(now=begin + dt.timedelta(minutes=minute))
        asked.append(len(mood.asked) - before)
    assert asked == [8] * 7
    assert MeasuredBucket.objects.filter(at=begin).count() == count


def test_metrics_show_whether_the_cluster_is_measured(here: World, mood: Mood) -> None:
    measure_well(mood, here)
    works, age, ranks = list(measured())
    assert [sample.value for sample in works.samples] == [1]
    assert age.samples[0].value < 60
    assert {sample.labels["what"]: sample.value for sample in ranks.samples} == {"all": 1, "gpu": 1}
    mood.answer = (500, {}, b"")
    measure_all(now=timezone.now())
    assert [sample.value for sample in next(iter(measured())).samples] == [0]


# Pages and API.


@pytest.fixture
def operator(client: Client) -> Client:
    client.force_login(make.user("olga", is_operator=True))
    return client


def test_page_can_test_save_and_disconnect_a_prometheus(operator: Client, here: World, mood: Mood) -> None:
    path = f"/operator/clusters/{here.cluster.name}/metrics/"
    page = operator.get(path)
    assert page.status_code == 200
    fields = {"url": here.source.url, "auth": "none", "exporters": ["dcgm"], "selector": 'cluster="a"'}
    seen = page.context["form"].initial["seen"]
    mood.answer = (200, {}, bed.vector(({"Hostname": "n1"}, "3")))
    tested = operator.post(path, fields | {"test": "1", "seen": seen})
    assert tested.status_code == 200
    assert "DCGM_FI_DEV_FB_USED" in tested.content.decode()
    here.source.refresh_from_db()
    assert here.source.selector == ""
    assert operator.post(path, fields | {"seen": seen}).status_code == 302
    here.source.refresh_from_db()
    assert (here.source.selector, here.source.exporters) == ('cluster="a"', ["dcgm"])
    assert operator.post(path, fields | {"seen": seen, "selector": ""}).status_code == 409  # a concurrent change
    mood.answer = (500, {}, b"")
    refused = operator.post(path, fields | {"test": "1"})
    assert refused.status_code == 422
    assert "is not Prometheus" in refused.content.decode()
    measure_all(now=timezone.now())
    for address in (path, "/operator/clusters/", "/operator/system/"):
        answer = operator.get(address)
        if answer.status_code == 200:
            assert "never measured" in answer.content.decode(), address
    assert operator.post(path, {"remove": "1"}).status_code == 302
    assert not MetricsSource.objects.exists()


def test_api_sets_tests_reads_and_removes_a_prometheus(operator: Client, here: World, mood: Mood) -> None:
    path = f"/api/v1/clusters/{here.cluster.name}/metrics/"
    body = {"url": here.source.url, "auth": "bearer", "secret": "t0ken", "exporters": ["dcgm"]}
    created = operator.put(path, body, content_type="application/json")
    assert created.status_code == 200
    assert "t0ken" not in created.content.decode()
    assert operator.get(path).json()["auth"] == "bearer"
    found = operator.post(f"{path}test/", content_type="application/json")
    assert found.status_code == 200
    assert {each["exporter"] for each in found.json()["metrics"]} == {"dcgm"}
    wrong = operator.put(path, body | {"selector": "x"}, content_type="application/json")
    assert (wrong.status_code, wrong.json()["errors"][0]["attr"]) == (422, "selector")
    assert operator.put(path, body | {"url": "http://127.0.0.1:9"}, content_type="application/json").status_code == 422
    assert operator.delete(path).status_code == 204
    assert operator.get(path).json()["url"] == ""


def test_the_embedded_cluster_has_no_prometheus(operator: Client) -> None:
    here = make.pool("t4").group.cluster
    body = {"url": "http://127.0.0.1:9"}
    answer = operator.put(f"/api/v1/clusters/{here.name}/metrics/", body, content_type="application/json")
    assert answer.status_code == 422
    assert operator.get(f"/operator/clusters/{here.name}/metrics/").status_code == 200
