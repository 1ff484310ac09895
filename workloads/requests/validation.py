"""Validates a request: reports all errors at once, each with its field."""

from __future__ import annotations

import re
from typing import Any

from portal import names
from portal.errors import N_, Invalid
from portal.models import Department
from portal.prepared import Prepared
from quotas.amounts import check_not_little
from workloads import sharing
from workloads.models import ASKED_HERE, Image, Kind
from workloads.requests import kinds
from workloads.requests.request import LONGEST, WorkloadRequest, settings_of
from workloads.sharing import SYSTEMS

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAY_NOT_LOCK = N_("%(name)s may not lock memory. An operator can allow it on the department's page.")
TEAMS = Prepared(lambda slug: Department.objects.filter(parent__slug=slug)[:1])
NO_NAME = N_("“%(name)s” is not a valid variable name. Use Latin letters, digits and _, and begin with a letter or _.")
NOT_A_TEXT = N_("%(name)s contains a NUL or an incomplete character, which cannot be passed to a process.")
NO_WORD = N_("The command contains a NUL or an incomplete character, which cannot be passed to a process.")
WITH_COMMAND = {Kind.JOB, Kind.DISTRIBUTED}  # kinds that need a command; images of other kinds have their own


class InvalidRequest(Invalid):
    """All `errors` of a request. The exception's own message is that of the first one."""

    def __init__(self, errors: list[Invalid]) -> None:
        first = errors[0]
        super().__init__(first.message, code=first.code, field=first.field, **first.numbers)
        self.errors = errors


def check(request: WorkloadRequest, department: Department, *, highest_priority: int) -> None:
    """Raises InvalidRequest with all errors that do not depend on the load."""
    errors = [
        *_name_and_image(request),
        *_amounts(request),
        *_sharing(request),
        *_environment(request),
        *_size(request),
        *_times(request),
        *kinds.faults(request),
    ]
    if request.priority > highest_priority:
        errors.append(
            Invalid(
                N_("Priorities above %(most)s are reserved for operators."), field="priority", most=highest_priority
            )
        )
    if request.setup.ipc_lock and not department.unrestricted:
        errors.append(Invalid(MAY_NOT_LOCK, code="not_allowed", field="ipc_lock", name=department.name))
    if TEAMS.first(department.slug):
        errors.append(
            Invalid(
                N_("Workloads must belong to one of the teams of %(name)s."), field="department", name=department.name
            )
        )
    if errors:
        raise InvalidRequest(errors)


def _name_and_image(request: WorkloadRequest) -> list[Invalid]:
    errors = []
    if not names.tidy(request.name) or len(request.name) > 100:
        errors.append(Invalid(N_("Enter a name of 1 to 100 characters."), field="name"))
    try:
        names.checked(request.name)
    except Invalid as error:
        errors.append(error)
    if request.kind not in ASKED_HERE:
        errors.append(Invalid(N_("There is no kind %(kind)s."), field="kind", kind=request.kind))
    if not request.image.active or not request.image.serves(request.kind):
        fitting = [image.name for image in Image.objects.filter(active=True) if image.serves(request.kind)]
        text = N_("The image %(name)s is not available for this type. Available: %(fitting)s.")
        if not fitting:
            text = N_("The image %(name)s is not available for this type, and there is no other. Ask an operator.")
        errors.append(Invalid(text, field="image", name=request.image.name, fitting=", ".join(fitting)))
    if request.kind in WITH_COMMAND and not (request.command and request.command[0].strip()):
        errors.append(Invalid(N_("Enter the command that the job runs."), field="command"))
    return errors


def _amounts(request: WorkloadRequest) -> list[Invalid]:
    return [
        Invalid(N_("This must be at least %(least)s."), field=name, least=least)
        for name, least in (("cpu_milli", 100), ("memory_mib", 64))
        if getattr(request, name) < least
    ]


