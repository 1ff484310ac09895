"""Passkeys (WebAuthn): allauth's forms, made safe for an installation whose users run web servers on subdomains."""

from __future__ import annotations

import json
from typing import Any

from allauth.core import context
from allauth.mfa.webauthn import forms as allauth_forms
from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from fido2.utils import websafe_decode

from portal.models import User
from portal.names import LineInput
from portal.sign_in import directory_login
from portal.sign_in.adapters import DIRECTORY_DOWN, PASSWORDS_OFF, may_use_password, passwords_off

MALFORMED = (AttributeError, IndexError, KeyError, TypeError, ValueError)
LONGEST_NAME = 60


def refused() -> ValidationError:
    return ValidationError(_("The passkey was not accepted. Try again."), code="passkey")


def require_own_origin(credential: Any) -> None:
    """Requires that the browser was on a page of this very host. A passkey also works on its subdomains, where notebooks run
    arbitrary code of users. Raises ValidationError."""
    try:
        origin = json.loads(websafe_decode(credential["response"]["clientDataJSON"]))["origin"]
    except MALFORMED as error:
        raise refused() from error
    request = context.request
    if origin != f"{request.scheme}://{request.get_host()}":
        raise refused()


class Checked:
    """A form with a `credential`: every fault in it becomes the same validation error."""

    def clean_credential(self) -> Any:
        credential = self.cleaned_data["credential"]  # type: ignore[attr-defined]
        require_own_origin(credential)
        check = getattr(super(), "clean_credential", None)
        try:
            return check() if check is not None else credential
        except MALFORMED as error:
            raise refused() from error
        except ValidationError as error:
            if error.code == "too_many_login_attempts":
                raise
            raise refused() from error


class AddForm(Checked, allauth_forms.AddWebAuthnForm):  # type: ignore[misc]  # allauth has no types
    name = LineInput(label=gettext_lazy("Name"), max_length=LONGEST_NAME, required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields.pop("passwordless", None)  # all passkeys are

    def clean(self) -> dict[str, Any]:
        try:
            cleaned: dict[str, Any] = super().clean()
        except MALFORMED as error:
            raise refused() from error
        except ValidationError as error:
            raise refused() from error
        return cleaned


class RenameForm(allauth_forms.EditWebAuthnForm):  # type: ignore[misc]
    name = LineInput(label=gettext_lazy("Name"), max_length=LONGEST_NAME)


class AuthenticateForm(Checked, allauth_forms.AuthenticateWebAuthnForm):  # type: ignore[misc]
    pass


class ConfirmForm(Checked, allauth_forms.ReauthenticateWebAuthnForm):  # type: ignore[misc]
    pass


class LoginForm(Checked, allauth_forms.LoginWebAuthnForm):  # type: ignore[misc]
    def clean(self) -> dict[str, Any]:
        cleaned = forms.Form.clean(self) or {}
        if (authenticator := cleaned.get("credential")) is not None:
            self._require_still_admitted(authenticator.user)
        return cleaned

    def _require_still_admitted(self, user: User) -> None:
        """Requires that the person could still log in with their password, here or in a directory. Raises ValidationError."""
        if user.has_own_password and may_use_password(user):
            return
        try:
            if directory_login.admits(user):
                return
        except directory_login.DirectoryDown as down:
            raise ValidationError(down.detail, code=DIRECTORY_DOWN) from down
        raise ValidationError(passwords_off() if user.has_own_password else refused().message, code=PASSWORDS_OFF)
