"""Where people sign in. Names are allauth's, which looks for them; of its pages there are only these."""

from __future__ import annotations

from django.urls import URLPattern, path

from portal.views import login, providers

urlpatterns: list[URLPattern] = [
    path("login/", login.Login.as_view(), name="account_login"),
    path("login/forgotten/", login.Forgotten.as_view(), name="account_reset_password"),
    path("login/forgotten/sent/", login.ForgottenSent.as_view(), name="account_reset_password_done"),
    path("login/password/<str:uidb36>/<str:key>/", login.NewPassword.as_view(), name="account_reset_password_from_key"),
    path("login/with/<slug:provider_id>/", providers.begin, name="openid_connect_login"),
    path("login/with/<slug:provider_id>/callback/", providers.callback, name="openid_connect_callback"),
    path("logout/", login.Logout.as_view(), name="account_logout"),
]