def _sharing(request: WorkloadRequest) -> list[Invalid]:
    """Errors of the amount, profile and compute share on the pool's sharing system."""
    pool = request.pool
    system = SYSTEMS.get(pool.sharing)
    if system is None:
        return [Invalid(N_("The sharing system of %(pool)s is not supported."), field="pool", pool=pool.name)]
    errors = []
    try:
        check_not_little(request.units_per_pod, pool, "units_per_pod")
    except Invalid as error:
        errors.append(error)
    if request.profile and not pool.mig:
        errors.append(
            Invalid(N_("%(pool)s has no MIG profiles."), code="no_such_profile", field="profile", pool=pool.name)
        )
    asked = sharing.Request(
        pool.product,
        request.on_card if pool.mig else request.units_per_pod,
        request.pods,
        request.profile or None,
        request.env | request.secret_env,
        cores=request.cores_per_pod,
        table=pool.mig,
        units_per_card=pool.units_per_card,
        cores_per_card=pool.card_cores or 100,
        extra=request.setup.extra,
        peers=False,  # kinds.faults reports it
    )
    for problem in system.validate(asked, settings_of(pool.group.cluster)):
        hidden = problem.field == "env" and problem.params["name"] in request.secret_env
        field_name = "secret_env" if hidden else problem.field
        errors.append(Invalid(problem.message, code=problem.code, field=field_name, **problem.params))
    return errors


def _environment(request: WorkloadRequest) -> list[Invalid]:
    errors = []
    for field_name in ("env", "secret_env"):
        for name in getattr(request, field_name):
            if not ENV_NAME.fullmatch(name):
                errors.append(Invalid(NO_NAME, field=field_name, name=names.printable(name[:60])))
            elif name.startswith("PORTAL_"):
                errors.append(
                    Invalid(
                        N_("%(name)s is set by the portal. Choose a name that does not begin with PORTAL_."),
                        field=field_name,
                        name=name,
                    )
                )
            elif not is_passable(getattr(request, field_name)[name]):
                errors.append(Invalid(NOT_A_TEXT, field=field_name, name=name))
    if any(not is_passable(word) for word in request.command):
        errors.append(Invalid(NO_WORD, field="command"))
    return errors


def is_passable(text: str) -> bool:
    """Whether the text can be passed to a process: it has no NUL and no half of a surrogate pair."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


TOO_LONG_A_WORD = N_(
    "An argument or variable has %(size)s bytes; Linux accepts at most %(most)s. Put long content into a file in the "
    "working directory."
)
TOO_LONG = N_(
    "Command and variables have %(size)s bytes in total, including the 9 that Linux adds to each; the maximum is "
    "%(most)s. Put long content into a file in the working directory."
)
LARGEST_TEXT = 256 * 1024
LONGEST_WORD = 128 * 1024 - 1
BESIDE_A_WORD = 9  # the NUL at its end and its pointer, which Linux counts too; so empty words are not free
"""In bytes: command and variables together; one word or NAME=value (Linux accepts no longer one); the overhead of each."""


def _size(request: WorkloadRequest) -> list[Invalid]:
    variables = {**request.env, **request.secret_env}
    sizes = {
        "command": [len(word.encode(errors="replace")) + BESIDE_A_WORD for word in request.command],
        "env": [len(f"{name}={value}".encode(errors="replace")) + BESIDE_A_WORD for name, value in variables.items()],
    }
    too_long = [
        Invalid(TOO_LONG_A_WORD, code="too_long", field=field, size=max(sizes_of_field) - BESIDE_A_WORD, most=LONGEST_WORD)
        for field, sizes_of_field in sizes.items()
        if sizes_of_field and max(sizes_of_field) > LONGEST_WORD + BESIDE_A_WORD
    ]  # fmt: skip
    total = sum(map(sum, sizes.values()))
    if too_long or total <= LARGEST_TEXT:
        return too_long
    largest = max(sizes, key=lambda field: sum(sizes[field]))
    return [
        Invalid(TOO_LONG, code="too_long", field=largest, size=total, most=LARGEST_TEXT)
    ]  # fmt: skip


def _times(request: WorkloadRequest) -> list[Invalid]:
    errors = []
    for name in ("max_runtime", "max_wait"):
        value: Any = getattr(request, name)
        if value is not None and not 1 <= value <= LONGEST:
            errors.append(Invalid(N_("Enter 1 to %(most)s seconds, or leave it empty."), field=name, most=LONGEST))
    return errors
