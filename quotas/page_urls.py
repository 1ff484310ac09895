"""Pages of quotas: departments' boards and rules, pools, decisions, and the operator's pages about them."""

from __future__ import annotations

from django.urls import URLPattern, path

from quotas.views import (
    board,
    caps,
    decisions,
    operator,
    policies,
    pools,
    quota_edit,
    quotas,
    recall,
    requests,
    usage,
    work,
)

app_name = "quotas"
urlpatterns: list[URLPattern] = [
    path("d/<slug:department>/", board.department, name="department"),
    path("d/<slug:department>/caps/", caps.caps, name="caps"),
    path("d/<slug:department>/caps/<slug:pool>/", caps.set_cap, name="set_cap"),
    path("d/<slug:department>/quotas/", quotas.quotas, name="quotas"),
    path("d/<slug:department>/quotas/<slug:pool>/", quota_edit.edit, name="quota_edit"),
    path("d/<slug:department>/quotas/<slug:pool>/preview/", quota_edit.edit_preview, name="quota_preview"),
    path("d/<slug:department>/recall/", recall.recall, name="recall"),
    path("d/<slug:department>/recall/preview/", recall.recall_preview, name="recall_preview"),
    path("d/<slug:department>/recalls/<slug:recall>/withdraw/", recall.withdraw, name="withdraw"),
    path("d/<slug:department>/work/<str:username>/", work.work, name="work"),
    path("d/<slug:department>/requests/new/", requests.new, name="request_new"),
    path("d/<slug:department>/requests/<slug:quota_request>/", requests.detail, name="request"),
    path("d/<slug:department>/requests/<slug:quota_request>/comment/", requests.say, name="request_comment"),
    path("d/<slug:department>/requests/<slug:quota_request>/decide/", requests.decide, name="request_decide"),
    path("d/<slug:department>/requests/<slug:quota_request>/preview/", requests.preview, name="request_preview"),
    path("d/<slug:department>/requests/<slug:quota_request>/renew/", requests.renew, name="request_renew"),
    path("d/<slug:department>/requests/<slug:quota_request>/withdraw/", requests.withdraw, name="request_withdraw"),
    path("decisions/", decisions.decisions, name="decisions"),
    path("decisions/<slug:decision>/", decisions.decision, name="decision"),
    path("decisions/<slug:decision>/alternatives/", decisions.decision_alternatives, name="decision_alternatives"),
    path("operator/nodes/", operator.nodes, name="operator_nodes"),
    path("operator/nodes/<int:node>/", operator.node, name="operator_node"),
    path("operator/pools/", operator.pools, name="operator_pools"),
    path("operator/departments/<slug:department>/policy/", policies.department, name="department_policy"),
    path("operator/departments/<slug:department>/policy/<slug:pool>/", policies.quota, name="quota_policy"),
    path("operator/departments/<slug:department>/preview/", operator.department_preview, name="department_preview"),
    path("operator/policies/", policies.policies, name="policies"),
    path("operator/pools/<slug:pool>/", operator.pool, name="operator_pool"),
    path("operator/pools/<slug:pool>/policy/", policies.pool, name="pool_policy"),
    path("operator/pools/<slug:pool>/preview/", operator.pool_preview, name="operator_pool_preview"),
    path("operator/system/", operator.system, name="operator_system"),
    path("requests/", requests.requests, name="requests"),
    path("pools/", pools.pools, name="pools"),
    path("pools/<slug:pool>/", pools.pool, name="pool"),
    path("usage/", usage.usage, name="usage"),
    path("d/<slug:department>/use/", usage.department_use, name="department_use"),
    path("pools/<slug:pool>/use/", usage.pool_use, name="pool_use"),
    path("usage/export.csv", usage.export, name="usage_export"),
]
