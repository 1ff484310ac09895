"""The contract of workloads/runtime/files.py, tested with every driver whose working directories outlive their runs."""

from __future__ import annotations

import hashlib
import io
import os
import random
import secrets
import tarfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clusters.beds import Bed, PlainBed, ended, eventually, find_run, in_phase, log
from tests.clusters.realcluster import Admin
from workloads.files.names import display_name
from workloads.kubernetes.manifests import files as helper
from workloads.runtime.base import Phase, RunSpec, Unreachable, VolumeRef, volume_of
from workloads.runtime.files import FileFailure, Files, Listing, NotYet, OpenFile
from workloads.runtime.volume_program import bytes_of, text_of

T = TypeVar("T")


def files_of(bed: Bed, spec: RunSpec) -> Files:
    files = bed.driver.files(volume_of(spec))
    assert files is not None
    return files


def when_open(call: Callable[[], T], within: float = 60) -> T:
    """Retries the call until the directory is open, as the portal does."""
    until = time.monotonic() + within
    while True:
        try:
            return call()
        except NotYet:
            assert time.monotonic() < until, "the directory was not opened in time"
            time.sleep(0.1)


def names(files: Files, path: str = "") -> list[str]:
    found = when_open(lambda: files.get(path))
    assert isinstance(found, Listing)
    return [entry.name for entry in found.entries]


def content(files: Files, path: str) -> bytes:
    found = when_open(lambda: files.get(path))
    assert isinstance(found, OpenFile)
    data = b"".join(found.chunks)
    assert len(data) == found.size
    return data


def failure(call: Callable[[], Any]) -> str:
    with pytest.raises(FileFailure) as failed:
        when_open(call)
    return failed.value.code


COPY_FILES = (
    "import pathlib; print(pathlib.Path('in/data.txt').read_text(), end=''); "
    "pathlib.Path('out.bin').write_bytes(bytes(3))"
)


