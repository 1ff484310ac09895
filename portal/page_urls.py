"""Pages of portal: who you are, and the frame around everything."""

from __future__ import annotations

from django.urls import URLPattern, path

from portal.views import (
    audit,
    groups,
    home,
    inbox,
    invite,
    live,
    login,
    members,
    operator,
    profile,
    providers,
    search,
    tokens,
    webhooks,
)

app_name = "portal"
urlpatterns: list[URLPattern] = [
    path("", home.home, name="home"),
    path(
        "d/<slug:department>/invitations/<int:invitation>/withdraw/",
        members.withdraw_invitation,
        name="invitation_withdraw",
    ),
    path("d/<slug:department>/members/", members.members_page, name="members"),
    path("d/<slug:department>/members/add/", members.add, name="member_add"),
    path("d/<slug:department>/members/invite/", members.invite, name="member_invite"),
    path("d/<slug:department>/members/service/", members.add_service_account, name="service_account"),
    path("d/<slug:department>/members/<str:username>/remove/", members.remove, name="member_remove"),
    path("d/<slug:department>/members/<str:username>/role/", members.change_role, name="member_role"),
    path("d/<slug:department>/members/<str:username>/tokens/", tokens.member_tokens, name="member_tokens"),
    path("d/<slug:department>/pause/", members.pause, name="pause"),
    path("d/<slug:department>/webhooks/", webhooks.webhooks, name="webhooks"),
    path("d/<slug:department>/webhooks/<int:webhook>/remove/", webhooks.remove, name="webhook_remove"),
    path("d/<slug:department>/webhooks/<int:webhook>/switch/", webhooks.switch, name="webhook_switch"),
    path("d/<slug:department>/webhooks/<int:webhook>/try/", webhooks.try_it, name="webhook_try"),
    path("events/", live.events, name="events"),
    path("inbox/", inbox.inbox, name="inbox"),
    path("inbox/<int:item>/", inbox.open_item, name="inbox_item"),
    path("inbox/read/", inbox.read, name="inbox_read"),
    path("inbox/settings/", inbox.settings, name="inbox_settings"),
    path("invite/<str:token>/", invite.invite, name="invite"),
    path("operator/", operator.overview, name="operator"),
    path("operator/audit/", audit.audit, name="operator_audit"),
    path("operator/audit/export.csv", audit.export, name="operator_audit_export"),
    path("operator/departments/", operator.departments, name="operator_departments"),
    path("operator/departments/<slug:department>/", operator.department, name="operator_department"),
    path("operator/groups/", groups.rules, name="operator_groups"),
    path("operator/groups/preview/", groups.preview, name="operator_groups_preview"),
    path("operator/groups/<int:rule>/remove/", groups.remove, name="operator_group_remove"),
    path("operator/users/", operator.users, name="operator_users"),
    path("operator/users/<str:username>/", operator.user, name="operator_user"),
    path("operator/users/<str:username>/accounts/", providers.operator_accounts, name="operator_user_accounts"),
    path("preferences/", profile.preferences, name="preferences"),
    path("profile/", profile.profile, name="profile"),
    path("profile/accounts/<int:account>/unlink/", providers.unlink, name="account_unlink"),
    path("profile/sessions/end/", profile.end_sessions, name="end_sessions"),
    path("session/", login.session, name="session"),
    path("search/", search.search, name="search"),
    path("tokens/", tokens.tokens, name="tokens"),
    path("tokens/<slug:prefix>/revoke/", tokens.revoke, name="token-revoke"),
]
