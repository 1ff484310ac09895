"""`/api/v1/`: the schema, its pages, and the API of portal. Quotas and workloads have their own files."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from portal.api import audit, departments, events, group_rules, tokens, webhooks
from portal.views import api_docs

urlpatterns: list[URLPattern | URLResolver] = [
    path("audit/", audit.Audit.as_view(), name="audit"),
    path("departments/", departments.Departments.as_view(), name="departments"),
    path("departments/<slug:department>/", departments.DepartmentView.as_view(), name="department"),
    path("departments/<slug:department>/members/", departments.Members.as_view(), name="members"),
    path("departments/<slug:department>/members/<str:username>/", departments.MemberView.as_view(), name="member"),
    path("departments/<slug:department>/service_accounts/", tokens.ServiceAccounts.as_view(), name="service-accounts"),
    path(
        "departments/<slug:department>/service_accounts/<str:username>/",
        tokens.ServiceAccountView.as_view(),
        name="service-account",
    ),
    path("departments/<slug:department>/webhooks/", webhooks.Webhooks.as_view(), name="webhooks"),
    path("departments/<slug:department>/webhooks/<str:webhook>/", webhooks.WebhookView.as_view(), name="webhook"),
    path(
        "departments/<slug:department>/webhooks/<str:webhook>/deliveries/",
        webhooks.WebhookDeliveries.as_view(),
        name="webhook-deliveries",
    ),
    path(
        "departments/<slug:department>/webhooks/<str:webhook>/secret/",
        webhooks.WebhookSecret.as_view(),
        name="webhook-secret",
    ),
    path(
        "departments/<slug:department>/webhooks/<str:webhook>/test/",
        webhooks.WebhookTest.as_view(),
        name="webhook-test",
    ),
    path("docs/", api_docs.index, name="docs"),
    path(
        "docs/try/",
        SpectacularSwaggerSplitView.as_view(url_name="api:schema", template_name="portal/api_try.html"),
        name="docs-try",
    ),
    path("docs/<slug:tag>/", api_docs.group, name="docs-group"),
    path("events/", events.Events.as_view(), name="events"),
    path("group_rules/", group_rules.GroupRules.as_view(), name="group-rules"),
    path("group_rules/<str:rule>/", group_rules.GroupRuleView.as_view(), name="group-rule"),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("tokens/", tokens.Tokens.as_view(), name="tokens"),
    path("tokens/<slug:prefix>/", tokens.TokenView.as_view(), name="token"),
]
