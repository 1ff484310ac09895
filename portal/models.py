"""People, departments, tokens, the audit log, events and notifications."""

from __future__ import annotations

import datetime as dt
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib.auth.hashers import is_password_usable
from django.contrib.auth.models import AbstractUser
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from portal.ids import new_id
from portal.names import NameField


class User(AbstractUser):
    """A person or a department's service account. Operators run the installation."""

    first_name = NameField(_("first name"), max_length=150, blank=True)
    last_name = NameField(_("last name"), max_length=150, blank=True)
    is_operator = models.BooleanField(_("operator"), default=False)
    # Given by a GroupRule, which may revoke it.
    operator_from_rules = models.BooleanField(default=False, editable=False)
    service_of = models.ForeignKey(
        "Department", null=True, blank=True, on_delete=models.CASCADE, related_name="service_accounts"
    )
    language = models.CharField(_("language"), max_length=10, blank=True)  # blank: the browser's
    theme = models.CharField(
        _("theme"),
        max_length=5,
        blank=True,
        choices=[("", _("same as system")), ("light", _("light")), ("dark", _("dark"))],
    )
    time_zone = models.CharField(_("time zone"), max_length=50, blank=True)  # blank: the installation's
    tour = models.CharField(max_length=20, blank=True, db_default="", editable=False)  # of portal.web.tours
    tour_step = models.CharField(max_length=20, blank=True, db_default="", editable=False)  # the step's name
    tour_closed = models.BooleanField(default=False, db_default=False, editable=False)  # for good: not offered again
    # Changelog read up to here.
    changes_read = models.CharField(max_length=40, blank=True, db_default="", editable=False)
    sessions_ended = models.PositiveIntegerField(default=0, editable=False)  # how often all sessions were ended at once

    def _get_session_auth_hash(self, secret: str | None = None) -> str:
        """The value that a session must have to stay valid: Django's hash of the password, and how often all sessions were
        ended."""
        password_hash: str = super()._get_session_auth_hash(secret)  # type: ignore[misc]
        return f"{password_hash}-{self.sessions_ended}" if self.sessions_ended else password_hash

    def has_usable_password(self) -> bool:
        """Whether a password opens this account: the portal's own, or that of a directory."""
        return self.has_own_password or self.directory_accounts().exists()

    @property
    def has_own_password(self) -> bool:
        return is_password_usable(self.password)

    def directory_accounts(self) -> models.QuerySet[SocialAccount]:
        """The linked entries of configured LDAP directories."""
        keys = [each.key for each in settings.IDENTITY_PROVIDERS if each.kind == "ldap"]
        rows: models.QuerySet[SocialAccount] = SocialAccount.objects.filter(user=self, provider__in=keys)
        return rows

    @property
    def label(self) -> str:
        return self.get_full_name() or self.username

    @property
    def is_break_glass(self) -> bool:
        """Whether the person may log in by password even with PASSWORD_SIGN_IN=false: an operator created by `bootstrap`."""
        return self.is_superuser and self.is_operator

    @classmethod
    def operators(cls) -> models.QuerySet[User]:
        """Active operators, in the order of user names."""
        return cls.objects.filter(is_operator=True, is_active=True).order_by("username")

    def is_last_operator(self) -> bool:
        """Whether nobody else is an operator. Locks the rows of all operators in a fixed order, so that two concurrent changes
        cannot remove the last two."""
        operators = User.operators().select_for_update(no_key=True).order_by("pk")
        return [each.pk for each in operators] == [self.pk]


class Department(models.Model):
    """A tenant; a node of a tree. Workloads belong to leaves."""

    slug = models.SlugField(_("short name"), max_length=40, unique=True)
    name = NameField(_("name"), max_length=100)
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="children")
    weight = models.PositiveIntegerField(_("weight"), default=1)  # orders departments that borrow
    paused = models.BooleanField(_("paused"), default=False)  # nothing new starts
    unrestricted = models.BooleanField(_("may lock memory"), default=False)  # has a second namespace on Kubernetes
    policy = models.JSONField(default=dict, blank=True)
    version = models.PositiveIntegerField(default=1)  # of paused, unrestricted, weight and policy: the ETag
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["slug"]
        constraints = [models.CheckConstraint(condition=Q(weight__gt=0), name="department_weight_positive")]

    def __str__(self) -> str:
        return self.name

    def with_teams(self) -> list[int]:
        """Ids of the department and of all below it; one query a level."""
        subtree = level = [self.pk]
        while level := list(Department.objects.filter(parent__in=level).values_list("pk", flat=True)):
            subtree = subtree + level
        return subtree


