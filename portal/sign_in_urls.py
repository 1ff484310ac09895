"""The URLs for signing in. The names are those that allauth requires; of its pages there are only these."""

from __future__ import annotations

from django.urls import URLPattern, path

from portal.views import login, passkeys, providers, saml, second_factor

urlpatterns: list[URLPattern] = [
    path("login/", login.Login.as_view(), name="account_login"),
    path("login/forgotten/", login.Forgotten.as_view(), name="account_reset_password"),
    path("login/forgotten/sent/", login.ForgottenSent.as_view(), name="account_reset_password_done"),
    path("login/password/<str:uidb36>/<str:key>/", login.NewPassword.as_view(), name="account_reset_password_from_key"),
    path("login/with/<slug:provider_id>/", providers.begin, name="openid_connect_login"),
    path("login/with/<slug:provider_id>/callback/", providers.callback, name="openid_connect_callback"),
    path("login/with/<slug:organization_slug>/saml/", saml.consume, name="saml_acs"),
    path("login/with/<slug:organization_slug>/saml/finish/", saml.finish, name="saml_finish_acs"),
    path("login/with/<slug:organization_slug>/saml/metadata/", saml.metadata, name="saml_metadata"),
    path("login/with/<slug:organization_slug>/saml/logout/", saml.no_logout, name="saml_sls"),
    path("login/passkey/", passkeys.Login.as_view(), name="mfa_login_webauthn"),
    path("login/second-factor/", second_factor.Authenticate.as_view(), name="mfa_authenticate"),
    path("profile/confirm/", second_factor.Confirm.as_view(), name="account_reauthenticate"),
    path("profile/confirm/code/", second_factor.ConfirmByCode.as_view(), name="mfa_reauthenticate"),
    path("profile/second-factor/", second_factor.Index.as_view(), name="mfa_index"),
    path("profile/second-factor/app/", second_factor.Activate.as_view(), name="mfa_activate_totp"),
    path("profile/second-factor/app/remove/", second_factor.Deactivate.as_view(), name="mfa_deactivate_totp"),
    path("profile/confirm/passkey/", passkeys.Confirm.as_view(), name="mfa_reauthenticate_webauthn"),
    path("profile/second-factor/passkeys/add/", passkeys.Add.as_view(), name="mfa_add_webauthn"),
    path("profile/second-factor/passkeys/<int:pk>/rename/", passkeys.Rename.as_view(), name="mfa_edit_webauthn"),
    path("profile/second-factor/passkeys/<int:pk>/remove/", passkeys.Remove.as_view(), name="mfa_remove_webauthn"),
    path("profile/second-factor/codes/", second_factor.Codes.as_view(), name="mfa_view_recovery_codes"),
    path("profile/second-factor/codes/new/", second_factor.NewCodes.as_view(), name="mfa_generate_recovery_codes"),
    path("logout/", login.Logout.as_view(), name="account_logout"),
]
