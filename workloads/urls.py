"""Pages of workloads."""

from __future__ import annotations

from django.urls import URLPattern, path

from workloads import notebooks
from workloads.views import detail, files, listing, logs, mine, modes, new, operate, steer

app_name = "workloads"
HERE = "d/<slug:department>/workloads/"
ONE = HERE + "<slug:workload>/"
urlpatterns: list[URLPattern] = [
    path("mine/", mine.mine, name="mine"),
    path("mine/frame/", mine.frame, name="frame"),
    path("operator/clusters/", operate.clusters, name="clusters"),
    path("operator/clusters/<slug:cluster>/", operate.cluster, name="cluster"),
    path("operator/images/", operate.images, name="images"),
    path("operator/images/<int:image>/", operate.image, name="image"),
    path("operator/images/new/", operate.image, name="image_new"),
    path("operator/nodes/<int:node>/mode/", modes.mode, name="mode"),
    path("operator/nodes/unpooled/", modes.unpooled, name="unpooled"),
    path("operator/nodes/<int:node>/pin/", modes.pin, name="pin"),
    path("operator/mode-changes/<slug:change>/", modes.change, name="mode_change"),
    path("operator/presets/<int:preset>/", operate.preset, name="preset"),
    path("operator/presets/new/", operate.preset, name="preset_new"),
    path("pools/<slug:pool>/gives/", modes.pool_gives, name="pool_gives"),
    path("search/workloads/", mine.search, name="search"),
    path("w/<slug:workload>/", detail.by_id, name="by_id"),
    path(HERE, listing.listing, name="list"),
    path(HERE + "new/", new.new, name="new"),
    path(HERE + "new/verdict/", new.verdict, name="verdict"),
    path(HERE + "stop/", listing.stop_several, name="stop-several"),
    path(ONE, detail.detail, name="detail"),
    path(ONE + "export/<slug:kind>/", steer.export, name="export"),
    path(ONE + "extend/", steer.extend, name="extend"),
    path(ONE + "files/", files.folder, name="files"),
    path(ONE + "files/delete/", files.delete, name="delete-file"),
    path(ONE + "files/download/", files.download, name="download"),
    path(ONE + "leave/", steer.leave, name="leave"),
    path(ONE + "log/", logs.log, name="log"),
    path(ONE + "notebook/", notebooks.open_notebook, name="notebook"),
    path(ONE + "rerun/", steer.rerun, name="rerun"),
    path(ONE + "share/", steer.share, name="share"),
    path(ONE + "stop/", steer.stop, name="stop"),
]