class TestFiles:
    def test_files_can_be_written_before_and_read_during_and_after_the_run(self, executing_bed: Bed) -> None:
        spec = executing_bed.spec("hello", command=(executing_bed.python, "-c", COPY_FILES))
        files = files_of(executing_bed, spec)
        assert names(files) == []
        files.put("in/data.txt", [b"Gr\xc3\xbc", b"\xc3\x9fe\n"])
        executing_bed.driver.ensure(spec)
        assert ended(executing_bed.driver, spec.ref).phase is Phase.SUCCEEDED
        assert log(executing_bed.driver, spec.ref) == "Grüße\n"
        assert names(files) == ["in", "out.bin"]
        assert names(files, "in") == ["data.txt"]
        assert content(files, "out.bin") == bytes(3)
        executing_bed.driver.remove(spec.ref)
        eventually(lambda: find_run(executing_bed.driver, spec.ref) is None)
        assert content(files, "in/data.txt") == "Grüße\n".encode()
        files.remove("in")
        assert names(files) == ["out.bin"]

    def test_files_are_exchanged_with_a_running_program(self, executing_bed: Bed) -> None:
        program = (
            "import pathlib, time\np = pathlib.Path('sent')\npathlib.Path('up').touch()\n"
            "while not p.exists(): time.sleep(0.05)\nprint(p.read_text())"
        )
        spec = executing_bed.spec("hello", command=(executing_bed.python, "-c", program))
        executing_bed.driver.ensure(spec)
        in_phase(executing_bed.driver, spec.ref, Phase.RUNNING)
        files = files_of(executing_bed, spec)
        eventually(lambda: names(files) == ["up"])
        files.put("sent", [b"hello"])
        assert ended(executing_bed.driver, spec.ref).phase is Phase.SUCCEEDED
        assert log(executing_bed.driver, spec.ref) == "hello\n"

    def test_large_files_are_streamed(self, executing_bed: Bed) -> None:
        files = files_of(executing_bed, executing_bed.spec("hello"))
        names(files)
        piece = random.Random(5).randbytes(1 << 20)
        sent = hashlib.sha256(piece * 64).hexdigest()
        tracemalloc.start()
        files.put("big", (piece for _ in range(64)))
        found = files.get("big")
        assert isinstance(found, OpenFile)
        received = hashlib.sha256()
        for chunk in found.chunks:
            received.update(chunk)
        _now, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (found.size, received.hexdigest()) == (64 << 20, sent)
        assert most < 8 << 20

    def test_interrupted_upload_leaves_the_old_file_unchanged(self, executing_bed: Bed) -> None:
        files = files_of(executing_bed, executing_bed.spec("hello"))
        names(files)
        files.put("kept", [b"old"])

        def broken_upload() -> Iterator[bytes]:
            yield b"new"
            raise RuntimeError("the sender disconnected")

        with pytest.raises(RuntimeError):
            files.put("kept", broken_upload())
        eventually(lambda: names(files) == ["kept"])
        assert content(files, "kept") == b"old"

    def test_files_outside_the_directory_cannot_be_reached_by_path_or_link(self, executing_bed: Bed) -> None:
        program = (
            "import os; os.symlink('/etc/passwd', 'file'); os.symlink('/etc', 'folder'); os.symlink('in', 'inner')\n"
            "os.mkdir('in'); open('in/a', 'w').write('a')"
        )
        spec = executing_bed.spec("hello", command=(executing_bed.python, "-c", program))
        executing_bed.driver.ensure(spec)
        ended(executing_bed.driver, spec.ref)
        files = files_of(executing_bed, spec)
        assert names(files) == ["in", "file", "folder", "inner"]
        for path in ("../x", "in/../../x", "file", "folder/passwd", "folder"):
            assert failure(lambda path=path: files.get(path)) == "outside", path
            assert failure(lambda path=path: files.put(path, [b"x"])) == "outside", path
        assert failure(lambda: files.remove("folder/passwd")) == "outside"
        assert failure(lambda: files.get("a\0b")) == "not_a_path"
        assert content(files, "inner/a") == b"a"
        files.remove("folder")
        assert names(files) == ["in", "file", "inner"]

    def test_impossible_file_operations_give_their_reason(self, executing_bed: Bed) -> None:
        files = files_of(executing_bed, executing_bed.spec("hello"))
        names(files)
        files.put("a/b", [b"1"])
        assert failure(lambda: files.get("c")) == "no_such_file"
        assert failure(lambda: files.remove("c")) == "no_such_file"
        assert failure(lambda: files.put("a", [b"1"])) == "is_directory"
        assert failure(lambda: files.put("a/b/c", [b"1"] * 10)) == "part_is_file"
        assert failure(lambda: files.remove("")) == "not_a_path"
        assert content(files, "a/b") == b"1"

    def test_files_are_deleted_with_their_directory(self, executing_bed: Bed) -> None:
        spec = executing_bed.spec("hello")
        files = files_of(executing_bed, spec)
        names(files)
        files.put("a", [b"1"])
        executing_bed.driver.discard(volume_of(spec))

        def empty() -> bool:
            try:
                return names(files_of(executing_bed, spec)) == []
            except Unreachable:  # still being deleted
                return False

        eventually(empty)


def helper_of(admin: Admin, volume: VolumeRef) -> Any:
    return admin.call("GET", f"/api/v1/namespaces/{volume.namespace}/pods/{helper.name(volume)}")


