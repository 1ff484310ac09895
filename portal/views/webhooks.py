"""A department's webhooks: add, edit, rotate the secret, test, enable or disable, delete."""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import get_language, gettext_lazy
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from portal.access import Forbidden, NotVisible, Right, actor_of, department_for
from portal.errors import Problem
from portal.infra import versions
from portal.models import Department, Webhook, WebhookDelivery, WebhookShape
from portal.names import NameInput
from portal.notify import notices, safe_http
from portal.notify import webhooks as actions
from portal.notify.webhook_shapes import SIGNED
from portal.notify.webhooks import webhook_for
from portal.web import conflicts, one_time_secrets
from portal.web.forms import blame
from portal.web.once import once
from portal.web.pages import render_part

DELIVERIES_SHOWN = 20


class WebhookForm(forms.Form):
    name = NameInput(label=gettext_lazy("Name"), max_length=80)
    url = forms.URLField(label=gettext_lazy("Address"), max_length=500, assume_scheme="https")
    shape = forms.ChoiceField(label=gettext_lazy("Format"), choices=WebhookShape.choices)
    secret = forms.CharField(
        label=gettext_lazy("Secret"),
        max_length=200,
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text=gettext_lazy(
            "Signs the messages; stored encrypted. For signed JSON, leave empty to have one made and shown once; Slack, "
            "Microsoft Teams and WeCom have none."
        ),
    )
    language = forms.ChoiceField(label=gettext_lazy("Language"), choices=settings.LANGUAGES, required=False)
    kinds = forms.MultipleChoiceField(
        label=gettext_lazy("Notifications"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("Leave empty to receive all notifications."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["kinds"]
        if isinstance(field, forms.MultipleChoiceField):
            field.choices = [(kind, _(known.title)) for kind, known in notices.KINDS.items() if known.for_webhooks]


class WebhookChangeForm(WebhookForm):
    """The form for changes. It never shows the stored address or secret: chat services put their key into the address."""

    url = forms.URLField(label=gettext_lazy("New address"), max_length=500, assume_scheme="https", required=False)
    secret = forms.CharField(
        label=gettext_lazy("New webhook secret"),
        max_length=200,
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text=gettext_lazy("Leave empty to keep the current one. A different host needs it again."),
    )
    active = forms.BooleanField(label=gettext_lazy("Messages are sent"), required=False)
    seen = conflicts.SeenField()

    def __init__(self, hook: Webhook, *args: Any, **kwargs: Any) -> None:
        initial = {name: getattr(hook, name) for name in ("name", "shape", "language", "kinds", "active")} | {
            "seen": actions.mark_of(hook)
        }
        super().__init__(*args, initial=initial, **kwargs)
        host = safe_http.host_of(hook.url)
        self.fields["url"].help_text = _("Leave empty to keep the current one, at %(host)s.") % {"host": host}

    @property
    def changes(self) -> actions.Changes:
        given = {name: value for name, value in self.cleaned_data.items() if name != "seen"}
        left_empty = [name for name in ("url", "secret", "language") if not given[name]]
        return cast(actions.Changes, {name: value for name, value in given.items() if name not in left_empty})


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@once
def webhooks(request: HttpRequest, department: str) -> HttpResponse:
    actor = actor_of(request)
    dept = department_for(actor, department, Right.STEER)
    form = WebhookForm(request.POST or None, initial={"language": get_language()})
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data | {"language": form.cleaned_data["language"] or get_language()}
        made = actions.generated_secret(given["shape"], given["secret"])
        try:
            actions.add_webhook(actor=actor, department=dept, **given | {"secret": given["secret"] or made})
        except Problem as problem:
            blame(form, problem)
        else:
            messages.success(request, _("The webhook was added. You can test it now."))
            if made:
                return one_time_secrets.redirect_with(request, request.path, secret=made)
            return redirect("portal:webhooks", dept.slug)
    return _page(request, dept, form, status=422 if form.errors else 200)


def _page(request: HttpRequest, department: Department, form: WebhookForm, status: int = 200) -> HttpResponse:
    hooks = list(Webhook.objects.filter(department=department).order_by("name"))
    rows = WebhookDelivery.objects.filter(webhook__department=department).select_related("webhook").order_by("-id")
    deliveries = list(rows[:DELIVERIES_SHOWN])
    context = {
        "department": department,
        "form": form,
        "hooks": [(hook, f"remove-{hook.pk}", actions.mark_of(hook)) for hook in hooks],
        "deliveries": deliveries,
        "on_their_way": any(row.sent_at is None and not row.error for row in deliveries),
        "secret": one_time_secrets.revealed(request).get("secret", ""),
    }
    if status == 200:
        return render_part(request, "portal/webhooks.html", context, part="deliveries")
    return render(request, "portal/webhooks.html", context, status=status)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def edit(request: HttpRequest, department: str, webhook: int) -> HttpResponse:
    actor = actor_of(request)
    hook = webhook_for(actor, department, webhook)
    form = WebhookChangeForm(hook, request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            hook = actions.change_webhook(actor=actor, webhook=hook, seen=form.cleaned_data["seen"], **form.changes)
        except (Forbidden, NotVisible):
            raise
        except Problem as problem:
            blame(form, problem)
        else:
            messages.success(request, _("%(name)s was saved.") % {"name": hook.name})
            return redirect("portal:webhooks", department)
    context = {
        "department": hook.department, "hook": hook, "form": form, "mark": actions.mark_of(hook),
        "makes_secret": hook.shape == WebhookShape.GENERIC,
        "signed": hook.shape in SIGNED and bool(hook.secret),
        "secret": one_time_secrets.revealed(request).get("secret", ""),
    }  # fmt: skip
    return render(request, "portal/webhook_edit.html", context, status=conflicts.status_of(form))


@login_required
@require_POST
def rotate(request: HttpRequest, department: str, webhook: int) -> HttpResponse:
    """Generates a new secret and shows it once."""
    actor = actor_of(request)
    hook = webhook_for(actor, department, webhook)
    secret = actions.rotate_secret(actor=actor, webhook=hook, seen=request.POST.get(versions.FIELD, ""))
    messages.success(request, _("%(name)s has a new secret. The old one is no longer used.") % {"name": hook.name})
    return one_time_secrets.redirect_with(request, reverse("portal:webhook", args=[department, webhook]), secret=secret)


@login_required
@require_POST
def try_it(request: HttpRequest, department: str, webhook: int) -> HttpResponse:
    actor = actor_of(request)
    hook = webhook_for(actor, department, webhook)
    actions.try_webhook(actor=actor, webhook=hook)
    messages.success(
        request, _("A test message was sent to %(name)s. The response appears below.") % {"name": hook.name}
    )
    return redirect("portal:webhooks", department)


@login_required
@require_POST
def switch(request: HttpRequest, department: str, webhook: int) -> HttpResponse:
    """Enables or disables a webhook."""
    actor = actor_of(request)
    hook = webhook_for(actor, department, webhook)
    actions.change_webhook(
        actor=actor,
        webhook=hook,
        active=bool(request.POST.get("active")),
        seen=request.POST.get(versions.FIELD, ""),
    )
    return redirect("portal:webhooks", department)


@login_required
@require_POST
def remove(request: HttpRequest, department: str, webhook: int) -> HttpResponse:
    actor = actor_of(request)
    hook = webhook_for(actor, department, webhook)
    actions.remove_webhook(actor=actor, webhook=hook, seen=request.POST.get(versions.FIELD, ""))
    messages.success(request, _("%(name)s was removed.") % {"name": hook.name})
    return redirect("portal:webhooks", department)
