"""Linking an entry of an LDAP directory to the person who is logged in."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from portal.access import NotVisible, actor_of
from portal.errors import Problem
from portal.names import LineInput
from portal.sign_in import directory_login
from portal.sign_in.adapters import too_many, wrong_password
from portal.sign_in.guesses import Guess


class LinkForm(forms.Form):
    login = LineInput(
        label=gettext_lazy("Login name"), max_length=150,
        widget=forms.TextInput(attrs={"autocomplete": "username", "autofocus": True, "maxlength": 150}),
    )  # fmt: skip
    password = forms.CharField(
        label=gettext_lazy("Password"), max_length=1000, strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )  # fmt: skip


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def link(request: HttpRequest, provider_id: str) -> HttpResponse:
    """The form for login name and password in the directory; counted like a login attempt."""
    user = actor_of(request).user
    directory = next((each for each in directory_login.directories() if each.key == provider_id), None)
    if user is None or directory is None:
        raise NotVisible
    form = LinkForm(request.POST if request.method == "POST" else None)
    status = 200
    if request.method == "POST":
        status = 422
        if form.is_valid():
            login, password = form.cleaned_data["login"], form.cleaned_data["password"]
            guess = Guess(request, login)
            try:
                if not guess.allowed():
                    form.add_error(None, ValidationError(too_many(guess.wait())))
                    status = 429
                elif directory_login.link(user, directory, login, password):
                    guess.succeeded()
                    messages.success(
                        request, _("Your account at %(provider)s is linked.") % {"provider": directory.label}
                    )
                    return redirect("portal:profile")
                else:
                    form.add_error(None, ValidationError(wrong_password()))
            except Problem as problem:
                form.add_error(None, ValidationError(problem.detail))
                status = problem.status
    return render(request, "portal/directory_link.html", {"form": form, "directory": directory}, status=status)
