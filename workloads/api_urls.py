"""The addresses of workloads below `/api/v1/`."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path, register_converter
from django.urls.converters import PathConverter

from workloads.api import catalogue, estimates, idle, measurement, modes, outputs, request_templates, resources, tokens
from workloads.backtests import api as backtests
from workloads.configuration import api as configuration


class FilePath(PathConverter):
    """The path of a file, whose name may have any character, even a line break."""

    regex = r"[\s\S]+"


register_converter(FilePath, "file")

urlpatterns: list[URLPattern | URLResolver] = [
    path("backtests/", backtests.Backtests.as_view(), name="backtests"),
    path("backtests/<slug:backtest>/", backtests.BacktestView.as_view(), name="backtest"),
    path("clusters/", catalogue.Clusters.as_view(), name="clusters"),
    path("clusters/<slug:cluster>/", catalogue.ClusterView.as_view(), name="cluster"),
    path("clusters/<slug:cluster>/metrics/", measurement.SourceView.as_view(), name="cluster-metrics"),
    path("clusters/<slug:cluster>/metrics/test/", measurement.SourceTest.as_view(), name="cluster-metrics-test"),
    path("estimates/", estimates.Estimates.as_view(), name="estimates"),
    path("configuration/", configuration.Configuration.as_view(), name="configuration"),
    path(
        "departments/<slug:department>/workloads/", resources.DepartmentWorkloads.as_view(), name="department-workloads"
    ),
    path(
        "departments/<slug:department>/quotas/<slug:pool>/idle_policy/",
        idle.DepartmentIdlePolicy.as_view(),
        name="department-idle-policy",
    ),
    path("departments/<slug:department>/idle_exemptions/", idle.Exemptions.as_view(), name="idle-exemptions"),
    path("idle_exemptions/<slug:exemption>/", idle.ExemptionView.as_view(), name="idle-exemption"),
    path(
        "departments/<slug:department>/templates/",
        request_templates.RequestTemplates.as_view(),
        name="request-templates",
    ),
    path(
        "departments/<slug:department>/templates/<slug:template>/",
        request_templates.RequestTemplateView.as_view(),
        name="request-template",
    ),
    path("images/", catalogue.Images.as_view(), name="images"),
    path("images/<int:image>/", catalogue.ImageView.as_view(), name="image"),
    path("mode_changes/", modes.ModeChanges.as_view(), name="mode-changes"),
    path("mode_changes/<slug:change>/", modes.ModeChangeView.as_view(), name="mode-change"),
    path("nodes/<int:node>/mode/", modes.NodeMode.as_view(), name="node-mode"),
    path("nodes/<int:node>/pin/", modes.NodePin.as_view(), name="node-pin"),
    path("pools/<slug:pool>/idle_policy/", idle.PoolIdlePolicy.as_view(), name="pool-idle-policy"),
    path("presets/", catalogue.Presets.as_view(), name="presets"),
    path("presets/<slug:preset>/", catalogue.PresetView.as_view(), name="preset"),
    path("tokens/<slug:prefix>/use/", tokens.TokenUseView.as_view(), name="token-use"),
    path("workloads/", resources.Workloads.as_view(), name="workloads"),
    path("workloads/<slug:workload>/", resources.WorkloadView.as_view(), name="workload"),
    path("workloads/<slug:workload>/events/", outputs.WorkloadEvents.as_view(), name="workload-events"),
    path("workloads/<slug:workload>/exports/<slug:kind>/", outputs.Export.as_view(), name="workload-export"),
    path("workloads/<slug:workload>/extend/", resources.Extend.as_view(), name="workload-extend"),
    path("workloads/<slug:workload>/usage/", measurement.WorkloadUsage.as_view(), name="workload-usage"),
    path("workloads/<slug:workload>/files/", outputs.Files.as_view(), name="workload-files"),
    path("workloads/<slug:workload>/files/<file:path>", outputs.FileView.as_view(), name="workload-file"),
    path("workloads/<slug:workload>/keep/", resources.Keep.as_view(), name="workload-keep"),
    path("workloads/<slug:workload>/leave/", resources.Leave.as_view(), name="workload-leave"),
    path("workloads/<slug:workload>/logs/", outputs.Logs.as_view(), name="workload-logs"),
    path("workloads/<slug:workload>/ready/", resources.Ready.as_view(), name="ready"),
    path("workloads/<slug:workload>/rerun/", resources.Rerun.as_view(), name="workload-rerun"),
]
