"""URLs of quotas below `/api/v1/`."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from quotas.api import budgets, log, moves, policies, pools, quarantines, quotas, recalls, requests, usage

urlpatterns: list[URLPattern | URLResolver] = [
    path("budgets/", budgets.Budgets.as_view(), name="budgets"),
    path("budgets/<slug:budget>/", budgets.BudgetView.as_view(), name="budget"),
    path("departments/<slug:department>/budgets/", budgets.DepartmentBudgets.as_view(), name="department-budgets"),
    path("decisions/", log.Decisions.as_view(), name="decisions"),
    path("decisions/<slug:decision>/", log.DecisionView.as_view(), name="decision"),
    path("departments/<slug:department>/preview/", moves.DepartmentPreview.as_view(), name="department-preview"),
    path("departments/<slug:department>/quotas/", quotas.Quotas.as_view(), name="quotas"),
    path("departments/<slug:department>/quotas/<slug:pool>/", quotas.QuotaView.as_view(), name="quota"),
    path("departments/<slug:department>/policy/", policies.DepartmentPolicy.as_view(), name="department-policy"),
    path(
        "departments/<slug:department>/quotas/<slug:pool>/policy/", policies.QuotaPolicy.as_view(), name="quota-policy"
    ),
    path("departments/<slug:department>/usage/", quotas.Usage.as_view(), name="usage"),
    path("departments/<slug:department>/user_caps/", quotas.UserCaps.as_view(), name="user-caps"),
    path("departments/<slug:department>/user_caps/<slug:pool>/", quotas.UserCapView.as_view(), name="user-cap"),
    path("loans/", log.Loans.as_view(), name="loans"),
    path("nodes/", pools.Nodes.as_view(), name="nodes"),
    path("nodes/<int:node>/", pools.NodeView.as_view(), name="node"),
    path("pools/", pools.Pools.as_view(), name="pools"),
    path("pools/<slug:pool>/", pools.PoolView.as_view(), name="pool"),
    path("pools/<slug:pool>/capacity/", pools.PoolCapacity.as_view(), name="pool-capacity"),
    path("pools/<slug:pool>/price/", pools.PoolPriceView.as_view(), name="pool-price"),
    path("pools/<slug:pool>/policy/", policies.PoolPolicy.as_view(), name="pool-policy"),
    path(
        "departments/<slug:department>/quota_requests/",
        requests.DepartmentQuotaRequests.as_view(),
        name="department-quota-requests",
    ),
    path("quota_requests/", requests.QuotaRequests.as_view(), name="quota-requests"),
    path("quota_requests/<slug:quota_request>/", requests.QuotaRequestView.as_view(), name="quota-request"),
    path(
        "quota_requests/<slug:quota_request>/comments/",
        requests.QuotaRequestComments.as_view(),
        name="quota-request-comments",
    ),
    path(
        "quota_requests/<slug:quota_request>/decision/",
        requests.QuotaRequestDecision.as_view(),
        name="quota-request-decision",
    ),
    path(
        "quota_requests/<slug:quota_request>/renewal/",
        requests.QuotaRequestRenewal.as_view(),
        name="quota-request-renewal",
    ),
    path("quarantines/", quarantines.Quarantines.as_view(), name="quarantines"),
    path("quarantines/<slug:quarantine>/", quarantines.QuarantineView.as_view(), name="quarantine"),
    path("recalls/", recalls.Recalls.as_view(), name="recalls"),
    path("recalls/<slug:recall>/", recalls.RecallView.as_view(), name="recall"),
    path("usage/", usage.UsageReport.as_view(), name="usage-report"),
]
