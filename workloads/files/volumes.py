"""A workload's working directory for pages and API, on any cluster.

The driver does the operations (workloads/runtime/files.py); here its failures become messages for people, and a request
waits a little for a directory that is still being opened.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from portal.errors import N_, Invalid, Problem
from portal.text.plain_errors import plain_error
from quotas.models import Node
from workloads.clusters.drivers import ClusterAway, driver_for
from workloads.clusters.run_spec import namespace_of
from workloads.files.names import display_name
from workloads.models import Kind, Workload
from workloads.runtime.base import ClusterError, VolumeRef
from workloads.runtime.files import Archive, FileFailure, Files, Listing, NotYet, OpenFile

__all__ = ["archive", "get", "listing", "read", "remove", "store"]
T = TypeVar("T")
PATIENCE = 15.0  # s that a request waits for the directory to be opened; less for a page that retries
PAUSE = 0.25
NODES = 50  # enough to choose where the disk should be


class NoFiles(Problem):
    status = 409
    code = "no_files"
    message = N_("On this cluster, working directories are not kept after the end of the workload.")


class SubmittedElsewhere(NoFiles):
    message = N_("It was not submitted through the portal, so it has no working directory here.")


class NoSuchFile(Problem):
    status = 404
    code = "no_such_file"
    message = N_("There is no file %(path)s.")


class NotOpenYet(Problem):
    status = 503
    code = "files_not_yet"
    message = N_("The working directory is being opened. Try again in a moment.")
    retry_after = 2


class NoSpace(Problem):
    status = 422
    code = "no_space"
    message = N_("The disk of the working directory is full: %(free)s MiB are left. Delete files that are not needed.")


class Unreadable(Problem):
    status = 422
    code = "unreadable"
    message = N_("%(path)s cannot be read or changed: access is denied by its permissions.")


REASONS = {
    "not_a_path": N_("This is not a valid path."),
    "outside": N_("%(path)s is outside the working directory."),
    "is_directory": N_("%(path)s is a directory."),
    "not_regular": N_("%(path)s is a named pipe, a socket or a device, not a regular file: it cannot be downloaded."),
    "part_is_file": N_("Part of the path %(path)s is a file."),
    "name_too_long": N_("%(path)s: a name can have at most %(limit)s bytes; characters outside ASCII count as 2 to 4."),
    "path_too_long": N_("%(path)s: a path can have at most %(limit)s bytes."),
    "loop": N_("%(path)s is a link to itself."),
    "refused": N_("The disk rejected %(path)s: %(why)s."),
}


def ref_of(workload: Workload) -> VolumeRef:
    """The reference to the working directory. `workload`: with department, author and the pool's cluster; may be unsaved."""
    unrestricted = workload.settings.ipc_lock
    nodes = Node.objects.filter(cards__pool=workload.pool_id, present=True).values_list("name", flat=True)
    return VolumeRef(
        name=workload.volume,
        namespace=namespace_of(workload.pool.group.cluster, workload.department.slug, unrestricted=unrestricted),
        workload_id=workload.public_id,
        department=workload.department.slug,
        user=workload.author.username if workload.author else "",
        nodes=tuple(nodes.distinct().order_by("name")[:NODES]),
        unrestricted=unrestricted,
    )


def get(workload: Workload, path: str, after: str = "", *, patience: float = PATIENCE) -> Listing | OpenFile:
    """A directory's entries, or a file. Raises every Problem of this module, ClusterAway, Invalid."""
    return _asked(workload, lambda files: files.get(path, after), patience)


def archive(workload: Workload, path: str) -> Archive | OpenFile:
    """A directory as a tar; a file as it is. Raises what `get` raises."""
    content = get(workload, path)
    return _asked(workload, lambda files: files.archive(path), PATIENCE) if isinstance(content, Listing) else content


def listing(workload: Workload, path: str = "", after: str = "", *, patience: float = PATIENCE) -> Listing:
    content = get(workload, path, after, patience=patience)
    if isinstance(content, OpenFile):
        content.close()
        raise NoSuchFile(path=path)
    return content


def read(workload: Workload, path: str) -> OpenFile:
    content = get(workload, path)
    if isinstance(content, Listing):
        raise NoSuchFile(path=path)
    return content


def store(workload: Workload, path: str, chunks: Iterable[bytes]) -> None:
    """Write a file completely or not at all."""
    _asked(workload, lambda files: files.put(path, chunks), PATIENCE)


def remove(workload: Workload, path: str) -> None:
    """Delete a file, a link or a whole directory."""
    _asked(workload, lambda files: files.remove(path), PATIENCE)


def discard(workload: Workload) -> None:
    """Delete the whole working directory. Raises ClusterError."""
    driver_for(workload.pool.group.cluster).discard(ref_of(workload))


def _asked(workload: Workload, call: Callable[[Files], T], patience: float) -> T:
    if workload.files_removed_at is not None:
        raise NoSuchFile(path="/")
    if workload.kind == Kind.EXTERNAL:
        raise SubmittedElsewhere
    until = time.monotonic() + patience
    try:
        files = driver_for(workload.pool.group.cluster).files(ref_of(workload))
        if files is None:
            raise NoFiles
        while True:
            try:
                return call(files)
            except NotYet:
                if time.monotonic() >= until:
                    raise NotOpenYet from None
                time.sleep(PAUSE)
    except ClusterError as error:
        raise ClusterAway(why=plain_error(str(error))[:200]) from error
    except FileFailure as failure:
        raise problem_of(failure) from None


def problem_of(failure: FileFailure) -> Problem:
    path = display_name(failure.path)
    if len(path) > 200:
        path = f"{path[:100]}…{path[-50:]}"
    match failure.code:
        case "no_such_file":
            return NoSuchFile(path=path)
        case "no_space":
            return NoSpace(free=failure.free >> 20)
        case "denied":
            return Unreadable(path=path)
        case code:
            return Invalid(REASONS[code], field="path", code=code, path=path, limit=failure.limit, why=failure.why)
