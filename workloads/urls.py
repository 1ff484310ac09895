"""Pages of workloads."""

from __future__ import annotations

from django.urls import URLPattern, path

from workloads.backtests import pages as backtests
from workloads.configuration import pages as configuration
from workloads.notebooks import access
from workloads.pages import (
    administration,
    buttons,
    design,
    detail,
    estimates,
    files,
    home,
    idle,
    listing,
    logs,
    measurement,
    modes,
    new,
    request_templates,
    usage,
)

app_name = "workloads"
HERE = "d/<slug:department>/workloads/"
ONE = HERE + "<slug:workload>/"
urlpatterns: list[URLPattern] = [
    path("mine/", home.own_workloads, name="mine"),
    path("mine/frame/", home.frame, name="frame"),
    path("backtests/", backtests.backtests, name="backtests"),
    path("backtests/<slug:backtest>/", backtests.backtest, name="backtest"),
    path("backtests/<slug:backtest>/csv/", backtests.csv, name="backtest_csv"),
    path("pools/<slug:pool>/backtest/", backtests.new, name="backtest_new"),
    path("operator/workloads/", listing.everywhere, name="everywhere"),
    path("operator/workloads/csv/", listing.csv_everywhere, name="csv_everywhere"),
    path("operator/workloads/several/", listing.several_everywhere, name="several_everywhere"),
    path("operator/clusters/", administration.clusters, name="clusters"),
    path("operator/clusters/<slug:cluster>/", administration.cluster, name="cluster"),
    path("operator/clusters/<slug:cluster>/metrics/", measurement.source, name="metrics"),
    path("operator/configuration/", configuration.configuration, name="configuration"),
    path("operator/configuration/export/", configuration.export, name="configuration_export"),
    path("operator/design/", design.design, name="design"),
    path("operator/estimates/", estimates.estimates, name="estimates"),
    path("operator/images/", administration.images, name="images"),
    path("operator/images/<int:image>/", administration.image, name="image"),
    path("operator/images/new/", administration.image, name="image_new"),
    path("operator/nodes/<int:node>/mode/", modes.mode, name="mode"),
    path("operator/nodes/unpooled/", modes.unpooled, name="unpooled"),
    path("operator/nodes/<int:node>/pin/", modes.pin, name="pin"),
    path("operator/mode-changes/<slug:change>/", modes.change, name="mode_change"),
    path("operator/presets/<int:preset>/", administration.preset, name="preset"),
    path("operator/presets/new/", administration.preset, name="preset_new"),
    path("pools/<slug:pool>/gives/", modes.pool_gives, name="pool_gives"),
    path("operator/pools/<slug:pool>/idle/", idle.pool_policy, name="pool_idle_edit"),
    path("d/<slug:department>/quotas/<slug:pool>/idle/", idle.department_policy, name="department_idle"),
    path("operator/pools/<slug:pool>/idle/exempt/", idle.pool_exempt, name="pool_exempt"),
    path("d/<slug:department>/quotas/<slug:pool>/idle/exempt/", idle.department_exempt, name="department_exempt"),
    path("pools/<slug:pool>/idle/", idle.pool_part, name="pool_idle"),
    path("search/workloads/", home.search, name="search"),
    path("w/<slug:workload>/", detail.by_id, name="by_id"),
    path("d/<slug:department>/idle-exemptions/<slug:exemption>/end/", idle.end_exemption, name="exemption_end"),
    path("d/<slug:department>/templates/", request_templates.request_templates, name="templates"),
    path("d/<slug:department>/templates/<slug:template>/", request_templates.request_template, name="template"),
    path(
        "d/<slug:department>/templates/<slug:template>/delete/",
        request_templates.delete_request_template,
        name="template_delete",
    ),
    path(HERE, listing.listing, name="list"),
    path(HERE + "new/", new.new, name="new"),
    path(HERE + "new/verdict/", new.verdict, name="verdict"),
    path(HERE + "csv/", listing.csv, name="csv"),
    path(HERE + "several/", listing.several, name="several"),
    path(ONE, detail.detail, name="detail"),
    path(ONE + "export/<slug:kind>/", buttons.export, name="export"),
    path(ONE + "extend/", buttons.extend, name="extend"),
    path(ONE + "files/", files.folder, name="files"),
    path(ONE + "files/delete/", files.delete, name="delete-file"),
    path(ONE + "files/image/", files.image, name="image-file"),
    path(ONE + "files/download/", files.download, name="download"),
    path(ONE + "exempt/", idle.exempt, name="exempt"),
    path(ONE + "keep/", buttons.keep, name="keep"),
    path(ONE + "leave/", buttons.leave, name="leave"),
    path(ONE + "log/", logs.log, name="log"),
    path(ONE + "notebook/", access.open_notebook, name="notebook"),
    path(ONE + "rerun/", buttons.rerun, name="rerun"),
    path(ONE + "share/", buttons.share, name="share"),
    path(ONE + "stop/", buttons.stop, name="stop"),
    path(ONE + "usage/", usage.usage, name="usage"),
]
