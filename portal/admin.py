"""Django's admin for operators: everything is visible, nothing can be changed. Changes go through the pages' actions."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.views import redirect_to_login
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext_lazy as _

from portal import models
from portal.access import NotVisible


class OperatorSite(admin.AdminSite):
    """Uses the ordinary login page, so that its throttle on failed logins applies here, too."""

    site_header = site_title = _("GPU quota portal")
    index_title = _("Records")
    enable_nav_sidebar = False

    def has_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_active and getattr(request.user, "is_operator", False))

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if self.has_permission(request):
            return redirect("admin:index")
        if request.user.is_authenticated:
            raise NotVisible
        return redirect_to_login(request.GET.get("next") or "/admin/")


site = OperatorSite()


class ReadOnly(admin.ModelAdmin):  # type: ignore[type-arg]  # generic only in the stubs
    """`hidden`: columns that are never shown, because they are secrets or digests of them."""

    hidden: tuple[str, ...] = ()
    list_per_page = 50
    show_full_result_count = False

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> list[Any]:
        return [field.name for field in self.model._meta.fields if field.name not in self.hidden]

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> list[Any]:
        return self.get_fields(request, obj)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return site.has_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return site.has_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


def show(model: type[Model], *columns: str, search: tuple[str, ...] = (), hidden: tuple[str, ...] = ()) -> None:
    """Registers a model with the columns of its list."""
    related = [field.name for field in model._meta.fields if field.is_relation]
    options = {
        "list_display": columns or ("__str__",),
        "list_select_related": related,
        "search_fields": search,
        "hidden": hidden,
    }
    site.register(model, type(f"{model.__name__}Admin", (ReadOnly,), options))


show(
    models.User,
    "username",
    "email",
    "is_active",
    "is_operator",
    "last_login",
    search=("username",),
    hidden=("password",),
)
show(models.Department, "slug", "name", "parent", "weight", "paused", search=("slug", "name"))
show(models.Membership, "user", "department", "role", "created_at", search=("user__username", "department__slug"))
show(models.GroupRule, "provider", "pattern", "department", "role", search=("pattern",))
show(models.SeenGroups, "account", "groups", "said_at")
show(models.Invitation, "department", "role", "email", "created_by", "expires_at", "accepted_by", hidden=("digest",))
show(models.ApiToken, "name", "holder", "department", "prefix", "expires_at", "revoked_at", hidden=("digest",))
show(models.AuditEntry, "at", "actor_name", "action", "department", "target", search=("action", "target", "actor_name"))
show(models.Event, "at", "kind", "department", "workload", search=("kind", "workload"))
show(models.SavedFilter, "user", "name", "path")
show(models.Webhook, "name", "department", "shape", "active", hidden=("secret", "url"))
show(models.WebhookDelivery, "created_at", "webhook", "kind", "status", "tries", "sent_at")
show(models.JobRun, "job", "started_at", "finished_at", "error", search=("job",))
show(models.Heartbeat, "name", "at")
show(models.AnswerCount, "kind", "status", "bound", "answers", "milliseconds")
