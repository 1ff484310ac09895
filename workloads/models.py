"""Images, presets, workloads, attempts, logs, mode changes, measured use, idle policies, estimates and backtests."""

from __future__ import annotations

import datetime as dt

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from portal import names
from portal.ids import new_id
from portal.models import ApiToken, Department, User
from portal.names import LineField, NameField
from quotas.models import Claim, Cluster, Node, Pool, PoolGroup
from workloads import mode_lifecycle
from workloads.lifecycle import FINAL
from workloads.lifecycle import State as S
from workloads.runtime.external import ExternalRef
from workloads.runtime.setups import Setup


class Kind(models.TextChoices):
    JOB = "job", _("job")
    NOTEBOOK = "notebook", _("notebook")
    DISTRIBUTED = "distributed", _("distributed job")
    SERVICE = "service", _("service")
    EXTERNAL = "external", _("submitted elsewhere")


ASKED_HERE = tuple(kind.value for kind in Kind if kind is not Kind.EXTERNAL)
"""Kinds of workloads that people submit through the portal."""
CHOICES = [(kind.value, kind.label) for kind in Kind if kind is not Kind.EXTERNAL]


class State(models.TextChoices):
    """workloads.lifecycle.State with the words people read."""

    QUEUED = S.QUEUED.value, _("queued")
    ADMITTED = S.ADMITTED.value, _("admitted")
    STARTING = S.STARTING.value, _("starting")
    RUNNING = S.RUNNING.value, _("running")
    RECALLED = S.RECALLED.value, _("being recalled")
    STOPPING = S.STOPPING.value, _("stopping")
    SUCCEEDED = S.SUCCEEDED.value, _("succeeded")
    FAILED = S.FAILED.value, _("failed")
    CANCELLED = S.CANCELLED.value, _("cancelled")
    REJECTED = S.REJECTED.value, _("rejected")


class Image(models.Model):
    """What a workload may run in. On the embedded cluster it maps to a local interpreter."""

    name = LineField(_("reference"), max_length=200, unique=True)
    title = NameField(_("title"), max_length=100)
    kinds = models.JSONField(default=list)  # of Kind; empty: all
    interpreter = LineField(max_length=300, blank=True)  # embedded cluster only
    min_driver = models.PositiveIntegerField(null=True, blank=True)  # major version
    active = models.BooleanField(default=True)

    class Meta:
        ordering = ["title"]

    def __str__(self) -> str:
        return self.title

    @classmethod
    def catalogue(cls) -> models.QuerySet[Image]:
        """The images that operators entered; the others are those of external runs."""
        return cls.objects.exclude(kinds=[Kind.EXTERNAL.value])

    @classmethod
    def to_enter(cls, name: str) -> Image:
        """A new entry of the catalogue, to be filled in and saved; in the row of an external run's image, if there is one."""
        row = cls.objects.filter(name=name, kinds=[Kind.EXTERNAL.value]).first() or cls(name=name)
        row.title, row.kinds, row.active = "", [], True
        return row

    def serves(self, kind: str) -> bool:
        return not self.kinds or kind in self.kinds

    @property
    def kind_labels(self) -> list[str]:
        """Labels of the kinds of workload that the image is for; [] if it is for all."""
        return [str(Kind(kind).label) if kind in Kind.values else kind for kind in self.kinds]


class Preset(models.Model):
    """A filled form: the fast way to a usual workload."""

    slug = models.SlugField(max_length=40, unique=True)
    title = NameField(max_length=100)
    description = LineField(max_length=200, blank=True)
    kind = models.CharField(max_length=12, choices=CHOICES)
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="presets")
    pods = models.PositiveIntegerField(default=1)
    units_per_pod = models.PositiveIntegerField(default=1)
    cores_per_pod = models.PositiveIntegerField(null=True, blank=True)  # percent of a card's compute
    profile = LineField(max_length=40, blank=True)
    image = models.ForeignKey(Image, on_delete=models.CASCADE, related_name="+")
    command = models.JSONField(default=list)
    cpu_milli = models.PositiveIntegerField(default=2000)
    memory_mib = models.PositiveIntegerField(default=8192)
    max_runtime = models.PositiveIntegerField(null=True, blank=True)
    setup = models.JSONField(default=dict, blank=True)  # workloads.runtime.setups.Setup
    order = models.PositiveSmallIntegerField(default=0)
    active = models.BooleanField(default=True)

    class Meta:
        ordering = ["order", "title"]

    def __str__(self) -> str:
        return self.title

    @property
    def settings(self) -> Setup:
        return Setup.from_json(self.setup)