class Role(models.TextChoices):
    VIEWER = "viewer", _("viewer")
    MEMBER = "member", _("member")
    OWNER = "owner", _("quota owner")


class Membership(models.Model):
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    department = models.ForeignKey(Department, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.MEMBER)
    # Given by a GroupRule, which may revoke it; else by hand.
    from_rules = models.BooleanField(default=False, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "department"], name="one_membership")]

    def __str__(self) -> str:
        return f"{self.user} in {self.department}: {self.role}"


class GroupRule(models.Model):
    """People in the group at the provider get the role in the department; `department` null: they become operators."""

    provider = models.CharField(max_length=30)  # a key of settings.IDENTITY_PROVIDERS
    pattern = models.CharField(max_length=255)  # the group's exact name, or with * for any characters
    department = models.ForeignKey(Department, null=True, on_delete=models.CASCADE, related_name="group_rules")
    role = models.CharField(max_length=10, choices=Role.choices, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["provider", "pattern", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["provider", "pattern", "department"], name="one_group_rule"),
            models.UniqueConstraint(
                fields=["provider", "pattern"], condition=Q(department=None), name="one_operator_rule"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.provider}: {self.pattern}"


class SeenGroups(models.Model):
    """The groups of a provider's account when its person last signed in."""

    account = models.OneToOneField("socialaccount.SocialAccount", on_delete=models.CASCADE, related_name="seen_groups")
    groups = models.JSONField(default=list)
    said_at = models.DateTimeField()  # by the provider's clock: an older answer never replaces a newer one

    class Meta:
        verbose_name_plural = "seen groups"

    def __str__(self) -> str:
        return f"groups of {self.account_id}"


class DirectoryReading(models.Model):
    """The last time a directory was read by the job that applies group rules again."""

    provider = models.CharField(max_length=30, unique=True)
    tried_at = models.DateTimeField()
    read_at = models.DateTimeField(null=True)  # when it last answered completely
    people = models.PositiveIntegerField(default=0)  # with an account here, at read_at
    problem = models.TextField(blank=True)  # why the last attempt changed nothing
    losing = models.PositiveIntegerField(default=0)  # people who would have lost all groups, if too many
    # When operators were notified that it cannot be read; null: they were not.
    notified_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.provider} at {self.tried_at}"


class MissingProvider(models.Model):
    """An identity provider that has reported groups and is no longer in the settings, found by the job that reads directories.
    What it gave ends some time after `since`, because a process may have other settings than the rest for a while."""

    provider = models.CharField(max_length=30, unique=True)
    since = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.provider} missing since {self.since}"


class Invitation(models.Model):
    """A link that makes its first user a member; only the digest of its secret is stored."""

    department = models.ForeignKey(Department, on_delete=models.CASCADE, related_name="invitations")
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.MEMBER)
    email = models.EmailField(blank=True)
    digest = models.CharField(max_length=64, unique=True)
    created_by = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField()
    accepted_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    accepted_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"invitation to {self.department}"


class TokenPeriod(models.TextChoices):
    """The period for which a token's GPU-hours are counted."""

    MONTH = "month", _("each calendar month")
    TOTAL = "total", _("in all")


class ApiToken(models.Model):
    """A bearer token: `gqp_<prefix>_<secret>`, shown once, stored as a digest. It acts within its holder's present role.

    `is_live` only considers its own row and its parent's; portal/accounts/bearer_tokens.py decides whether it may be used.
    """

    holder = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    # Null: the whole installation, for operators.
    department = models.ForeignKey(Department, null=True, on_delete=models.CASCADE, related_name="tokens")
    made_by = models.ForeignKey(User, null=True, on_delete=models.CASCADE, related_name="+")
    # The token that created it, and with which it ends; a child cannot create tokens.
    parent = models.ForeignKey("self", null=True, on_delete=models.CASCADE, related_name="children")
    name = NameField(_("name"), max_length=80)
    prefix = models.CharField(max_length=12, unique=True)
    digest = models.CharField(max_length=64)
    scopes = models.JSONField(default=list)  # of portal.access.Right
    addresses = models.JSONField(default=list, blank=True)  # networks it may come from; empty: any
    # Limit for the workloads that it and its children submit (workloads/requests/token_budgets.py); null: no limit.
    gpu_hours = models.PositiveIntegerField(_("GPU-hours"), null=True)
    gpu_hours_per = models.CharField(max_length=5, choices=TokenPeriod.choices, default="month", db_default="month")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(_("expires"))
    last_used_at = models.DateTimeField(null=True, editable=False)
    revoked_at = models.DateTimeField(null=True, editable=False)

    def __str__(self) -> str:
        return self.name

    def is_live(self, now: dt.datetime) -> bool:
        if self.revoked_at is not None or now >= self.expires_at:
            return False
        return self.parent is None or self.parent.is_live(now)


