"""*Operator › Configuration*: download, preview, apply."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from portal.models import AuditEntry, Department
from quotas.models import Quota
from tests import builders as make
from workloads.configuration import plan

pytestmark = pytest.mark.django_db
URL = "/operator/configuration/"
LESS = f"apiVersion: {plan.API_VERSION}\ndepartments:\n  vision: {{quotas: {{a100: {{guaranteed: 4 cards}}}}}}\n"


@pytest.fixture
def client() -> Client:
    pool, vision = make.pool("a100", cards=16), make.department("vision")
    make.quota(vision, pool, 8)
    make.holding(vision, pool, own=8, name="train")
    client = Client()
    client.force_login(make.user("root", is_operator=True), backend="django.contrib.auth.backends.ModelBackend")
    return client


def hidden(page: str, name: str) -> str:
    match = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert match
    return match[1].replace("&#x27;", "'")


def test_uploaded_file_is_previewed_and_then_applied(client: Client) -> None:
    page: Any = client.post(URL, {"file": SimpleUploadedFile("gpu.yaml", LESS.encode())})
    text = page.content.decode()
    assert page.status_code == 200
    assert "departments.vision.quotas.a100.guaranteed" in text
    assert "could be recalled" in text
    assert Quota.objects.get().guaranteed == 8
    fields = {name: hidden(text, name) for name in ("text", "source", "confirmed")}
    assert client.post(URL, fields | {"apply": "1", "confirmed": ""}).status_code == 409  # asks for confirmation
    done = client.post(URL, fields | {"apply": "1"})
    assert (done.status_code, Quota.objects.get().guaranteed) == (302, 4)
    assert AuditEntry.objects.get().source == "gpu.yaml"
    assert "applied from gpu.yaml" in client.get("/operator/audit/").content.decode()
    again: Any = client.post(URL, {"text": LESS})
    assert "the file matches the current settings" in again.content.decode()


def test_plan_that_has_changed_is_shown_again_and_not_applied(client: Client) -> None:
    def fields(page: Any) -> dict[str, str]:
        return {name: hidden(page.content.decode(), name) for name in ("text", "source", "confirmed")} | {"apply": "1"}

    outdated = fields(client.post(URL, {"text": LESS}))
    Quota.objects.update(guaranteed=6)
    page: Any = client.post(URL, outdated)
    text = page.content.decode()
    assert page.status_code == 422
    assert "no longer what the preview showed" in text
    assert '<span class="diff-before">6 cards</span>' in text
    assert (Quota.objects.get().guaranteed, AuditEntry.objects.count()) == (6, 0)
    again = fields(page)
    assert again["confirmed"] != outdated["confirmed"]
    assert (client.post(URL, again).status_code, Quota.objects.get().guaranteed) == (302, 4)


def test_invalid_file_is_rejected_with_its_errors_by_line(client: Client) -> None:
    for text, sentence in (
        (LESS.replace("4 cards", "40 cards"), "Line 3, departments.vision.quotas.a100.guaranteed: The guarantees"),
        ("a: [", "This is not valid YAML: line 1"), ("", "Choose a file, or enter its text."),
    ):  # fmt: skip
        page: Any = client.post(URL, {"text": text})
        assert page.status_code == 422
        assert sentence in page.content.decode()
    page = client.post(URL, {"file": SimpleUploadedFile("gpu.yaml", b"\xff\xfe")})
    assert (page.status_code, "not UTF-8" in page.content.decode()) == (422, True)


def test_applying_the_download_changes_nothing(client: Client) -> None:
    answer: Any = client.get(URL + "export/")
    assert answer["Content-Disposition"] == 'attachment; filename="gpu-quota-portal.yaml"'
    page: Any = client.post(URL, {"text": answer.content.decode()})
    assert "the file matches the current settings" in page.content.decode()


def test_only_operators_can_open_the_configuration_page(client: Client) -> None:
    client.force_login(
        make.member(Department.objects.get(), "owner"), backend="django.contrib.auth.backends.ModelBackend"
    )
    assert [client.get(URL).status_code, client.get(URL + "export/").status_code, client.post(URL).status_code] == [
        404
    ] * 3