class RequestTemplate(models.Model):
    """A saved request for a workload: one person's, or, without a person, the department's."""

    public_id = models.CharField(max_length=26, unique=True, default=new_id, editable=False)
    department = models.ForeignKey(Department, on_delete=models.CASCADE, related_name="request_templates")
    person = models.ForeignKey(User, null=True, on_delete=models.CASCADE, related_name="request_templates")
    name = NameField(_("name"), max_length=100)
    body = models.JSONField()  # as POST …/workloads/ takes it, with no secret value
    saved_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["name", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["department", "person", "name"], condition=~Q(person=None), name="one_personal_template_a_name"
            ),
            models.UniqueConstraint(
                fields=["department", "name"], condition=Q(person=None), name="one_department_template_a_name"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def shared(self) -> bool:
        """Whether the template belongs to the department."""
        return self.person_id is None


TEXTS = ("command", "env", "secret_env")
"""Columns of a workload that may hold hundreds of KiB: lists do not read them."""


class Workload(models.Model):
    """A workload that a person or program submitted; it keeps its id through all attempts."""

    public_id = models.CharField(max_length=26, unique=True, default=new_id, editable=False)
    department = models.ForeignKey(Department, on_delete=models.PROTECT, related_name="workloads")
    author = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="workloads")
    # With which it was submitted.
    token = models.ForeignKey(ApiToken, null=True, on_delete=models.SET_NULL, related_name="+")
    kind = models.CharField(max_length=12, choices=Kind.choices)
    name = NameField(_("name"), max_length=100)
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="workloads")
    preset = models.ForeignKey(Preset, null=True, on_delete=models.SET_NULL, related_name="+")
    image = models.ForeignKey(Image, on_delete=models.PROTECT, related_name="+")
    command = models.JSONField(default=list)
    own_words = models.JSONField(default=list)  # positions in it that a preset wrote: $(PORTAL_…) there is replaced
    env = models.JSONField(default=dict)
    secret_env = models.TextField(blank=True)  # encrypted JSON; never shown again
    pods = models.PositiveIntegerField(default=1)
    units_per_pod = models.PositiveIntegerField()  # the charge
    asked_per_pod = models.PositiveIntegerField(null=True)  # less than the charge where compute is the larger share
    cores_per_pod = models.PositiveIntegerField(null=True)  # percent of a card's compute
    profile = models.CharField(max_length=40, blank=True)
    cpu_milli = models.PositiveIntegerField(default=1000)
    memory_mib = models.PositiveIntegerField(default=2048)
    priority = models.IntegerField(default=0)
    preemptible = models.BooleanField(default=True)
    own_only = models.BooleanField(default=False)
    max_runtime = models.PositiveIntegerField(null=True)  # s, of each attempt
    max_wait = models.PositiveIntegerField(null=True)  # s in the queue before it is rejected
    setup = models.JSONField(default=dict)  # workloads.runtime.setups.Setup
    shared = models.BooleanField(default=False)  # a notebook others of the department may open
    rerun_of = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="reruns")

    state = models.CharField(max_length=10, choices=State.choices, default=State.QUEUED)
    version = models.PositiveBigIntegerField(default=1)  # grows with every visible change
    attempts_made = models.PositiveIntegerField(default=0)
    reclaims = models.PositiveIntegerField(default=0)
    restarts = models.PositiveIntegerField(default=0)  # after failures of its own; at most setup's max_restarts
    cancel_requested_at = models.DateTimeField(null=True)
    cancelled_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    submitted_at = models.DateTimeField(default=timezone.now)
    state_since = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True)
    exit_code = models.IntegerField(null=True)
    reason = models.CharField(max_length=60, blank=True)  # code of the reason for its end
    message = models.CharField(max_length=500, blank=True)
    files_removed_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-public_id"]
        indexes = [
            models.Index(fields=["department", "-public_id"], name="workload_of_department"),
            models.Index(fields=["author", "-public_id"], name="workload_of_author"),
            models.Index(
                fields=["state"],
                condition=~Q(state__in=["succeeded", "failed", "cancelled", "rejected"]),
                name="workload_live",
            ),
        ]
        constraints = [models.CheckConstraint(condition=Q(pods__gt=0), name="workload_has_pods")]

    def __str__(self) -> str:
        return self.name

    @property
    def is_final(self) -> bool:
        return S(self.state) in FINAL

    @property
    def settings(self) -> Setup:
        return Setup.from_json(self.setup)

    @property
    def volume(self) -> str:
        """Name of its working directory, which is kept through all attempts."""
        return f"w-{self.public_id}"

    @property
    def asked_units(self) -> int:
        """Units that its pods take of their cards: less than the charge if compute, CPU or memory are the larger
        share."""
        return (self.asked_per_pod or self.units_per_pod) * self.pods

    @property
    def units(self) -> int:
        return self.pods * self.units_per_pod