@pytest.mark.cluster
class TestFilesPod:
    def test_pod_has_no_account_no_gpu_no_finalizer_and_a_deadline(
        self, kubernetes_bed: PlainBed, admin: Admin
    ) -> None:
        spec = kubernetes_bed.spec("hello")
        names(files_of(kubernetes_bed, spec))
        pod = helper_of(admin, volume_of(spec))
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert not any(key.startswith("nvidia.com/") for key in pod["spec"]["containers"][0]["resources"]["limits"])
        assert "finalizers" not in pod["metadata"]
        assert pod["spec"]["activeDeadlineSeconds"] == helper.DEADLINE
        assert kubernetes_bed.driver.observe() == ()

    def test_pod_is_created_once_for_concurrent_readers(self, kubernetes_bed: PlainBed) -> None:
        spec, found = kubernetes_bed.spec("hello"), []
        threads = [
            threading.Thread(target=lambda: found.append(names(files_of(kubernetes_bed, spec)))) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert found == [[]] * 6

    def test_ended_pod_is_replaced(self, kubernetes_bed: PlainBed, admin: Admin) -> None:
        spec = kubernetes_bed.spec("hello")
        files = files_of(kubernetes_bed, spec)
        names(files)
        files.put("a", [b"1"])
        first = helper_of(admin, volume_of(spec))
        path = f"/api/v1/namespaces/{spec.ref.namespace}/pods/{helper.name(volume_of(spec))}"
        admin.call("PATCH", path, {"spec": {"activeDeadlineSeconds": 1}}, "application/merge-patch+json")
        eventually(lambda: helper_of(admin, volume_of(spec))["status"]["phase"] == "Failed")
        assert content(files, "a") == b"1"
        assert helper_of(admin, volume_of(spec))["metadata"]["uid"] != first["metadata"]["uid"]

    def test_pod_is_moved_for_a_run_on_another_node(self, kubernetes_bed: PlainBed, admin: Admin) -> None:
        spec = kubernetes_bed.spec("hello")
        names(files_of(kubernetes_bed, spec))
        elsewhere = replace(spec.placement[0], node="another-node")
        kubernetes_bed.driver.ensure(replace(spec, placement=(elsewhere,)))
        eventually(lambda: helper_of(admin, volume_of(spec)).get("code") == 404)
        with pytest.raises(NotYet):  # its next pod follows the run to its node
            files_of(kubernetes_bed, spec).get("")
        pod = helper_of(admin, volume_of(spec))
        assert "another-node" in str(pod["spec"]["affinity"])

    def test_missing_image_is_reported(self, kubernetes_bed: PlainBed) -> None:
        driver: Any = kubernetes_bed.driver
        driver.options = replace(driver.options, files_image="test.local/missing:1")
        files = files_of(kubernetes_bed, kubernetes_bed.spec("hello"))
        with pytest.raises(Unreachable, match=r"test\.local/missing:1"):
            when_open(lambda: files.get(""))


@pytest.mark.cluster
def test_foreign_pod_of_the_same_name_is_left_alone(kubernetes_bed: PlainBed, admin: Admin) -> None:
    container = {"name": "c", "image": "test.local/python:3"}
    pods = "/api/v1/namespaces/default/pods"
    theirs = replace(volume_of(kubernetes_bed.spec("hello")), namespace="default", name=f"x{secrets.token_hex(4)}")
    body = {"metadata": {"name": helper.name(theirs)}, "spec": {"containers": [container]}}
    admin.call("POST", pods, body)
    try:
        files = kubernetes_bed.driver.files(theirs)
        assert files is not None
        with pytest.raises(Exception, match="not the portal's"):
            files.get("")
        kubernetes_bed.driver.discard(theirs)
        assert "deletionTimestamp" not in admin.call("GET", f"{pods}/{helper.name(theirs)}")["metadata"]
    finally:
        admin.call("DELETE", f"{pods}/{helper.name(theirs)}?gracePeriodSeconds=0")


def listing(files: Files, path: str = "", after: str = "") -> Listing:
    found = when_open(lambda: files.get(path, after))
    assert isinstance(found, Listing)
    return found


ODD = (
    b"\xd6\xd0\xce\xc4.txt", b"caf\xe9", b"a\nb", b" lead", b"tail ", b"%C4%80", "\uf7d6".encode(), b"\xef\xbf",
    b"x" * 255, ("é" * 127).encode(), b'"<b>&amp;', b"back\\slash", "‮gpj.exe".encode(), b"-rf", b"\x1b[31m", b"~", b"#?",
)  # fmt: skip
CREATES_ODD_FILES = f"""
import os
os.mkdir(b"d\\xe9"); os.chdir(b"d\\xe9")
for name in {ODD!r}: open(name, "wb").write(name)
os.mkdir("in"); open("in/a", "w").write("a" * 1000); os.symlink("a", "in/link"); os.mkfifo("in/pipe")
os.symlink("loop", "loop"); os.symlink("..", "up")
"""


class TestOddNames:
    """File names are bytes: files with any name are listed, opened, archived and removed correctly."""

    def test_files_with_arbitrary_bytes_in_their_names_are_listed_read_and_removed(self, executing_bed: Bed) -> None:
        spec = executing_bed.spec("hello", command=(executing_bed.python, "-c", CREATES_ODD_FILES))
        executing_bed.driver.ensure(spec)
        assert ended(executing_bed.driver, spec.ref).phase is Phase.SUCCEEDED
        files = files_of(executing_bed, spec)
        [folder] = listing(files).entries
        found = {entry.name: entry for entry in listing(files, folder.path).entries}
        assert {bytes_of(name) for name in found} == {*ODD, b"in", b"loop", b"up"}
        for name, entry in found.items():
            name.encode()  # must be encodable for JSON and URLs
            if entry.size is not None and name not in ("loop", "up"):
                assert content(files, entry.path) == bytes_of(name)
        assert failure(lambda: files.get(f"{folder.path}/loop")) in ("loop", "no_such_file")
        assert listing(files, f"{folder.path}/up/{folder.path}/up").total == 1
        gbk = found[text_of(ODD[0])]
        assert display_name(gbk.name) == "中文.txt"
        files.remove(gbk.path)
        files.put(gbk.path, [b"again"])
        assert content(files, gbk.path) == b"again"
        assert {bytes_of(entry.name) for entry in listing(files, folder.path).entries} == {*ODD, b"in", b"loop", b"up"}
        files.remove(folder.path)
        assert names(files) == []

    def test_odd_names_and_links_are_archived_unchanged(self, executing_bed: Bed) -> None:
        spec = executing_bed.spec("hello", command=(executing_bed.python, "-c", CREATES_ODD_FILES))
        executing_bed.driver.ensure(spec)
        ended(executing_bed.driver, spec.ref)
        files = files_of(executing_bed, spec)
        [folder] = listing(files).entries
        packed = when_open(lambda: files.archive(folder.path))
        assert packed.name == folder.name
        with tarfile.open(fileobj=io.BytesIO(b"".join(packed.chunks)), errors="surrogateescape") as tar:
            members = {os.fsencode(member.name): member for member in tar.getmembers()}
            top = bytes_of(folder.name)
            assert set(members) == {
                top, *(top + b"/" + name for name in (*ODD, b"in", b"in/a", b"in/link", b"loop", b"up")),
                top + b"/NOT-IN-THIS-ARCHIVE.txt",
            }  # fmt: skip
            for name in ODD:
                assert tar.extractfile(members[top + b"/" + name]).read() == name  # type: ignore[union-attr]
            assert members[top + b"/in/link"].linkname == "a"
            assert members[top + b"/loop"].issym()
            assert tar.extractfile(members[top + b"/NOT-IN-THIS-ARCHIVE.txt"]).read().endswith(b"in/pipe\n")  # type: ignore[union-attr]
        assert failure(lambda: files.archive("nothing")) == "no_such_file"
        whole = b"".join(when_open(lambda: files.archive("")).chunks)
        with tarfile.open(fileobj=io.BytesIO(whole), errors="surrogateescape") as tar:
            assert tar.getnames()[0] == "files"

    def test_pipes_and_sockets_are_listed_with_their_type_and_never_opened(self, executing_bed: Bed) -> None:
        """A pipe with a writer waiting for a reader: if it were opened, the writer would continue and break."""
        program = """
import os, socket
socket.socket(socket.AF_UNIX).bind("ears")
os.mkfifo("pipe")
os.symlink("pipe", "to-pipe")
open("made", "w").close()
open("pipe", "w").write("taken")
"""
        spec = executing_bed.spec("hello", command=(executing_bed.python, "-c", program))
        executing_bed.driver.ensure(spec)
        files = files_of(executing_bed, spec)
        eventually(lambda: "made" in names(files))
        kinds = {entry.name: entry.kind for entry in listing(files).entries}
        assert kinds == {"ears": "socket", "pipe": "pipe", "to-pipe": "link", "made": "file"}
        for name in ("ears", "pipe", "to-pipe"):
            assert failure(lambda name=name: files.get(name)) == "not_regular"
        assert failure(lambda: files.get("pipe/inner")) == "no_such_file"
        assert find_run(executing_bed.driver, spec.ref).phase is Phase.RUNNING
        files.put("pipe", [b"a file now"])
        assert content(files, "pipe") == b"a file now"
        files.remove("ears")
        executing_bed.driver.stop(spec.ref, grace=0)

    def test_too_long_names_and_paths_are_refused_with_their_limit(self, executing_bed: Bed) -> None:
        files = files_of(executing_bed, executing_bed.spec("hello"))
        names(files)
        for path, code, limit in (
            ("x" * 256, "name_too_long", 255), ("字" * 86, "name_too_long", 255), ("d/" + "x" * 300, "name_too_long", 255),
            ("d/" * 2500 + "x", "path_too_long", 4095),
        ):  # fmt: skip
            for call in (lambda path=path: files.put(path, [b"1"] * 3), lambda path=path: files.get(path)):
                with pytest.raises(FileFailure) as failed:
                    when_open(call)
                assert (failed.value.code, failed.value.limit) == (code, limit), path[:20]
        files.put("字" * 85, [b"1"])
        assert content(files, "字" * 85) == b"1"

    def test_large_directory_is_listed_in_pages_without_loss_or_repetition(self, executing_bed: Bed) -> None:
        count = 200_000 if executing_bed.python == "python" else 20_000
        program = (
            f"import os\nos.mkdir('many'); os.chdir('many')\nfor i in range({count}): open(f'{{i:x}}', 'w').close()\n"
            "for i in range(1500): os.mkdir(f'dir-{i}')"
        )
        spec = executing_bed.spec("hello", command=(executing_bed.python, "-c", program), cpu_milli=1000)
        executing_bed.driver.ensure(spec)
        ended(executing_bed.driver, spec.ref)
        files, after, pages = files_of(executing_bed, spec), "", 0
        seen_names: list[str] = []
        while True:
            page = listing(files, "many", after)
            assert page.total == count + 1500
            seen_names += [entry.name for entry in page.entries]
            after, pages = page.next, pages + 1
            if not after or pages == 25:
                break
        assert len(set(seen_names)) == len(seen_names) == min(count + 1500, 25_000)
        assert seen_names[:1500] == sorted(f"dir-{i}" for i in range(1500))
        assert seen_names[1500:] == sorted(f"{i:x}" for i in range(count))[: len(seen_names) - 1500]


@given(st.binary(max_size=30))
def test_every_name_has_a_reversible_text_form(name: bytes) -> None:
    name = name.replace(b"\0", b"")
    text = text_of(name)
    assert bytes_of(text) == name
    text.encode()


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_text_form_of_a_utf_8_name_is_the_name_itself_without_reserved_characters(text: str) -> None:
    if not any("\uf780" <= char <= "\uf7ff" for char in text):
        assert text_of(text.encode()) == text
    assert bytes_of(text_of(text.encode())) == text.encode()
