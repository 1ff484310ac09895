"""Files with arbitrary names in the browser and the API: they are listed, opened, archived, stored and removed correctly."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from html import unescape
from typing import Any
from urllib.parse import quote

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from tests.workloads.conftest import Bed
from tests.workloads.pages.test_workloads import as_, new
from workloads.models import Workload

pytestmark = pytest.mark.django_db(transaction=True)
ODD = (
    b"\xd6\xd0\xce\xc4.txt",
    b"caf\xe9",
    b"a\nb",
    b"50%.txt",
    b"&amp;",
    b"a\\b",
    b"x" * 255,
    b" space ",
    b"%0A",
    b"#?&=;",
)


@pytest.fixture
def job(bed: Bed) -> Workload:
    job = bed.submit(bed.alice, bed.vision, "pass")
    folder = os.fsencode(bed.folder(job))
    os.mkdir(folder + b"/d\xff")
    for name in ODD:
        with open(folder + b"/d\xff/" + name, "wb") as file:
            file.write(name)
    return job


def body(response: Any) -> bytes:
    assert response.status_code == 200, response.status_code
    return b"".join(response.streaming_content)


def test_api_lists_downloads_archives_and_removes_files_with_odd_names(bed: Bed, job: Workload) -> None:
    client = APIClient()
    client.force_login(bed.alice)
    top = f"/api/v1/workloads/{job.public_id}/files/"

    def at(path: str, query: str = "") -> str:
        return f"{top}{quote(path)}{query}"

    [folder] = client.get(top).json()["results"]
    listed = client.get(at(folder["path"])).json()
    assert (len(listed["results"]), listed["total"], listed["next"]) == (len(ODD), len(ODD), None)
    assert {body(client.get(at(each["path"]))) for each in listed["results"]} == set(ODD)
    packed = client.get(at(folder["path"], "?archive=1"))
    assert packed["Content-Type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(body(packed)), errors="surrogateescape") as tar:
        assert {os.fsencode(name) for name in tar.getnames()} == {b"d\xff", *(b"d\xff/" + name for name in ODD)}
    with tarfile.open(fileobj=io.BytesIO(body(client.get(f"{top}?archive=1"))), errors="surrogateescape") as tar:
        assert len(tar.getnames()) == len(ODD) + 2
    for each in listed["results"]:
        assert client.delete(at(each["path"])).status_code == 204
    assert client.get(at(folder["path"])).json()["results"] == []


def test_named_pipes_are_listed_with_their_type_and_cannot_be_downloaded(bed: Bed, job: Workload) -> None:
    folder = bed.folder(job)
    os.mkfifo(folder / "pipe")
    os.symlink("pipe", folder / "to-pipe")
    client = APIClient()
    client.force_login(bed.alice)
    top = f"/api/v1/workloads/{job.public_id}/files/"
    kinds = {each["name"]: each["kind"] for each in client.get(top).json()["results"]}
    assert {kinds["pipe"], kinds["to-pipe"]} == {"pipe", "link"}
    assert sorted(kinds.values()) == ["directory", "link", "pipe"]
    for address in (f"{top}pipe", f"{top}to-pipe", f"{top}pipe?archive=1"):
        response = client.get(address)
        assert (response.status_code, response.json()["code"]) == (422, "not_regular"), address
        assert "pipe is a named pipe, a socket or a device" in response.json()["detail"]
    page = as_(bed.alice).get(reverse("workloads:detail", args=["vision", job.public_id]) + "?tab=files")
    panel = page.content.decode().split('id="files-panel"')[1]
    assert "(named pipe)" in panel
    assert "download/?path=pipe" not in panel
    refused = as_(bed.alice).get(reverse("workloads:download", args=["vision", job.public_id]) + "?path=pipe")
    assert refused.status_code == 422
    assert "cannot be downloaded" in refused.content.decode()
    assert client.delete(f"{top}pipe").status_code == 204


def test_pages_of_a_large_directory_list_every_file_once(
    bed: Bed, job: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workloads.runtime.volume_program.MOST_SHOWN", 3)
    client = APIClient()
    client.force_login(bed.alice)
    address, found = f"/api/v1/workloads/{job.public_id}/files/d%EF%9F%BF", []
    while address:
        page = client.get(address).json()
        found += [each["name"] for each in page["results"]]
        address = page["next"]
    assert len(set(found)) == len(found) == len(ODD)
    browser, shown = as_(bed.alice), 0
    address = reverse("workloads:detail", args=["vision", job.public_id]) + "?tab=files&path=d%EF%9F%BF"
    while address:
        page_text = browser.get(address).content.decode()
        shown += len(re.findall(r"<time", page_text.split('id="files-panel"')[1]))
        more = re.search(r'href="(\?tab=files[^"]*after=[^"]*)"', page_text.split('id="files-panel"')[1])
        address = reverse("workloads:detail", args=["vision", job.public_id]) + unescape(more[1]) if more else ""
    assert shown == len(ODD)


def test_page_shows_downloads_and_deletes_files_with_odd_names(bed: Bed, job: Workload) -> None:
    client = as_(bed.alice)
    page = client.get(reverse("workloads:detail", args=["vision", job.public_id]) + "?tab=files&path=d%EF%9F%BF")
    text = page.content.decode()
    assert "中文.txt" in text
    assert "a\\nb" in text
    panel = text.split('id="files-panel"')[1]
    downloads = {unescape(link) for link in re.findall(r'href="([^"]*/download/\?path=[^"]+)"', panel)}
    assert {body(client.get(link)) for link in downloads if "%2F" in link} == set(ODD)
    whole = next(link for link in downloads if "%2F" not in link)
    with tarfile.open(fileobj=io.BytesIO(body(client.get(whole))), errors="surrogateescape") as tar:
        assert len(tar.getnames()) == len(ODD) + 1
    for link in re.findall(r'action="([^"]*/delete/[^"]*)"', panel):
        assert client.post(unescape(link)).status_code == 302
    assert os.listdir(bed.folder(job) / os.fsdecode(b"d\xff")) == []


def upload(client: Client, job: Workload, names: list[str], sent_names: str | None) -> Any:
    files = [SimpleUploadedFile("x", name.encode()) for name in names]
    for file, name in zip(files, names, strict=True):
        file.name = name.replace("/", "_")[:200] or "x"
    data = {"files": files} | ({} if sent_names is None else {"names": sent_names})
    return client.post(reverse("workloads:files", args=["vision", job.public_id]) + "?path=up", data, follow=True)


def test_upload_keeps_the_names_from_the_browser(bed: Bed, job: Workload) -> None:
    names = ["a&amp;b.txt", "a\\b.txt", "%22.txt", 'quote".txt', "tail ", "é" * 100 + ".bin", "a\nb"]
    upload(as_(bed.alice), job, names, json.dumps(names))
    folder = bed.folder(job) / "up"
    assert {name: (folder / name).read_text() for name in names} == {name: name for name in names}
    assert sorted(os.listdir(folder)) == sorted(names)


def test_upload_with_mismatching_or_escaping_names_is_refused(bed: Bed, job: Workload) -> None:
    for sent_names in ('["one"]', '["../x", "b"]', '["", "b"]', '[1, "b"]', "{}", "nonsense", '["..", "b"]'):
        page = upload(as_(bed.alice), job, ["a", "b"], sent_names).content.decode()
        assert "do not match" in page, sent_names
    assert not (bed.folder(job) / "up").exists()
    assert "255 bytes" in upload(as_(bed.alice), job, ["a"], json.dumps(["字" * 86])).content.decode()
    assert "1 file stored" in upload(as_(bed.alice), job, ["plain.txt"], None).content.decode()


def test_form_with_a_too_long_file_name_is_refused_and_keeps_its_fields(bed: Bed) -> None:
    """The form shows the whole request again; the files have to be chosen again."""
    form = {
        "kind": "job", "name": "kept-name", "pool": bed.pool.slug, "units_per_pod": "1", "image": bed.image.name,
        "command": "python x.py", "cpu": "1", "memory_mib": "1 GiB", "env": "KEEP=me",
        "files": SimpleUploadedFile("a", b"1"), "names": json.dumps(["x" * 256]),
    }  # fmt: skip
    response = as_(bed.alice).post(new(bed.vision), form)
    assert response.status_code == 422
    page = response.content.decode()
    assert "a name can have at most 255 bytes" in page
    assert "KEEP=me" in page
    assert "kept-name" in page
    assert not Workload.objects.exists()


def test_api_refuses_too_long_names_with_their_limit(bed: Bed, job: Workload) -> None:
    client = APIClient()
    client.force_login(bed.alice)
    top = f"/api/v1/workloads/{job.public_id}/files/"
    for name, limit in (("x" * 256, 255), ("%E5%AD%97" * 86, 255), ("d/" * 2100 + "x", 4095)):
        response = client.put(top + name, b"1", content_type="application/octet-stream")
        assert (response.status_code, response.json()["limit"]) == (422, limit)
        assert client.get(top + name).status_code == 422
    (bed.folder(job) / "loop").symlink_to("loop")
    assert client.get(top + "loop").status_code in (404, 422)
    assert client.delete(top + "loop").status_code == 204