class StopCause(models.TextChoices):
    RECALLED = "recalled", _("recalled")
    CANCELLED = "cancelled", _("cancelled")
    EXPIRED = "expired", _("reached its maximum runtime")
    STUCK = "stuck", _("could not be started")
    IDLE = "idle", _("idle")


class Attempt(models.Model):
    """One run of a workload, from its claim to its end."""

    workload = models.ForeignKey(Workload, on_delete=models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField()
    claim = models.OneToOneField(Claim, on_delete=models.PROTECT, related_name="attempt")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="attempts")
    run_name = models.CharField(max_length=63, unique=True)  # the same at every retry: creating twice finds the first
    namespace = models.CharField(max_length=63, blank=True)
    submission_id = models.CharField(max_length=26, unique=True, default=new_id, editable=False)
    placement = models.JSONField(null=True)
    node = models.CharField(max_length=253, blank=True)
    cards = models.JSONField(default=list)  # read back, where the sharing system reports them
    ranks = models.JSONField(default=list)  # of a gang or service: one object for each rank (runtime.gangs.as_rows)
    notice = models.PositiveIntegerField(default=0)  # frozen at admission
    grace = models.PositiveIntegerField(default=0)
    token_digest = models.CharField(max_length=64, blank=True)  # bound to this attempt, scope "ready"
    secrets = models.TextField(blank=True)  # encrypted: ready token and notebook token

    queued_at = models.DateTimeField(default=timezone.now)
    admitted_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(null=True)  # the cluster has it
    started_at = models.DateTimeField(null=True)
    recalled_at = models.DateTimeField(null=True)  # notice began
    reclaim_at = models.DateTimeField(null=True)  # SIGTERM is due
    announced_at = models.DateTimeField(null=True)  # reclaim_at is written where the container reads it
    ready_at = models.DateTimeField(null=True)  # it reported "checkpoint written, may be stopped"
    stopping_at = models.DateTimeField(null=True)  # SIGTERM sent
    finished_at = models.DateTimeField(null=True)
    stop_cause = models.CharField(max_length=10, choices=StopCause.choices, blank=True)
    outcome = models.CharField(max_length=12, blank=True)  # succeeded | failed | recalled | cancelled | lost
    exit_code = models.IntegerField(null=True)
    reason = models.CharField(max_length=60, blank=True)
    message = models.CharField(max_length=500, blank=True)
    checkpointed_at = models.DateTimeField(null=True)
    removed_at = models.DateTimeField(null=True)  # from the cluster

    class Meta:
        ordering = ["workload", "number"]
        constraints = [
            models.UniqueConstraint(fields=["workload", "number"], name="one_attempt_a_number"),
            models.UniqueConstraint(
                fields=["workload"], condition=Q(finished_at=None), name="one_live_attempt_a_workload"
            ),
        ]
        indexes = [
            models.Index(fields=["cluster"], condition=Q(removed_at=None), name="attempt_on_cluster"),
            models.Index(fields=["cluster", "finished_at"], name="attempt_ended"),
        ]

    def __str__(self) -> str:
        return self.run_name

    def get_outcome_display(self) -> str:
        """The outcome as a word."""
        words = {
            "succeeded": _("succeeded"), "failed": _("failed"), "recalled": _("recalled"), "cancelled": _("cancelled"),
            "lost": _("node or pod lost"),
        }  # fmt: skip
        return str(words.get(self.outcome, self.outcome))


