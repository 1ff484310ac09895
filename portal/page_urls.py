"""Pages of portal: who you are, and the frame around everything."""

from __future__ import annotations

from django.urls import URLPattern, path

from portal.views import home, login, profile, search

app_name = "portal"
urlpatterns: list[URLPattern] = [
    path("", home.home, name="home"),
    path("login/", login.Login.as_view(), name="login"),
    path("logout/", login.Logout.as_view(), name="logout"),
    path("preferences/", profile.preferences, name="preferences"),
    path("profile/", profile.profile, name="profile"),
    path("search/", search.search, name="search"),
]
