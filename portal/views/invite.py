"""The page behind an invitation link."""

from __future__ import annotations

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from portal.access import actor_of
from portal.accounts import members
from portal.errors import Problem
from portal.names import LineInput, NameInput
from portal.web.forms import blame


class NewAccountForm(forms.Form):
    username = LineInput(label=gettext_lazy("Login name"), max_length=150)
    full_name = NameInput(label=gettext_lazy("Your name"), max_length=200, required=False)
    password = forms.CharField(
        label=gettext_lazy("Password"),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=gettext_lazy("At least 10 characters."),
    )


@sensitive_post_parameters("password")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def invite(request: HttpRequest, token: str) -> HttpResponse:
    """Accepts an invitation: one click for somebody who is logged in, else a form that creates an account."""
    try:
        invitation = members.invitation_for(token)
    except members.InvitationOver as problem:
        return render(request, "problem.html", {"problem": problem}, status=problem.status)
    known = request.user.is_authenticated
    if request.method == "POST" and not known and not settings.PASSWORD_SIGN_IN:
        return redirect_to_login(request.path)  # accounts are created by providers only
    form = NewAccountForm(request.POST if request.method == "POST" and not known else None)
    refusal = None
    if request.method == "POST" and (known or form.is_valid()):
        try:
            if known:
                members.accept(actor=actor_of(request), secret=token)
            else:
                user = members.accept_as_new(secret=token, **form.cleaned_data)
                login(request, user, backend="django.contrib.auth.backends.ModelBackend")
        except Problem as problem:
            refusal = problem
            if not known:
                blame(form, problem)
        else:
            messages.success(request, _("Welcome to %(department)s.") % {"department": invitation.department.name})
            return redirect("portal:home")
    context = {
        "invitation": invitation,
        "form": form,
        "refusal": refusal if known else None,
        "passwords": settings.PASSWORD_SIGN_IN,
    }
    status = refusal.status if refusal and known else 422 if form.errors else 200
    return render(request, "portal/invite.html", context, status=status)