class ExternalWork(models.Model):
    """An external run, which others submitted to a cluster, and its workload (workloads/runtime/external.py)."""

    workload = models.OneToOneField(Workload, on_delete=models.CASCADE, related_name="external")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    # uid of the admitted object or pod; null: another workload has it now.
    key = models.CharField(max_length=63, null=True)
    api = models.CharField(max_length=253)  # group and version
    kind = models.CharField(max_length=63)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    uid = models.CharField(max_length=63)
    pod = models.CharField(max_length=253, blank=True)  # if each pod of the object is admitted by itself
    pod_uid = models.CharField(max_length=63, blank=True)
    asked = models.JSONField(default=dict)  # of each pod: sharing.outside.asked
    bound = models.PositiveIntegerField(default=1)  # number of the attempt for which `key` was found or created
    missing_since = models.DateTimeField(null=True)  # since when it has had no pods
    submitted_by = models.CharField(max_length=253, blank=True)  # as the cluster names them
    submitted_with = models.CharField(max_length=40, blank=True)
    manifest = models.TextField(blank=True)  # encrypted JSON of a pod without an owner, while it is needed
    status = models.CharField(max_length=900, blank=True)  # the sentence last written in the cluster
    status_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "key"], name="one_workload_an_external_run")]
        indexes = [models.Index(fields=["cluster", "uid"], name="external_by_owner")]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.pod or self.name}"

    @property
    def ref(self) -> ExternalRef:
        return ExternalRef(self.api, self.kind, self.namespace, self.name, self.uid, self.pod, self.pod_uid, self.asked)

    @property
    def sentence(self) -> str:
        """What was submitted by whom and with which tool, for the workload's page."""
        facts = {"by": self.submitted_by or "?", "what": str(self), "tool": self.submitted_with}
        if self.submitted_with:
            return str(_("%(what)s, submitted with %(tool)s by %(by)s") % facts)
        return str(_("%(what)s, submitted by %(by)s") % facts)