class AuditEntry(models.Model):
    """Who changed what, written in the same transaction as the change. Append-only."""

    at = models.DateTimeField(default=timezone.now, editable=False, db_index=True)
    actor = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    actor_name = models.CharField(max_length=150)  # stays when the user is gone; "system" for scheduled jobs
    token_name = models.CharField(max_length=80, blank=True)
    action = models.CharField(max_length=60, db_index=True)  # dotted: quota.changed, workload.stopped
    department = models.ForeignKey(Department, null=True, on_delete=models.SET_NULL, related_name="+")
    target = models.CharField(max_length=120)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    request_id = models.CharField(max_length=40, blank=True)
    # the file it was applied from (workloads/configuration)
    source = models.CharField(max_length=200, blank=True, default="", db_default="")

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "audit entries"

    def __str__(self) -> str:
        return f"{self.at:%F %T} {self.actor_name} {self.action} {self.target}"

    @property
    def actor_label(self) -> str:
        """The person's full name, or the stored login name if the account is deleted."""
        return self.actor.label if self.actor else self.actor_name


class CurrentTransaction(models.Func):
    """The id of the writing transaction on PostgreSQL; 0 on SQLite, which has one writer at a time."""

    output_field = models.BigIntegerField()

    def as_sql(self, compiler: Any, connection: Any, **context: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        if connection.vendor == "postgresql":
            return "(pg_current_xact_id()::text::bigint)", []
        return "0", []


class Event(models.Model):
    """What happened, for event streams and timelines; readable in commit order by (tx, id) (portal/notify/events.py)."""

    tx = models.BigIntegerField(db_default=CurrentTransaction(), editable=False)
    at = models.DateTimeField(default=timezone.now, editable=False, db_index=True)
    kind = models.CharField(max_length=40)  # workload.running, quota.changed, pool.short, …
    department = models.ForeignKey(Department, null=True, on_delete=models.CASCADE, related_name="+")
    workload = models.CharField(max_length=26, blank=True)  # its public id
    data = models.JSONField(default=dict)

    class Meta:
        ordering = ["tx", "id"]
        indexes = [
            models.Index(fields=["tx", "id"], name="event_in_commit_order"),
            models.Index(fields=["workload", "id"], name="event_of_workload"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.workload}"


class SavedFilter(models.Model):
    """A person's own name for the filters, order and columns of one list."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="saved_filters")
    path = models.CharField(max_length=200)  # of the list's page
    name = NameField(max_length=60)
    query = models.CharField(max_length=1000, blank=True)  # the query string

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["user", "path", "name"], name="one_saved_filter_a_name")]

    def __str__(self) -> str:
        return self.name


class InboxItem(models.Model):
    """One line of one person's inbox; the sentence is composed from kind and data in the reader's language."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="inbox")
    kind = models.CharField(max_length=40)  # see portal/notify/notices.py
    department = models.ForeignKey(Department, null=True, on_delete=models.CASCADE, related_name="+")
    workload = models.CharField(max_length=26, blank=True)
    data = models.JSONField(default=dict)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    read_at = models.DateTimeField(null=True)
    mail_due_at = models.DateTimeField(null=True)  # the next attempt; null: nothing to send
    mail_tries = models.PositiveSmallIntegerField(default=0)
    mailed_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["user", "-id"], name="inbox_of_user"),
            models.Index(fields=["mail_due_at"], condition=Q(mail_due_at__isnull=False), name="inbox_mail_due"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} for {self.user}"


class NoticePreference(models.Model):
    """One person's choice for one kind of notice; without a row the kind's default holds."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="notice_preferences")
    kind = models.CharField(max_length=40)
    inbox = models.BooleanField(default=True)
    mail = models.BooleanField(default=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "kind"], name="one_preference_a_kind")]

    def __str__(self) -> str:
        return f"{self.user}: {self.kind}"


class WebhookShape(models.TextChoices):
    GENERIC = "generic", _("signed JSON")
    SLACK = "slack", _("Slack")
    TEAMS = "teams", _("Microsoft Teams")
    WECOM = "wecom", _("WeCom (企业微信)")
    FEISHU = "feishu", _("Feishu (飞书)")
    DINGTALK = "dingtalk", _("DingTalk (钉钉)")


class Webhook(models.Model):
    department = models.ForeignKey(Department, on_delete=models.CASCADE, related_name="webhooks")
    name = NameField(_("name"), max_length=80)
    url = models.URLField(_("address"), max_length=500)
    shape = models.CharField(max_length=10, choices=WebhookShape.choices, default=WebhookShape.GENERIC)
    secret = models.TextField(blank=True)  # encrypted (portal/infra/crypt.py)
    language = models.CharField(_("language"), max_length=10, choices=settings.LANGUAGES, default="en", db_default="en")
    kinds = models.JSONField(default=list, blank=True)  # empty: all
    active = models.BooleanField(default=True)
    version = models.PositiveIntegerField(default=1, db_default=1)  # of the fields that people set: the ETag
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    # The circuit breaker (portal/notify/outbox.py): due deliveries wait until `open_until`, then one is tried.
    failures = models.PositiveIntegerField(default=0, editable=False)  # in a row, without tests
    failing_since = models.DateTimeField(null=True, editable=False)
    open_until = models.DateTimeField(null=True, editable=False)

    def __str__(self) -> str:
        return self.name


class SendingLane(models.Model):
    """A receiver of messages, one at a time over all processes: a host of webhooks, or the mail server."""

    lane = models.CharField(max_length=300, unique=True)
    busy_until = models.DateTimeField()  # end of the present sender's lease; in the past: free

    def __str__(self) -> str:
        return self.lane


class WebhookDelivery(models.Model):
    """An outbox row: written with the change, sent by a background job, tried again after growing pauses."""

    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries")
    kind = models.CharField(max_length=40)
    data = models.JSONField(default=dict)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    due_at = models.DateTimeField(default=timezone.now, db_index=True)
    tries = models.PositiveSmallIntegerField(default=0)
    status = models.PositiveSmallIntegerField(null=True)  # HTTP status of the last attempt
    error = models.CharField(max_length=300, blank=True)
    sent_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "webhook deliveries"

    def __str__(self) -> str:
        return f"{self.kind} to {self.webhook}"


class JobRun(models.Model):
    """One tick of one scheduled job. The unique (job, slot) makes a second beat harmless."""

    job = models.CharField(max_length=60)
    slot = models.BigIntegerField()  # start of the tick, seconds since 1970
    started_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True)
    error = models.TextField(blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "slot"], name="one_run_a_slot")]
        indexes = [models.Index(fields=["job", "-slot"], name="job_last_runs")]

    def __str__(self) -> str:
        return f"{self.job} at {self.slot}"


class Heartbeat(models.Model):
    """The last sign of life of a long-running process (worker, beat, watcher of a cluster)."""

    name = models.CharField(max_length=80, unique=True)
    at = models.DateTimeField()
    data = models.JSONField(default=dict)

    def __str__(self) -> str:
        return self.name


class AnswerCount(models.Model):
    """Responses of the web processes since the installation began, by kind (api, page), status and time
    (portal/server/answers.py)."""

    kind = models.CharField(max_length=8)
    status = models.CharField(max_length=3)  # 2xx to 5xx
    bound = models.PositiveIntegerField()  # upper bound in ms
    answers = models.PositiveBigIntegerField()
    milliseconds = models.PositiveBigIntegerField()  # sum of all

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kind", "status", "bound"], name="one_count_a_bound")]

    def __str__(self) -> str:
        return f"{self.kind} {self.status} within {self.bound} ms"


class IdempotencyKey(models.Model):
    """The stored response of a POST: same key and body → the same response; kept for 24 hours."""

    holder = models.CharField(max_length=80)  # token or user
    method = models.CharField(max_length=7)
    path = models.CharField(max_length=300)
    key = models.CharField(max_length=255)
    body_digest = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(null=True)  # null: still in flight
    headers = models.JSONField(default=dict)
    body = models.TextField(blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False, db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["holder", "method", "path", "key"], name="one_answer_a_key"),
        ]

    def __str__(self) -> str:
        return self.key


def public_id_field() -> models.CharField[str, str]:
    return models.CharField(max_length=26, unique=True, default=new_id, editable=False)
