"""A person's own settings: language, theme, time zone, password."""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout, update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import PasswordChangeForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, override
from django.views.decorators.http import require_http_methods, require_POST

from portal import audit
from portal.access import NotVisible, actor_of
from portal.accounts import users
from portal.infra import versions
from portal.infra.locks import durable
from portal.models import User
from portal.sign_in import identities
from portal.sign_in.adapters import may_use_password
from portal.text import zones
from portal.web import conflicts
from portal.web.forms import blame

YEAR = 365 * 86400


class ProfileForm(forms.ModelForm):  # type: ignore[type-arg]  # generic only in the stubs
    language = forms.ChoiceField(
        label=gettext_lazy("Language"),
        required=False,
        choices=[("", gettext_lazy("same as browser")), ("en", "English"), ("zh-hans", "简体中文")],
    )
    time_zone = forms.ChoiceField(label=gettext_lazy("Time zone"), required=False)
    seen = conflicts.SeenField()

    class Meta:
        model = User
        fields = ["first_name", "last_name", "email", "language", "theme", "time_zone"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        default_label = _("same as browser; %(zone)s in mail") % {"zone": settings.TIME_ZONE}
        choices = [("", default_label), *zones.CHOICES]
        cast(forms.ChoiceField, self.fields["time_zone"]).choices = choices


def _stored(user: User) -> dict[str, Any]:
    return {name: getattr(user, name) for name in ProfileForm.Meta.fields}


def _password_form(user: User, data: QueryDict | None) -> PasswordChangeForm | None:
    """The form for a new password; None for people who only log in through a provider."""
    if not user.has_own_password or not may_use_password(user):
        return None
    form = PasswordChangeForm(user, data)
    form.fields["old_password"].widget.attrs.pop("autofocus", None)  # the page is about more than the password
    return form


def _linked(user: User) -> dict[str, Any]:
    linked = identities.accounts_of(user)
    known = {each.provider for each in linked}
    return {
        "linked": [(each, identities.label_of(each.provider)) for each in linked],
        "providers": [each for each in settings.IDENTITY_PROVIDERS if each.key not in known],
    }


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def profile(request: HttpRequest) -> HttpResponse:
    actor = actor_of(request)
    user = User.objects.get(username=actor.name)  # a copy: a refused form must not change the name in the frame
    wants_password = request.POST.get("form") == "password"
    seen = {versions.FIELD: versions.mark(_stored(user))}
    form = ProfileForm(None if wants_password else request.POST or None, instance=user, initial=seen)
    password = _password_form(user, request.POST if wants_password else None)
    if wants_password and password is None:
        raise NotVisible
    context = {"form": form, "password": password, "second_factor": user.has_usable_password(), **_linked(user)}
    chosen: Any = password if wants_password else form
    if request.method == "POST" and chosen.is_valid():
        try:
            with durable():
                if not wants_password:
                    now = User.objects.select_for_update(no_key=True).get(pk=user.pk)
                    versions.check(_stored(now), chosen.cleaned_data[versions.FIELD])
                user = chosen.save()
                action = "user.password_changed" if wants_password else "user.changed"
                audit.record(actor, action, f"user {user.username}")
        except versions.Conflict as conflict:
            blame(form, conflict)
            return render(request, "portal/profile.html", context, status=409)
        if wants_password:
            update_session_auth_hash(request, user)
        with override(user.language or None):
            messages.success(request, _("The password was changed.") if wants_password else _("Saved."))
        return redirect("portal:profile")
    status = 422 if request.method == "POST" else 200
    return render(request, "portal/profile.html", context, status=status)


@login_required
@require_POST
def end_sessions(request: HttpRequest) -> HttpResponse:
    """Logs the person out everywhere, including this session."""
    actor = actor_of(request)
    if actor.user is not None:
        users.end_sessions(actor=actor, user=actor.user)
    logout(request)
    messages.success(request, _("You were logged out everywhere."))
    return redirect("account_login")


@require_POST
def preferences(request: HttpRequest) -> HttpResponse:
    """Stores the top bar's switches: in the account, or in a cookie before login."""
    back = request.POST.get("next", "/")
    if not url_has_allowed_host_and_scheme(back, allowed_hosts={request.get_host()}, require_https=request.is_secure()):
        back = "/"
    response = HttpResponseRedirect(back)
    chosen = {}
    if request.POST.get("language") in dict(settings.LANGUAGES):
        chosen["language"] = request.POST["language"]
        response.set_cookie(settings.LANGUAGE_COOKIE_NAME, chosen["language"], max_age=YEAR, samesite="Lax")
    if request.POST.get("theme") in ("light", "dark"):
        chosen["theme"] = request.POST["theme"]
        response.set_cookie("theme", chosen["theme"], max_age=YEAR, samesite="Lax")
    if chosen and request.user.is_authenticated:
        User.objects.filter(pk=request.user.pk).update(**chosen)
    return response