class AttemptLog(models.Model):
    """The end of one rank's log in `parts`, stored before the run is removed from the cluster. The `start` bytes before it are
    lost."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="kept_logs")
    rank = models.PositiveIntegerField(default=0)
    start = models.PositiveBigIntegerField(default=0)
    data = models.BinaryField(default=bytes)  # zlib: the whole log, from versions without parts

    class Meta:
        constraints = [models.UniqueConstraint(fields=["attempt", "rank"], name="one_log_a_rank")]

    def __str__(self) -> str:
        return f"log of {self.attempt} rank {self.rank}"


class LogPart(models.Model):
    """Bytes `start` to `end` of a stored log, so that reading a piece need not unpack the whole log."""

    log = models.ForeignKey(AttemptLog, on_delete=models.CASCADE, related_name="parts")
    start = models.PositiveBigIntegerField()
    end = models.PositiveBigIntegerField()
    data = models.BinaryField()  # zlib

    class Meta:
        ordering = ["start"]
        constraints = [models.UniqueConstraint(fields=["log", "start"], name="one_part_a_place")]

    def __str__(self) -> str:
        return f"{self.start} to {self.end} of a log"


class ModeStage(models.TextChoices):
    """workloads.mode_lifecycle.Stage with the words people read."""

    DRAINING = mode_lifecycle.Stage.DRAINING.value, _("draining")
    APPLYING = mode_lifecycle.Stage.APPLYING.value, _("writing")
    VERIFYING = mode_lifecycle.Stage.VERIFYING.value, _("waiting for the cluster")
    REVERTING = mode_lifecycle.Stage.REVERTING.value, _("restoring")
    DONE = mode_lifecycle.Stage.DONE.value, _("done")
    CANCELLED = mode_lifecycle.Stage.CANCELLED.value, _("cancelled")
    REVERTED = mode_lifecycle.Stage.REVERTED.value, _("restored")
    FAILED = mode_lifecycle.Stage.FAILED.value, _("failed")


class ModeChange(models.Model):
    """One change of a node's mode, from the operator's request until the node is back in service."""

    public_id = models.CharField(max_length=26, unique=True, default=new_id, editable=False)
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="mode_changes")
    author = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    target = models.JSONField()  # nodes.modes.recipes.Target
    before = models.JSONField()  # labels that will be written, as they were; sharing, held_back, drained
    labels = models.JSONField()  # what is written: {label: value, or null to remove it}
    deadlines = models.JSONField(default=dict)  # of the claims recalled for it: {public id: leave_by}
    stage = models.CharField(max_length=10, choices=ModeStage.choices, default=ModeStage.DRAINING)
    stage_since = models.DateTimeField(default=timezone.now)
    deadline = models.DateTimeField(null=True)  # of the stage; null: it waits for work that must not be stopped
    cancel_requested_at = models.DateTimeField(null=True)
    written_at = models.DateTimeField(null=True)  # in this stage
    noticed_at = models.DateTimeField(null=True)  # the cluster was first seen to work on it
    started_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True)
    message = models.CharField(max_length=300, blank=True)  # why it was reverted or failed, or what it waits for

    class Meta:
        ordering = ["-public_id"]
        constraints = [
            models.UniqueConstraint(fields=["node"], condition=Q(finished_at=None), name="one_live_change_a_node")
        ]

    def __str__(self) -> str:
        return f"{self.node} {self.stage}"

    @property
    def is_final(self) -> bool:
        return mode_lifecycle.Stage(self.stage) in mode_lifecycle.FINAL


class MetricsAuth(models.TextChoices):
    NONE = "none", _("none")
    BEARER = "bearer", _("bearer token")
    BASIC = "basic", _("user name and password")


class MetricsSource(models.Model):
    """Where the use of a cluster's pods is measured: its Prometheus. The embedded cluster measures itself (`url` "").

    `failure`: why the last try failed, to be translated: {"message", "params"}; empty while it works.
    """

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, related_name="metrics_source")
    url = LineField(max_length=500, blank=True)
    auth = models.CharField(max_length=8, choices=MetricsAuth.choices, default=MetricsAuth.NONE)
    username = models.CharField(max_length=200, blank=True)
    secret = models.TextField(blank=True, editable=False)  # encrypted: the token or the password
    ca = models.TextField(blank=True)  # PEM; "": the system's certificates
    exporters = models.JSONField(default=list)  # keys of measurement.series.EXPORTERS
    selector = LineField(max_length=300, blank=True)  # further label matchers: cluster="a"
    measured_at = models.DateTimeField(null=True, editable=False)  # the last time that all queries were answered
    ranks = models.PositiveIntegerField(default=0, editable=False)  # measured then
    gpu_ranks = models.PositiveIntegerField(default=0, editable=False)  # of them with GPU activity
    failing_since = models.DateTimeField(null=True, editable=False)
    notified_at = models.DateTimeField(null=True, editable=False)  # operators were notified of this outage
    failure = models.JSONField(default=dict, editable=False)
    complete_until = models.DateTimeField(null=True, editable=False)  # every bucket that ended by then is summed

    def __str__(self) -> str:
        return f"metrics of {self.cluster}"


class Measured(models.Model):
    """The mean use of one rank in a period that begins at `at`. Null: not measured, which is never 0.

    No row has an id of its own: there are millions.
    """

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="+", db_index=False)
    at = models.DateTimeField()
    gpu_mib = models.PositiveIntegerField(null=True)  # of all its cards together, as are the watts
    watts = models.PositiveIntegerField(null=True)
    cpu_milli = models.PositiveIntegerField(null=True)
    memory_mib = models.PositiveIntegerField(null=True)
    gpu = models.PositiveSmallIntegerField(null=True)  # per mille of the time in which its cards computed
    rank = models.PositiveSmallIntegerField()
    cards = models.PositiveSmallIntegerField(default=0)  # cards or instances that were measured

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.attempt} at {self.at:%Y-%m-%d %H:%M}"


class MeasuredBucket(Measured):
    """The mean use in five minutes (workloads/measurement/buckets.py)."""

    pk = models.CompositePrimaryKey("attempt", "rank", "at")

    class Meta:
        indexes = [models.Index(fields=["at"], name="measured_bucket_at")]


class MeasuredHour(Measured):
    """The mean use in an hour, from its buckets. `seconds`: how long the rank ran and its GPU activity was measured."""

    pk = models.CompositePrimaryKey("attempt", "rank", "at")
    seconds = models.PositiveSmallIntegerField(default=0)

    class Meta:
        indexes = [models.Index(fields=["at"], name="measured_hour_at")]


class MeasuredWork(models.Model):
    """An hour at the grain of reports (quotas.WorkHour), for one person's workloads of one kind. `covered`: unit-seconds whose
    GPU activity was measured; `active`: those of them in which the cards computed."""

    department = models.ForeignKey(Department, on_delete=models.CASCADE, related_name="+", db_index=False)
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="+", db_index=False)
    person = models.CharField(max_length=150, blank=True)
    kind = models.CharField(max_length=12, blank=True)
    hour = models.DateTimeField()
    active = models.PositiveBigIntegerField()
    covered = models.PositiveBigIntegerField()

    class Meta:
        indexes = [models.Index(fields=["hour", "pool"], name="measured_work_by_hour")]

    def __str__(self) -> str:
        return f"{self.person} {self.pool} {self.active} of {self.covered}"


class IdlePolicy(models.Model):
    """When workloads are idle, and what happens then (workloads/idle/policies.py): the policy of a pool, or a stricter one of a
    department in it. `rules`: kind of workload → {"below", "minutes", "action", "countdown", "keep"}."""

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="idle_policies")
    department = models.ForeignKey(Department, null=True, on_delete=models.CASCADE, related_name="+")  # null: everybody
    rules = models.JSONField(default=dict)
    # The ETag; a row without rules stays, so that the version never decreases.
    version = models.PositiveIntegerField(default=1)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["pool"], condition=Q(department=None), name="one_idle_policy_a_pool"),
            models.UniqueConstraint(fields=["pool", "department"], name="one_idle_policy_a_department"),
        ]

    def __str__(self) -> str:
        return f"idle policy of {self.department or 'all'} in {self.pool}"


class IdleExemption(models.Model):
    """Until when workloads are neither warned nor stopped for being idle: one workload, or all of a department and those below
    it."""

    public_id = models.CharField(max_length=26, unique=True, default=new_id, editable=False)
    department = models.ForeignKey(Department, on_delete=models.CASCADE, related_name="idle_exemptions")
    workload = models.ForeignKey(Workload, null=True, on_delete=models.CASCADE, related_name="idle_exemptions")
    why = models.TextField(max_length=500, validators=[names.paragraph])
    until = models.DateTimeField()
    author = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True)  # withdrawn before its time

    class Meta:
        ordering = ["-public_id"]
        indexes = [models.Index(fields=["until"], condition=Q(ended_at=None), name="idle_exemption_live")]

    def __str__(self) -> str:
        return f"{self.workload or self.department} until {self.until:%F}"

    @property
    def lasts_until(self) -> dt.datetime:
        """The last minute of the exemption, so that the end of a day is shown as that day, not as the next."""
        return self.until - dt.timedelta(minutes=1)


class SpellEnd(models.TextChoices):
    BUSY = "busy", _("became busy")
    STOPPED = "stopped", _("stopped")
    EXEMPT = "exempt", _("exempted")
    POLICY = "policy", _("the policy no longer applies")
    UNKNOWN = "unknown", _("no longer measured")
    GONE = "gone", _("ended by itself")


class IdleSpell(models.Model):
    """The warning of an idle attempt. `rule`: the rule of the warning; `stops_at`: when it will be stopped; null: only warned."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="idle_spells")
    since = models.DateTimeField()  # when it became quiet
    warned_at = models.DateTimeField()
    stops_at = models.DateTimeField(null=True)
    rule = models.JSONField(default=dict)
    kept_at = models.DateTimeField(null=True)  # *Keep it* was pressed
    kept_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    reminded_at = models.DateTimeField(null=True)  # reminder after *Keep it* that it is about to be stopped
    stop_decided_at = models.DateTimeField(null=True)  # cannot be undone
    ended_at = models.DateTimeField(null=True)
    end = models.CharField(max_length=8, choices=SpellEnd.choices, blank=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["attempt"], condition=Q(ended_at=None), name="one_idle_spell_an_attempt")
        ]

    def __str__(self) -> str:
        return f"{self.attempt} idle since {self.since:%F %T}"


