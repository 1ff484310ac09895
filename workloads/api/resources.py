"""`workloads/` and `departments/{d}/workloads/`: submit, list, read, wait for a change, stop, rerun, extend."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from django.db.models import Count, Q, QuerySet
from django.http import HttpResponseBase
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from portal.access import Actor, NotVisible, Right, department_for, visible
from portal.accounts.bearer_tokens import bearer_of
from portal.api.base import ApiView, Strict
from portal.api.idempotency import idempotent
from portal.api.schema import DEPARTMENT, DRY_RUN, IDEMPOTENCY_KEY, page_of
from portal.errors import N_, Invalid
from portal.models import Department
from portal.server import streams
from workloads import actions
from workloads.api.shapes import WorkloadIn, WorkloadOut, WorkloadRow, reader_for, request_from, workload_json
from workloads.api.verdicts import VerdictOut, before_submitting
from workloads.idle import spells
from workloads.lifecycle import FINAL
from workloads.models import TEXTS, Kind, State, Workload
from workloads.requests.validation import InvalidRequest
from workloads.runtime.setups import NAMES
from workloads.status.attempts import with_attempts

FILTERS = [
    OpenApiParameter("mine", bool, description="Only your own workloads."),
    OpenApiParameter(
        "state",
        str,
        description=f"Only workloads in these states, separated by commas: {', '.join(State.values)};"
        " or `live` (not ended), `final` (ended).",
    ),
    OpenApiParameter("pool", str, description="Only workloads of these pools, by `id`, separated by commas."),
    OpenApiParameter(
        "kind", str, description=f"Only workloads of these kinds, separated by commas: {', '.join(Kind.values)}."
    ),
    OpenApiParameter("author", str, description="Only workloads of this person or service account, by user name."),
    OpenApiParameter("q", str, description="Only workloads with this text in their name, in upper or lower case."),
    OpenApiParameter(
        "facets", bool, description="Also count the workloads for each state, pool, kind and author, as `facets`."
    ),
]
READ_ALONG = ("image", "preset", "rerun_of")
FACETS = {"state": "state", "pool": "pool__slug", "kind": "kind", "author": "author__username"}
API_NAMES = {"cpu_milli": "cpu", "secret_env": "env"} | {
    name: f"setup.{name}" for name in NAMES
}  # of the request's fields


def workload_for(actor: Actor, public_id: str) -> Workload:
    """The workload with its attempts. Raises NotVisible."""
    workload = with_attempts(visible(actor, Workload.objects.all()), *READ_ALONG).filter(public_id=public_id).first()
    if workload is None:
        raise NotVisible
    return workload


def conditions(view: ApiView) -> dict[str, Q]:
    """Filter parameter → its condition."""
    by_parameter: dict[str, Q] = {}
    for name, lookup in (("pool", "pool__slug__in"), ("kind", "kind__in")):
        if words := [word for word in view.text(name).split(",") if word]:
            by_parameter[name] = Q(**{lookup: words})
    if words := [word for word in view.text("state").split(",") if word]:
        if unknown := [word for word in words if word not in {*State.values, "live", "final"}]:
            raise Invalid(N_("There is no state %(state)s."), field="state", state=unknown[0])
        final = Q(state__in=FINAL)
        by_parameter["state"] = Q(state__in=words) | (final if "final" in words else Q(pk=None))
        if "live" in words:
            by_parameter["state"] |= ~final
    if view.text("author"):
        by_parameter["author"] = Q(author__username=view.text("author"))
    if view.flag("mine"):
        by_parameter["mine"] = Q(author=view.user)
    if view.text("q"):
        by_parameter["q"] = Q(name__icontains=view.text("q"))
    return by_parameter


def facets(rows: QuerySet[Workload], by_parameter: dict[str, Q]) -> dict[str, dict[str, int]]:
    """Facet → value → number of rows if that value were chosen, with all other filters unchanged."""
    counts: dict[str, dict[str, int]] = {}
    for name, column in FACETS.items():
        others = [condition for other, condition in by_parameter.items() if other != name]
        groups = rows.filter(*others).order_by().values_list(column).annotate(count=Count("pk"))
        counts[name] = {str(value): count for value, count in groups if value is not None}
    return counts


class WorkloadList(ApiView):
    ordering = "-public_id"

    def listing(self, rows: QuerySet[Workload]) -> Response:
        by_parameter = conditions(self)
        more = {"facets": facets(rows, by_parameter)} if self.flag("facets") else {}
        page = with_attempts(rows.filter(*by_parameter.values()).defer(*TEXTS), *READ_ALONG)
        return self.page(page, WorkloadRow, lambda workloads: {"reader": reader_for(self.actor, workloads)}, **more)


FACETS_OUT = serializers.DictField(child=serializers.DictField(child=serializers.IntegerField()), required=False)
WORKLOAD_PAGE = page_of(WorkloadRow, facets=FACETS_OUT)


class Workloads(WorkloadList):
    """The workloads of all departments that you may see."""

    @extend_schema(operation_id="workloads_list", parameters=[DEPARTMENT, *FILTERS], responses=WORKLOAD_PAGE)
    def get(self, request: Request) -> Response:
        rows = visible(self.actor, Workload.objects.all())
        if self.text("department"):
            rows = rows.filter(department=department_for(self.actor, self.text("department")))
        return self.listing(rows)


class DepartmentWorkloads(WorkloadList):
    dry_runs = frozenset({"post"})

    @extend_schema(operation_id="department_workloads_list", parameters=FILTERS, responses=WORKLOAD_PAGE)
    def get(self, request: Request, department: str) -> Response:
        return self.listing(Workload.objects.filter(department=department_for(self.actor, department)))

    @extend_schema(
        operation_id="workloads_submit",
        request=WorkloadIn,
        responses={202: WorkloadOut, 200: VerdictOut},
        parameters=[DRY_RUN, IDEMPOTENCY_KEY],
    )
    @idempotent
    def post(self, request: Request, department: str) -> Response:
        where: Department = department_for(self.actor, department, Right.SUBMIT)
        asked = request_from(self.read(WorkloadIn))
        try:
            if self.flag("dry_run"):
                return Response(before_submitting(self.actor, where, asked))
            return accepted(self, partial(actions.submit, actor=self.actor, department=where, request=asked))
        except Invalid as error:
            for fault in error.errors if isinstance(error, InvalidRequest) else (error,):
                fault.field = API_NAMES.get(fault.field, fault.field)
            raise


def accepted(view: ApiView, submit: Any) -> Response:
    """202 with the workload. The response is stored for the Idempotency-Key in the transaction that stores the workload."""
    answer: dict[str, Any] = {}

    def store_answer(workload: Workload) -> None:
        answer["data"] = workload_json(view.actor, workload)
        answer["headers"] = {"Location": reverse("api:workload", args=[workload.public_id])}
        view.keep(202, answer["data"], answer["headers"])

    submit(also=store_answer)
    return Response(answer["data"], status=202, headers=answer["headers"])


class WorkloadChange(Strict):
    shared = serializers.BooleanField(help_text="Others of the department may open this notebook.")


class WorkloadView(ApiView):
    @extend_schema(
        operation_id="workloads_read",
        responses=WorkloadOut,
        parameters=[
            OpenApiParameter(
                "wait", int, description="Seconds to wait for a change before answering, at most 55; by default 0."
            ),
            OpenApiParameter(
                "version",
                int,
                description="With `wait`: answer as soon as the version differs from this one; by default the present one.",
            ),
            OpenApiParameter(
                "until",
                str,
                enum=["finished"],
                description="With `wait`: answer only when it has ended.",
            ),
        ],
    )
    def get(self, request: Request, workload: str) -> HttpResponseBase:
        row = workload_for(self.actor, workload)
        wait = min(self.number("wait", 0) or 0, streams.LONGEST_WAIT)
        until = self.text("until")
        if until not in {"", "finished"}:
            raise Invalid(N_("until can only be “finished”."), field="until")
        seen = self.number("version", row.version)
        arrived = row.is_final if until else row.version != seen
        if not wait or arrived or row.is_final or not streams.can_hold(request):
            return Response(workload_json(self.actor, row), headers={"ETag": f'"{row.version}"'})
        check = partial(changed, row.pk, None if until else seen)
        return streams.streaming(self.later(row.public_id, check, wait), "application/json")

    async def later(self, public_id: str, check: Any, wait: int) -> AsyncIterator[bytes]:
        """The workload, as soon as `check` finds a change or after `wait` seconds."""
        await streams.until(check, wait)
        standing = streams.Standing(self.actor, checked=False)

        def now() -> dict[str, Any]:
            actor = standing.actor()  # with their present rights
            if actor is None:  # the status is sent already: the connection breaks off, and the next request gets 401
                raise NotVisible
            return workload_json(actor, workload_for(actor, public_id))

        data = await streams.look(now)
        yield JSONRenderer().render(data)

    @extend_schema(operation_id="workloads_change", request=WorkloadChange, responses=WorkloadOut)
    def patch(self, request: Request, workload: str) -> Response:
        row = workload_for(self.actor, workload)
        self.actor.require_own_or_steer(row.department, row.author)  # before the body is validated
        actions.set_shared(actor=self.actor, workload=row, shared=self.read(WorkloadChange)["shared"])
        return Response(workload_json(self.actor, workload_for(self.actor, workload)))

    @extend_schema(operation_id="workloads_stop", responses={202: WorkloadOut, 204: None})
    def delete(self, request: Request, workload: str) -> Response:
        row = workload_for(self.actor, workload)
        self.actor.require_own_or_steer(row.department, row.author)
        try:
            actions.cancel(actor=self.actor, workload=row)
        except actions.AlreadyFinished:
            return Response(status=204)
        return Response(workload_json(self.actor, workload_for(self.actor, workload)), status=202)


def changed(pk: int, seen: int | None) -> bool | None:
    """True if the version is not `seen`, or without `seen`, if the workload has ended; else None."""
    row = Workload.objects.filter(pk=pk).values_list("version", "state").first()
    if row is None:
        return True
    return (row[1] in FINAL if seen is None else row[0] != seen) or None


class Rerun(ApiView):
    without_body = frozenset({"post"})

    @extend_schema(
        operation_id="workloads_rerun", request=None, responses={202: WorkloadOut}, parameters=[IDEMPOTENCY_KEY]
    )
    @idempotent
    def post(self, request: Request, workload: str) -> Response:
        row = workload_for(self.actor, workload)
        return accepted(self, partial(actions.rerun, actor=self.actor, workload=row))


class ExtendIn(Strict):
    seconds = serializers.IntegerField(min_value=1, max_value=2**31 - 1)


class Extend(ApiView):
    @extend_schema(
        operation_id="workloads_extend", request=ExtendIn, responses=WorkloadOut, parameters=[IDEMPOTENCY_KEY]
    )
    @idempotent
    def post(self, request: Request, workload: str) -> Response:
        row = workload_for(self.actor, workload)
        self.actor.require_own_or_steer(row.department, row.author)  # before the body is validated
        values = self.read(ExtendIn)
        actions.extend(actor=self.actor, workload=row, seconds=values["seconds"])
        return Response(workload_json(self.actor, workload_for(self.actor, workload)))


class Keep(ApiView):
    without_body = frozenset({"post"})

    @extend_schema(operation_id="workloads_keep", request=None, responses=WorkloadOut, parameters=[IDEMPOTENCY_KEY])
    @idempotent
    def post(self, request: Request, workload: str) -> Response:
        """*Keep it*: puts off the stop of an idle workload, once in an idle spell. 409 if it is not to be stopped, or was kept
        already."""
        spells.keep(actor=self.actor, workload=workload_for(self.actor, workload))
        return Response(workload_json(self.actor, workload_for(self.actor, workload)))


class Leave(ApiView):
    without_body = frozenset({"post"})

    @extend_schema(operation_id="workloads_leave", request=None, responses=WorkloadOut)
    def post(self, request: Request, workload: str) -> Response:
        """“Saved, leave now”, said by a person during the notice."""
        actions.leave_now(actor=self.actor, workload=workload_for(self.actor, workload))
        return Response(workload_json(self.actor, workload_for(self.actor, workload)))


class ReadyOut(serializers.Serializer[Any]):
    workload = serializers.CharField()
    attempt = serializers.IntegerField()
    ready_at = serializers.DateTimeField()


class Ready(ApiView):
    """The container says “checkpoint written, take me”, with the token it finds in PORTAL_READY_TOKEN."""

    authentication_classes: list[Any] = []
    permission_classes = [AllowAny]
    throttle_classes: list[
        Any
    ] = []  # not throttled by address: it is shared by a whole cluster, and guesses must not use up its budget

    @extend_schema(operation_id="workloads_ready", request=None, responses={202: ReadyOut})
    def post(self, request: Request, workload: str) -> Response:
        attempt = actions.say_ready(workload_id=workload, token=bearer_of(request) or "")
        data = {"workload": workload, "attempt": attempt.number, "ready_at": attempt.ready_at or timezone.now()}
        return Response(ReadyOut(data).data, status=202)
