"""The frame around every page: department, navigation, unread notices. Values are computed when they are first used."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import cached_property

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from portal.access import Actor, Right, actor_of
from portal.models import Department, InboxItem, User

LAST_DEPARTMENT = "department"  # key in the session: the department last visited


@dataclass(frozen=True)
class Place:
    """One line of the navigation on the left. `key` is its keyboard shortcut, after "g"."""

    name: str
    label: str
    url: str
    icon: str
    key: str
    active: bool
    count: int = 0


@dataclass
class Shell:
    request: HttpRequest

    @property
    def user(self) -> User | None:
        user = getattr(self.request, "user", None)
        return user if isinstance(user, User) else None

    @property
    def now(self) -> dt.datetime:
        return timezone.now()

    @cached_property
    def actor(self) -> Actor | None:
        return actor_of(self.request) if self.user else None

    @cached_property
    def departments(self) -> tuple[Department, ...]:
        return self.actor.departments_seen if self.actor else ()

    @cached_property
    def department(self) -> Department | None:
        """The department in the URL; else the last one visited; else the first one in which the person may submit."""
        if self.actor is None:
            return None
        match = self.request.resolver_match
        slug = match.kwargs.get("department") if match else None
        by_slug = {department.slug: department for department in self.departments}
        if slug in by_slug:
            if self.request.session.get(LAST_DEPARTMENT) != slug:
                self.request.session[LAST_DEPARTMENT] = slug
            return by_slug[slug]
        last = by_slug.get(self.request.session.get(LAST_DEPARTMENT, ""))
        return last or next(iter((*self.actor.submits_in, *self.departments)), None)

    @cached_property
    def may_submit(self) -> bool:
        return bool(self.actor and self.department and self.actor.may(Right.SUBMIT, self.department))

    @cached_property
    def may_steer(self) -> bool:
        return bool(self.actor and self.department and self.actor.may(Right.STEER, self.department))

    @cached_property
    def unread(self) -> int:
        return InboxItem.objects.filter(user=self.user, read_at=None).count() if self.user else 0

    @property
    def has_news(self) -> bool:
        """Whether the version has changed since the reader last opened *What's new*."""
        return self.user is not None and self.user.changes_read != settings.VERSION

    @cached_property
    def theme(self) -> str:
        return self.user.theme if self.user else self.request.COOKIES.get("theme", "")

    @cached_property
    def places(self) -> list[Place]:
        if self.actor is None:
            return []
        slug = {"department": self.department.slug} if self.department else None
        rows = [
            ("portal:home", _("Home"), "home", "h", {}, 0),
            ("workloads:new", _("New workload"), "rocket", "n", slug if self.may_submit else None, 0),
            ("workloads:list", _("Workloads"), "stack-2", "w", slug, 0),
            ("quotas:department", _("Department"), "building", "d", slug, 0),
            ("quotas:pools", _("Pools"), "cpu", "p", {}, 0),
            ("quotas:card_map", _("Card map"), "grid-dots", "m", {}, 0),
            ("quotas:decisions", _("Decisions"), "gavel", "e", {}, 0),
            ("quotas:requests", _("Requests"), "ticket", "q", {}, 0),
            ("quotas:usage", _("Usage"), "chart-bar", "u", {}, 0),
            ("portal:inbox", _("Inbox"), "inbox", "i", {}, self.unread),
        ]
        if self.actor.is_operator:
            rows.append(("portal:operator", _("Operator"), "settings", "o", {}, 0))
        view_name = self.request.resolver_match.view_name if self.request.resolver_match else ""
        places = []
        for name, label, drawing, key, kwargs, count in rows:
            url = address(name, kwargs)
            if url:
                places.append(Place(name, label, url, drawing, key, name in (view_name, parent_of(view_name)), count))
        return places

    @cached_property
    def switches(self) -> list[tuple[Department, str]]:
        """The same page in each of the person's departments, or their board if the page has no department."""
        match = self.request.resolver_match
        same = match is not None and list(match.kwargs) == ["department"]
        name = match.view_name if match is not None and same else "quotas:department"
        return [(each, address(name, {"department": each.slug}) or reverse("portal:home")) for each in self.departments]


OPERATOR_PAGES = (
    "portal:operator_audit",
    "portal:operator_department",
    "portal:operator_departments",
    "portal:operator_groups",
    "portal:operator_user",
    "portal:operator_users",
    "quotas:operator_node",
    "quotas:operator_nodes",
    "quotas:operator_pool",
    "quotas:operator_pools",
    "workloads:clusters",
    "workloads:image",
    "workloads:image_new",
    "workloads:images",
    "workloads:preset",
    "workloads:preset_new",
)


def parent_of(view_name: str) -> str:
    """The page whose navigation line is active on a page without a line of its own; "" if there is none."""
    return {
        "workloads:detail": "workloads:list",
        "quotas:pool": "quotas:pools",
        "quotas:card_map_node": "quotas:card_map",
        "quotas:decision": "quotas:decisions",
        "quotas:quotas": "quotas:department",
        "quotas:budgets": "quotas:department",
        "quotas:budget": "quotas:department",
        "quotas:budget_new": "quotas:department",
        "quotas:quota_edit": "quotas:department",
        "quotas:recall": "quotas:department",
        "quotas:request": "quotas:requests",
        "quotas:request_new": "quotas:requests",
        "portal:inbox_settings": "portal:inbox",
        "portal:member_remove": "quotas:department",
        "portal:member_tokens": "quotas:department",
        "portal:members": "quotas:department",
        "portal:webhooks": "quotas:department",
        **dict.fromkeys(OPERATOR_PAGES, "portal:operator"),
    }.get(view_name, "")


def address(name: str, kwargs: dict[str, str] | None) -> str:
    """The URL of a page; "" if this person or installation has no such page."""
    if kwargs is None:
        return ""
    try:
        return reverse(name, kwargs=kwargs)
    except NoReverseMatch:
        return ""


def visible_departments(actor: Actor, words: str) -> QuerySet[Department]:
    """Departments visible to the actor whose name or slug contains the words."""
    return actor.departments.filter(name__icontains=words) | actor.departments.filter(slug__icontains=words)