class StartEstimate(models.Model):
    """When a waiting attempt will probably start, as last estimated, and the first estimate, which is compared with the actual
    start. All times null: there is no estimate, for the reason `why` (estimates.forward.NoEstimate)."""

    attempt = models.OneToOneField(Attempt, on_delete=models.CASCADE, related_name="start_estimate")
    made_at = models.DateTimeField()
    why = models.CharField(max_length=20, blank=True)
    low = models.DateTimeField(null=True)
    median = models.DateTimeField(null=True)
    high = models.DateTimeField(null=True)  # null beside a low: it may take longer than the horizon
    # If all workloads run to their maximum runtime; null: it may start even later.
    latest = models.DateTimeField(null=True)
    basis = models.CharField(max_length=16, blank=True)  # estimates.runtimes.Class; blank: maximum runtimes alone
    played = models.JSONField(null=True)  # low, median, high as simulated, before the correction by past errors (s)
    first_played = models.JSONField(null=True)
    first_made_at = models.DateTimeField(null=True)
    first_low = models.DateTimeField(null=True)
    first_median = models.DateTimeField(null=True)
    first_high = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["first_made_at"], name="start_estimate_first")]

    def __str__(self) -> str:
        return (
            f"start of {self.attempt} about {self.median:%F %T}"
            if self.median
            else f"start of {self.attempt}: {self.why}"
        )


