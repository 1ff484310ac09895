"""File previews: text, tables and images are shown; none of their content is executed, and only the shown part is read."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests import builders as make
from tests.workloads.conftest import Bed
from tests.workloads.pages.test_workloads import as_
from workloads.files import previews
from workloads.models import Workload

pytestmark = pytest.mark.django_db(transaction=True)
DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def job(bed: Bed) -> Workload:
    return bed.submit(bed.alice, bed.vision, "pass")


@pytest.fixture
def folder(bed: Bed, job: Workload) -> Path:
    return bed.folder(job)


def preview(client: Client, job: Workload, path: str) -> str:
    """The part of the page that a click on the file loads."""
    address = reverse("workloads:detail", args=[job.department.slug, job.public_id])
    headers = {"HX-Request": "true", "HX-Target": "log-panel"}
    response = client.get(address, {"tab": "files", "view": path}, headers=headers)
    assert response.status_code == 200
    text = response.content.decode()
    assert 'id="log-panel"' in text
    assert "<html" not in text
    return text


def image(client: Client, job: Workload, path: str) -> Any:
    return client.get(reverse("workloads:image-file", args=[job.department.slug, job.public_id]), {"path": path})


def test_text_is_escaped_and_only_its_beginning_is_shown(bed: Bed, job: Workload, folder: Path) -> None:
    (folder / "page.html").write_text(SCRIPT)
    (folder / "long.txt").write_text("é" * previews.TEXT_SHOWN)
    client = as_(bed.alice)
    assert "&lt;script&gt;alert(1)" in preview(client, job, "page.html")
    assert SCRIPT not in preview(client, job, "page.html")
    text = preview(client, job, "long.txt")
    assert "Only the beginning is shown." in text
    assert text.count("é") == previews.TEXT_SHOWN // 2


def test_table_shows_rows_and_columns_and_says_when_it_is_truncated(bed: Bed, job: Workload, folder: Path) -> None:
    (folder / "a.csv").write_text(f'name,loss\n"a, b",0.2\n{SCRIPT},1\n')
    (folder / "long.csv").write_text("a,b\n" + "1,2\n" * 1000)
    (folder / "t.tsv").write_text("x\ty\n1\t2\n")
    client = as_(bed.alice)
    text = preview(client, job, "a.csv")
    assert "<th>name</th><th>loss</th>" in text
    assert "<td>a, b</td><td>0.2</td>" in text
    assert SCRIPT not in text
    assert "Only the beginning" not in text
    text = preview(client, job, "long.csv")
    assert text.count("<tr>") == previews.ROWS_SHOWN
    assert "Only the beginning is shown." in text
    assert "<td>1</td><td>2</td>" in preview(client, job, "t.tsv")


def test_images_are_recognised_by_content_and_served_without_script_execution(
    bed: Bed, job: Workload, folder: Path
) -> None:
    (folder / "dot.png").write_bytes(DOT)
    (folder / "evil.png").write_text(f"<svg xmlns='http://www.w3.org/2000/svg'>{SCRIPT}</svg>")
    client = as_(bed.alice)
    assert "files/image/?path=dot.png" in preview(client, job, "dot.png")
    response = image(client, job, "dot.png")
    assert response.content == DOT
    assert response.headers["Content-Type"] == "image/png"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Content-Security-Policy"] == "sandbox; default-src 'none'"
    assert image(client, job, "evil.png").status_code == 404  # whatever its name says
    assert "<img" not in preview(client, job, "evil.png")
    assert "&lt;svg" in preview(client, job, "evil.png")


def test_binary_and_too_large_files_are_not_previewed(
    bed: Bed, job: Workload, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "weights.bin").write_bytes(bytes(range(256)) * 10)
    (folder / "empty.txt").write_bytes(b"")
    (folder / "dot.png").write_bytes(DOT)
    client = as_(bed.alice)
    assert "cannot be shown in the browser" in preview(client, job, "weights.bin")
    assert 'class="code' in preview(client, job, "empty.txt")
    monkeypatch.setattr(previews, "LARGEST_IMAGE", len(DOT) - 1)
    assert "too large to be shown" in preview(client, job, "dot.png")
    assert image(client, job, "dot.png").status_code == 404


@pytest.mark.parametrize("path", ["../secret", "no/such", "", "/etc/passwd"])
def test_files_outside_the_working_directory_are_not_shown(bed: Bed, job: Workload, folder: Path, path: str) -> None:
    (folder.parent / "secret").write_text("hush")
    client = as_(bed.alice)
    assert "hush" not in preview(client, job, path)
    assert image(client, job, path).status_code in {404, 422}


def test_users_of_other_departments_see_no_file(bed: Bed, job: Workload, folder: Path) -> None:
    (folder / "dot.png").write_bytes(DOT)
    assert image(as_(bed.bob), job, "dot.png").status_code == 404
    assert image(as_(make.user("nobody")), job, "dot.png").status_code == 404
