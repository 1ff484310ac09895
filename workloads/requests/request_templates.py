"""Request templates: personal ones, and shared ones that owners keep for the whole department."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet

from portal import audit, names
from portal.access import Actor, NotVisible, Right
from portal.errors import N_, Invalid
from portal.infra import versions
from portal.infra.locks import durable
from portal.models import Department
from workloads.models import RequestTemplate
from workloads.requests.as_api_call import body_of
from workloads.requests.request import WorkloadRequest
from workloads.requests.validation import check

MOST = 100
"""How many templates a person may have in a department, and how many the department may share."""
LONGEST = 100


class NameTaken(Invalid):
    code = "name_taken"
    message = N_("There is already a template “%(name)s”. Choose another name, or delete that one first.")


class TooMany(Invalid):
    code = "too_many_templates"
    message = N_("There are already %(most)s templates, the maximum. Delete some first.")


def templates_of(actor: Actor, department: Department) -> QuerySet[RequestTemplate]:
    """The actor's own templates in the department and the shared ones. Raises as `Actor.require(Right.SUBMIT)`."""
    actor.require(Right.SUBMIT, department)
    own = Q(person=actor.user) if actor.user else Q(pk=None)
    return RequestTemplate.objects.filter(own | Q(person=None), department=department).select_related("department")


def template_for(actor: Actor, department: Department, public_id: str) -> RequestTemplate:
    """The template with this id. Raises as `templates_of`, and NotVisible if it is not one of these."""
    row = templates_of(actor, department).filter(public_id=public_id).first()
    if row is None:
        raise NotVisible
    return row


def require_change(actor: Actor, template: RequestTemplate) -> None:
    """Raises Forbidden or ScopeMissing if the actor may not change it: only owners may change shared templates."""
    actor.require(_right(shared=template.shared), template.department)


def may_change(actor: Actor, template: RequestTemplate) -> bool:
    return actor.may(_right(shared=template.shared), template.department)


def _right(*, shared: bool) -> Right:
    return Right.STEER if shared else Right.SUBMIT


def save_template(
    *, actor: Actor, department: Department, name: str, request: WorkloadRequest, shared: bool = False
) -> RequestTemplate:
    """Saves the request as a template, without the values of its secrets. Raises Forbidden, NotVisible (a personal template
    without a user), InvalidRequest (all errors of the request), Invalid (name), NameTaken, TooMany."""
    actor.require(_right(shared=shared), department)
    if actor.user is None and not shared:
        raise NotVisible
    check(request, department, highest_priority=2**31 - 1 if actor.may(Right.OPERATE, department) else 0)
    body = body_of(request)
    env = {key: {"secret": ""} if isinstance(value, dict) else value for key, value in body.get("env", {}).items()}
    body |= {"env": env} if env else {}
    row = RequestTemplate(department=department, person=None if shared else actor.user, body=body)
    row.name = _checked(name)
    with durable():
        beside = _siblings(row)
        _refuse_taken(row, beside)
        if beside.count() >= MOST:
            raise TooMany(most=MOST)
        row.save(force_insert=True)
        audit.record(actor, "template.saved", row.name, department=department, after={"shared": shared})
    return row


def mark_of(template: RequestTemplate) -> str:
    """The version mark for the form that renames it."""
    return versions.mark({"name": template.name})


def rename_template(*, actor: Actor, template: RequestTemplate, name: str, seen: str = "") -> RequestTemplate:
    """Raises Forbidden, Conflict, Invalid (name), NameTaken, NotVisible (it was deleted)."""
    require_change(actor, template)
    name = _checked(name)
    with durable():
        beside = _siblings(template)
        before = beside.filter(pk=template.pk).values_list("name", flat=True).first()
        if before is None:
            raise NotVisible
        versions.check({"name": before}, seen)
        template.name = name
        _refuse_taken(template, beside.exclude(pk=template.pk))
        beside.filter(pk=template.pk).update(name=name)
        audit.record(
            actor, "template.renamed", template.name, department=template.department,
            before={"name": before}, after={"name": template.name},
        )  # fmt: skip
    return template


def delete_template(*, actor: Actor, template: RequestTemplate) -> None:
    """Deletes the template, if it still exists. Raises Forbidden."""
    require_change(actor, template)
    with durable():
        count, _rows = RequestTemplate.objects.filter(pk=template.pk).delete()
        if count:
            audit.record(actor, "template.deleted", template.name, department=template.department)


def _checked(name: str) -> str:
    name = names.checked(name)
    if not name or len(name) > LONGEST:
        raise Invalid(N_("Enter a name of 1 to 100 characters."), field="name")
    return name


def _siblings(template: RequestTemplate) -> QuerySet[RequestTemplate]:
    """The templates among which its name must be unique. Locks the department, so that none is added concurrently."""
    Department.objects.select_for_update(no_key=True).get(pk=template.department_id)
    return RequestTemplate.objects.filter(department=template.department_id, person=template.person_id)


def _refuse_taken(template: RequestTemplate, others: QuerySet[RequestTemplate]) -> None:
    if others.filter(name=template.name).exists():
        raise NameTaken(field="name", name=template.name)


def secret_names_of(template: RequestTemplate) -> list[str]:
    """Names of its secret variables, whose values must be entered at each use."""
    env: dict[str, Any] = template.body.get("env", {})
    return sorted(name for name, value in env.items() if isinstance(value, dict))