class CalendarFeed(models.Model):
    """The secret address at which a person's calendar program reads the expected times of their workloads. Stored as a digest."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="calendar_feed")
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    read_at = models.DateTimeField(null=True, editable=False)

    def __str__(self) -> str:
        return f"calendar of {self.user}"


class BacktestState(models.TextChoices):
    QUEUED = "queued", _("queued")
    RUNNING = "running", _("running")
    DONE = "done", _("done")
    FAILED = "failed", _("failed")
    CANCELLED = "cancelled", _("cancelled")


class Backtest(models.Model):
    """How a pool group would have fared between `begin` and `end` under a draft (workloads/backtests). `changes`: the draft's
    values when it was requested, as [name, before, after]; `result`: figures of a replay under today's rules and under the draft:
    {"now", "draft", "unknown": workloads left out}; `why`: why it failed: {"message", "params"}."""

    public_id = models.CharField(max_length=26, unique=True, default=new_id, editable=False)
    group = models.ForeignKey(PoolGroup, on_delete=models.CASCADE, related_name="backtests")
    author = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    begin = models.DateTimeField()
    end = models.DateTimeField()
    draft = models.TextField()  # part of a configuration file
    changes = models.JSONField(default=list)
    state = models.CharField(max_length=10, choices=BacktestState.choices, default=BacktestState.QUEUED)
    percent = models.PositiveSmallIntegerField(default=0)
    tries = models.PositiveSmallIntegerField(default=0)
    beat_at = models.DateTimeField(null=True)  # last heartbeat of the worker that plays it
    result = models.JSONField(null=True)
    why = models.JSONField(default=dict)
    asked_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-public_id"]
        constraints = [
            models.UniqueConstraint(
                fields=["author"], condition=Q(state__in=["queued", "running"]), name="one_live_backtest_a_person"
            )
        ]
        indexes = [models.Index(fields=["asked_at"], condition=Q(ended_at=None), name="backtest_live")]

    def __str__(self) -> str:
        return f"backtest of {self.group} by {self.author}"

    @property
    def is_live(self) -> bool:
        return self.ended_at is None
