"""All URLs, by app. Names are `app:page`."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from portal.admin import site
from portal.server.metrics import metrics
from portal.sign_in_urls import urlpatterns as sign_in
from portal.web.pages import favicon

api = [
    path("", include("portal.api_urls")),
    path("", include("quotas.api_urls")),
    path("", include("workloads.api_urls")),
]
urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/", include((api, "api"))),
    path("", include("portal.page_urls")),
    *sign_in,
    path("", include("quotas.page_urls")),
    path("", include("workloads.urls")),
    path("admin/", site.urls),
    path("metrics", metrics),
    path("favicon.ico", favicon, name="favicon"),
]

handler400 = "portal.web.problems.bad_request"
handler404 = "portal.web.problems.not_found"
handler500 = "portal.web.problems.server_error"
handler429 = "portal.web.pages.too_many_requests"
