"""Clusters, pools, quotas, claims, decisions and the ledger. Amounts are integers in the pool's unit."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from portal import names
from portal.ids import new_id
from portal.models import Department, User


class ClusterKind(models.TextChoices):
    EMBEDDED = "embedded", _("this machine (demo)")
    KUBERNETES = "kubernetes", "Kubernetes"


class Cluster(models.Model):
    name = models.SlugField(_("name"), max_length=40, unique=True)
    kind = models.CharField(max_length=12, choices=ClusterKind.choices)
    connection = models.TextField(blank=True, editable=False)  # encrypted kubeconfig; empty: in-cluster account
    options = models.JSONField(default=dict, blank=True)  # volumes, namespace prefix, declared nodes of an embedded one
    active = models.BooleanField(default=True)
    unreachable_since = models.DateTimeField(null=True, editable=False)
    seen_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class PoolGroup(models.Model):
    """Pools that share nodes and are planned together. Its row is the lock for everything that makes capacity less available."""

    name = models.SlugField(max_length=60, unique=True)
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="groups")
    planned_at = models.DateTimeField(null=True, editable=False)  # end of the last pass
    # null: as in the installation's settings
    fair_sharing = models.BooleanField(_("fair sharing"), null=True, blank=True)
    starvation_after = models.PositiveIntegerField(_("starvation after (s)"), null=True, blank=True)
    restart_cost = models.PositiveIntegerField(_("restart cost (s)"), null=True, blank=True)

    def __str__(self) -> str:
        return self.name


class Pool(models.Model):
    """One kind of GPU capacity that is interchangeable for a request."""

    slug = models.SlugField(_("short name"), max_length=60, unique=True)
    name = models.CharField(_("name"), max_length=100)
    group = models.ForeignKey(PoolGroup, on_delete=models.PROTECT, related_name="pools")
    product = models.CharField(max_length=100)  # nvidia.com/gpu.product of its nodes
    sharing = models.CharField(max_length=40)  # a module of workloads.sharing
    unit = models.CharField(max_length=10)  # card | replica | MiB | percent | slice
    units_per_card = models.PositiveIntegerField(default=1)
    nominal = models.PositiveIntegerField(_("nominal capacity"))  # what may be promised, in units
    mig = models.CharField(max_length=60, blank=True)  # a product of the MIG profile table
    card_cores = models.PositiveIntegerField(null=True, blank=True)  # percent of compute of each card; null: 100
    card_mib = models.PositiveIntegerField(null=True, blank=True)  # memory of one card, as reported by its nodes
    # Millicores: the smallest even share of its nodes.
    cpu_per_card = models.PositiveIntegerField(null=True, blank=True)
    memory_per_card = models.PositiveIntegerField(null=True, blank=True)  # MiB of the node's memory, likewise
    beside_percent = models.PositiveIntegerField(_("CPU and memory per card (%)"), default=100)  # 0: nobody is charged
    notice = models.PositiveIntegerField(_("notice (s)"), default=600)
    grace = models.PositiveIntegerField(_("grace (s)"), default=120)
    min_runtime = models.PositiveIntegerField(_("minimum runtime (s)"), default=0)
    max_reclaims = models.PositiveIntegerField(_("maximum recalls"), default=10)
    # Null: borrowers are ordered by what they borrow now, or by priority.
    balance_half_life = models.PositiveIntegerField(_("half-life of balances (s)"), null=True, blank=True)
    balance_sums = models.JSONField(default=dict, blank=True, editable=False)  # kept by quotas/spending/balances.py
    policy = models.JSONField(default=dict, blank=True)
    version = models.PositiveIntegerField(default=1)  # of notice … policy: the ETag
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["slug"]
        constraints = [models.CheckConstraint(condition=Q(units_per_card__gt=0), name="pool_units_per_card_positive")]

    def __str__(self) -> str:
        return self.name

    @property
    def with_a_card(self) -> tuple[int, int]:
        """CPU in milli and memory in MiB that come with a card; requests for more are charged for it. 0: unlimited."""
        cpu, memory = (self.cpu_per_card or 0, self.memory_per_card or 0)
        return cpu * self.beside_percent // 100, memory * self.beside_percent // 100

    def total_guaranteed(self, *, but: Department | None = None) -> int:
        """Units guaranteed to all departments together. `but`: a department to leave out."""
        rows = self.quotas.all() if but is None else self.quotas.exclude(department=but)
        return rows.aggregate(total=models.Sum("guaranteed"))["total"] or 0

    @property
    def back_within(self) -> int:
        """Seconds within which lent units come back after a recall."""
        return self.notice + self.grace

    def gpu_hours(self, unit_seconds: float) -> float:
        """Unit-seconds of the pool as GPU-hours: hours of whole cards, of which a part of a card counts in proportion."""
        return unit_seconds / self.units_per_card / 3600


class Node(models.Model):
    """A node as the cluster reports it, and what the operator has set."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="nodes")
    name = models.CharField(max_length=253)
    sharing = models.CharField(max_length=40, blank=True)
    product = models.CharField(max_length=100, blank=True)
    because = models.CharField(max_length=200, blank=True)  # why this sharing system was derived
    because_of = models.JSONField(default=dict, blank=True)  # the same, for translation: {"message", "params"}
    held_back = models.CharField(max_length=300, blank=True)  # why it takes no new pods, as discovered
    held_back_by = models.JSONField(default=list, blank=True)  # the same, each reason for translation
    conflicts = models.JSONField(default=list, blank=True)  # other sharing systems whose marks it has
    drained = models.BooleanField(default=False)  # by an operator
    quarantined = models.BooleanField(default=False, editable=False)  # a Quarantine of the whole node is in force
    present = models.BooleanField(default=True)  # the cluster still lists it
    lost_since = models.DateTimeField(null=True, blank=True)
    instances = models.JSONField(default=dict, blank=True)  # fixed MIG geometry: {"1g.10gb": 16}
    domain = models.CharField(max_length=100, blank=True)
    cpu_milli = models.PositiveIntegerField(null=True)
    memory_mib = models.PositiveIntegerField(null=True)
    pods = models.PositiveIntegerField(null=True)  # the most that its kubelet runs at once
    devices = models.JSONField(default=dict, blank=True)  # other resources that pods may request: {"rdma/hca": 8}
    # The part of the above that pods use which the portal did not start: {"cpu_milli", "memory_mib", "pods", "devices",
    # "instances"}, and as "standing" the CPU and memory of those that stay permanently.
    outside = models.JSONField(default=dict, blank=True)
    labels = models.JSONField(default=dict, blank=True)
    seen_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="one_node_a_name")]

    def __str__(self) -> str:
        return self.name

    @property
    def takes_pods(self) -> bool:
        return self.present and not self.drained and not self.quarantined and not self.held_back


class Card(models.Model):
    """A card; it belongs to one pool. If the cluster reports it unhealthy, or it is quarantined, it is not present capacity."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="cards")
    pool = models.ForeignKey(Pool, null=True, on_delete=models.SET_NULL, related_name="cards")
    index = models.PositiveSmallIntegerField()
    units = models.PositiveIntegerField()
    cores = models.PositiveIntegerField(null=True)
    uuid = models.CharField(max_length=80, blank=True)
    healthy = models.BooleanField(default=True)
    quarantined = models.BooleanField(default=False, editable=False)  # a Quarantine of this card is in force
    outside = models.PositiveIntegerField(default=0)  # units used by pods that the portal did not start
    outside_cores = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["node", "index"]
        constraints = [models.UniqueConstraint(fields=["node", "index"], name="one_card_an_index")]

    def __str__(self) -> str:
        return f"{self.node}/{self.index}"

    @property
    def is_usable(self) -> bool:
        return self.healthy and not self.quarantined


class Quarantine(models.Model):
    """A node, or one card of it, taken out of use because of a fault (quotas/health/quarantines.py). Ended rows are the
    history.

    A rule's row belongs to its sign until that has been absent for long enough (`sign_over_at`): if an operator ends the
    quarantine before, the same sign does not begin another one. An operator's row has no sign; its `sign_over_at` is set
    when it ends.
    """

    public_id = models.CharField(max_length=26, unique=True, default=new_id, editable=False)
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="quarantines")
    card = models.PositiveSmallIntegerField(null=True, blank=True)  # its index; null: the whole node
    sign = models.CharField(max_length=160, blank=True)  # source/name, such as condition/GpuMemWatch; "": an operator
    reason = models.JSONField(default=dict, blank=True)  # of a rule: {"message", "params"}, translated for display
    why = models.TextField(max_length=500, blank=True, validators=[names.paragraph])  # of an operator
    began_at = models.DateTimeField(default=timezone.now)
    began_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")  # null: a rule
    until = models.DateTimeField(null=True, blank=True)  # when an operator's row ends automatically
    away_since = models.DateTimeField(null=True, blank=True)  # the sign is absent since then
    sign_over_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)  # null: in force
    ended_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")  # null: a rule
    # {public id of a claim: its deadline; null: non-preemptible, its author was informed}
    deadlines = models.JSONField(default=dict)

    class Meta:
        ordering = ["-public_id"]
        constraints = [
            models.UniqueConstraint(
                "node", Coalesce("card", -1), "sign", condition=Q(sign_over_at=None), name="one_quarantine_a_sign"
            ),
            models.CheckConstraint(
                condition=Q(sign_over_at=None) | Q(ended_at__isnull=False), name="quarantine_ends_with_its_sign"
            ),
        ]
        indexes = [models.Index(fields=["node"], condition=Q(sign_over_at=None), name="quarantine_live")]

    def __str__(self) -> str:
        return f"{self.place} ({self.sign or 'operator'})"

    @property
    def place(self) -> str:
        """The node's name, or node/card."""
        return self.node.name if self.card is None else f"{self.node.name}/{self.card}"

    @property
    def is_in_force(self) -> bool:
        return self.ended_at is None

    @property
    def is_overruled(self) -> bool:
        """Whether an operator ended it although its sign is still present."""
        return self.ended_at is not None and self.sign_over_at is None

    @property
    def lasted(self) -> dt.timedelta:
        return (self.ended_at or timezone.now()) - self.began_at

    @property
    def sentence(self) -> dict[str, Any]:
        """Its reason, as a sentence to translate."""
        return self.reason or {"message": "%(why)s", "params": {"why": self.why}}


class OutsidePod(models.Model):
    """A pod that the portal did not start, and its use of one pool. The portal never changes it, and charges nobody for it."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="outside_pods")
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="outside_pods")
    uid = models.CharField(max_length=64)
    namespace = models.CharField(max_length=253)
    name = models.CharField(max_length=253)
    owner_kind = models.CharField(max_length=63, blank=True)
    units = models.PositiveIntegerField()
    seen_at = models.DateTimeField(default=timezone.now)  # when it was first seen

    class Meta:
        ordering = ["node", "namespace", "name"]
        constraints = [models.UniqueConstraint(fields=["pool", "uid"], name="one_outside_pod_a_pool")]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Quota(models.Model):
    """A department's guaranteed quota in a pool, its borrow limit and its lend limit."""

    department = models.ForeignKey(Department, on_delete=models.CASCADE, related_name="quotas")
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="quotas")
    guaranteed = models.PositiveIntegerField(_("guaranteed"), default=0)
    borrow_limit = models.PositiveIntegerField(_("borrow limit"), null=True, blank=True)  # null: no limit
    lend_limit = models.PositiveIntegerField(_("lend limit"), null=True, blank=True)  # null: all
    windows = models.JSONField(default=list, blank=True)  # lending windows (quotas/lending/windows.py)
    zone = models.CharField(max_length=50, blank=True)  # time zone of the windows
    policy = models.JSONField(default=dict, blank=True)
    version = models.PositiveIntegerField(default=1)  # the ETag
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["pool", "department"]
        constraints = [models.UniqueConstraint(fields=["department", "pool"], name="one_quota_a_pool")]

    def __str__(self) -> str:
        return f"{self.department} of {self.pool}: {self.guaranteed}"


class UserCap(models.Model):
    """The most that each user of a department may hold in a pool."""

    department = models.ForeignKey(Department, on_delete=models.CASCADE, related_name="user_caps")
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="+")
    units = models.PositiveIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["department", "pool"], name="one_user_cap_a_pool")]

    def __str__(self) -> str:
        return f"{self.units} a user"


class BudgetAction(models.TextChoices):
    """What happens when a budget is used up. It never stops running work."""

    NOTHING = "nothing", _("Nothing: only warn")
    NO_BORROWING = "no_borrowing", _("No borrowing: only what fits inside the guaranteed quota starts")
    NO_NEW_WORK = "no_new_work", _("No new work starts")


class BudgetCounts(models.TextChoices):
    ALL = "all", _("All use: own and borrowed")
    BORROWED = "borrowed", _("Borrowed use only")


class Budget(models.Model):
    """GPU-hours that a department with its teams, or one person in it, may use in each calendar month, or in one term
    (`starts_on` to `ends_on`, both included). Days begin in the installation's time zone. What was used is not stored here;
    `counted` only caches the sum of final hours (quotas/spending/budgets.py)."""

    public_id = models.CharField(max_length=26, unique=True, default=new_id, editable=False)
    department = models.ForeignKey(Department, on_delete=models.CASCADE, related_name="budgets")
    person = models.ForeignKey(User, null=True, blank=True, on_delete=models.CASCADE, related_name="budgets")
    pool = models.ForeignKey(Pool, null=True, blank=True, on_delete=models.CASCADE, related_name="budgets")  # null: all
    hours = models.PositiveIntegerField(_("GPU-hours"))  # of whole cards; a part of a card counts as that part
    counts = models.CharField(_("Counts"), max_length=10, choices=BudgetCounts.choices, default=BudgetCounts.ALL)
    action = models.CharField(
        _("When it is used up"), max_length=12, choices=BudgetAction.choices, default=BudgetAction.NO_BORROWING
    )
    starts_on = models.DateField(null=True, blank=True)  # null: every month
    ends_on = models.DateField(null=True, blank=True)
    version = models.PositiveIntegerField(default=1)
    # The beginning of the period for which people were notified, so that they are notified once.
    warned = models.DateTimeField(null=True, blank=True, editable=False)
    reached = models.DateTimeField(null=True, blank=True, editable=False)
    counted = models.JSONField(default=dict, blank=True, editable=False)

    class Meta:
        ordering = ["department", "person__username", "pool", "starts_on", "pk"]
        constraints = [
            models.UniqueConstraint(
                "department", Coalesce("person", 0), Coalesce("pool", 0),
                Coalesce("starts_on", models.Value(dt.date(1, 1, 1))), name="one_budget_a_period",
            ),
            models.CheckConstraint(
                condition=Q(starts_on=None, ends_on=None)
                | Q(starts_on__isnull=False, ends_on__isnull=False, ends_on__gte=F("starts_on")),
                name="budget_has_both_ends",
            ),
            models.CheckConstraint(condition=Q(hours__gt=0), name="budget_of_some_hours"),
        ]  # fmt: skip

    def __str__(self) -> str:
        return f"{self.department}{f' / {self.person}' if self.person else ''}: {self.hours} GPU-hours"

    @property
    def is_monthly(self) -> bool:
        return self.starts_on is None


class Wanted(models.TextChoices):
    """Which number of a quota a request would change."""

    GUARANTEED = "guaranteed", _("Guaranteed")
    BORROW_LIMIT = "borrow_limit", _("Borrow limit")


class RequestState(models.TextChoices):
    OPEN = "open", pgettext_lazy("of a request", "open")
    SCHEDULED = "scheduled", _("approved, not begun")
    GRANTED = "granted", pgettext_lazy("of a request", "granted")
    RENEWED = "renewed", pgettext_lazy("of a request", "renewed")
    DENIED = "denied", pgettext_lazy("of a request", "denied")
    WITHDRAWN = "withdrawn", pgettext_lazy("of a request", "withdrawn")
    ENDED = "ended", pgettext_lazy("of a request", "ended")


class QuotaRequest(models.Model):
    """A department's request for more of a pool, for good or for a term (quotas/requests/actions.py).

    `units` and `granted` are the requested and the approved total, in the pool's unit; null is no limit. `raised_by` is what
    the grant added to the guarantee, which goes back at the end of the term to the `giver` from whose guarantee it came
    (null: the pool). `replaced` is the value before the grant.
    """

    public_id = models.CharField(max_length=26, unique=True, default=new_id, editable=False)
    department = models.ForeignKey(Department, on_delete=models.CASCADE, related_name="quota_requests")
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="+")
    author = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    wanted = models.CharField(max_length=12, choices=Wanted.choices, default=Wanted.GUARANTEED)
    units = models.PositiveIntegerField(null=True, blank=True)
    before = models.PositiveIntegerField(null=True, blank=True)  # the value at the time of the request; null: no limit
    why = models.TextField(max_length=1000, validators=[names.paragraph])
    starts_at = models.DateTimeField(null=True, blank=True)  # null: as soon as it is approved
    ends_at = models.DateTimeField(null=True, blank=True)  # null: for good
    renews = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="renewals")
    state = models.CharField(max_length=10, choices=RequestState.choices, default=RequestState.OPEN)
    granted = models.PositiveIntegerField(null=True, blank=True)
    decided_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    decided_at = models.DateTimeField(null=True)
    note = models.TextField(max_length=1000, blank=True, validators=[names.paragraph])  # by the person who decided
    raised_by = models.PositiveIntegerField(default=0)
    replaced = models.PositiveIntegerField(null=True)
    giver = models.ForeignKey(Department, null=True, on_delete=models.SET_NULL, related_name="+")
    applied_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    reminded = models.PositiveSmallIntegerField(null=True)  # days before the end, of the last reminder
    # Why a term that is due has not begun or ended yet.
    delayed = models.SlugField(max_length=60, blank=True, db_index=False)
    created_at = models.DateTimeField(default=timezone.now)
    version = models.PositiveIntegerField(default=1)

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["state"], condition=Q(state__in=["open", "scheduled", "granted"]), name="request_live")
        ]

    def __str__(self) -> str:
        return f"{self.department}: {self.wanted} of {self.pool} {self.units}"

    @property
    def is_open(self) -> bool:
        return self.state == RequestState.OPEN

    @property
    def lasts_until(self) -> dt.datetime | None:
        """The last second of the term, so that the end of a day is shown as that day and not as the next."""
        return self.ends_at - dt.timedelta(seconds=1) if self.ends_at else None


class RequestComment(models.Model):
    """A comment on a request."""

    request = models.ForeignKey(QuotaRequest, on_delete=models.CASCADE, related_name="comments")
    author = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    text = models.TextField(max_length=1000, validators=[names.paragraph])
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.author}: {self.text}"


class ClaimState(models.TextChoices):
    PENDING = "pending", _("pending")
    HOLDING = "holding", _("holding")
    LEAVING = "leaving", _("leaving")
    RELEASED = "released", _("released")


WINDOW = "lending window"  # the name of recalls that closing lending windows create
LIVE_CLAIMS = [ClaimState.PENDING, ClaimState.HOLDING, ClaimState.LEAVING]
OCCUPYING = [ClaimState.HOLDING, ClaimState.LEAVING]


class ClaimAmounts:
    """Values derived from a claim's columns, for the model and for plain rows."""

    __slots__ = ()
    name: Any
    pods: Any
    units_per_pod: Any
    asked_per_pod: Any

    @property
    def is_recall(self) -> bool:
        return bool(self.pods == 0)

    @property
    def is_of_window(self) -> bool:
        """Whether the recall was created by a closing lending window rather than by a person."""
        return self.is_recall and self.name == WINDOW

    @property
    def on_card(self) -> int:
        """Units that a pod occupies on its card, or on its cards together."""
        return int(self.units_per_pod if self.asked_per_pod is None else self.asked_per_pod)

    @property
    def units(self) -> int:
        """All units that it requests or holds."""
        return int(self.units_per_pod * max(self.pods, 1))


class Claim(ClaimAmounts, models.Model):
    """What one attempt of a workload requests from or holds in a pool; or a recall (pods = 0), which holds without
    running.

    Fields are named as in the engine's snapshot. A workload's next attempt is a new claim with the old submitted_at.
    """

    public_id = models.CharField(max_length=26, unique=True, default=new_id, editable=False)
    department = models.ForeignKey(Department, on_delete=models.PROTECT, related_name="claims")
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="claims")
    user = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="claims")
    person = models.CharField(max_length=150, blank=True)  # user name; it stays when the account is deleted
    workload = models.CharField(max_length=26, blank=True, db_index=True)  # public id; blank: a recall
    kind = models.CharField(max_length=12, blank=True)  # of the workload; blank: a recall
    name = models.CharField(max_length=100)
    pods = models.PositiveIntegerField(default=1)
    units_per_pod = models.PositiveIntegerField()  # the charge
    asked_per_pod = models.PositiveIntegerField(null=True)  # occupied on its card, if compute makes the charge larger
    cores_per_pod = models.PositiveIntegerField(null=True)
    profile = models.CharField(max_length=40, blank=True)
    same_domain = models.BooleanField(default=False)
    cpu_milli = models.PositiveIntegerField(null=True)
    memory_mib = models.PositiveIntegerField(null=True)
    devices = models.JSONField(default=dict)  # resources of the node for each pod: {"rdma/hca": 1}
    priority = models.IntegerField(default=0)
    preemptible = models.BooleanField(default=True)
    own_only = models.BooleanField(default=False)
    min_runtime = models.PositiveIntegerField(default=0)
    max_runtime = models.PositiveIntegerField(null=True)
    notice = models.PositiveIntegerField(default=0)  # frozen at admission
    grace = models.PositiveIntegerField(default=0)  # frozen at admission

    state = models.CharField(max_length=10, choices=ClaimState.choices, default=ClaimState.PENDING)
    submitted_at = models.DateTimeField(default=timezone.now)
    queued_at = models.DateTimeField(default=timezone.now)
    backoff_until = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    checkpointed_at = models.DateTimeField(null=True)
    checkpoint_every = models.PositiveIntegerField(null=True)  # s between its last two; null: there were fewer
    idle_since = models.DateTimeField(null=True)  # by measurement; null: busy, or not measured
    leave_by = models.DateTimeField(null=True)  # end of its notice: SIGTERM is due, and its grace begins
    term_at = models.DateTimeField(null=True)  # SIGTERM was sent: it cannot go back to holding
    preempted_for = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="+")
    released_at = models.DateTimeField(null=True)
    until = models.DateTimeField(null=True)  # when a recall ends automatically
    reserved = models.JSONField(null=True)  # {"units": 4, "places": […]}
    placement = models.JSONField(null=True)  # [{"pod": 0, "node": "n1", "cards": [0, 1]}]

    # The last answer, for pages and API; it is no input of decisions. While it holds units, its shares are those of the ledger.
    decision = models.CharField(max_length=12, blank=True)
    own = models.PositiveIntegerField(default=0)
    borrowed = models.PositiveIntegerField(default=0)
    reasons = models.JSONField(default=list)
    position = models.PositiveIntegerField(null=True)
    ahead = models.JSONField(default=list)
    promised_at = models.DateTimeField(null=True)
    waiting_on = models.JSONField(default=list)  # public ids of leaving claims, held for it or for others
    answered_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["public_id"]
        indexes = [
            models.Index(fields=["pool", "state"], condition=~Q(state="released"), name="claim_live"),
            models.Index(fields=["department", "pool", "released_at"], name="claim_of_department"),
            models.Index(fields=["started_at"], condition=Q(started_at__isnull=False), name="claim_started"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["workload"], condition=~Q(state="released") & ~Q(workload=""), name="one_live_claim_a_workload"
            ),
            models.CheckConstraint(condition=Q(units_per_pod__gt=0), name="claim_asks_for_something"),
            models.CheckConstraint(
                condition=Q(state="released", released_at__isnull=False) | ~Q(state="released"),
                name="released_has_a_time",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.state})"


class PlanPass(models.Model):
    """A planning pass that changed something: its snapshot and its plan (compressed JSON)."""

    public_id = models.CharField(max_length=26, unique=True, default=new_id, editable=False)
    group = models.ForeignKey(PoolGroup, on_delete=models.CASCADE, related_name="passes")
    at = models.DateTimeField(default=timezone.now, db_index=True)
    milliseconds = models.PositiveIntegerField(default=0)  # from the wait for the lock to the decision
    snapshot = models.BinaryField()
    plan = models.BinaryField(default=b"")

    def __str__(self) -> str:
        return self.public_id


class Decision(models.Model):
    """A decision that changed something. Append-only; readers see only what concerns their departments."""

    public_id = models.CharField(max_length=26, unique=True, default=new_id, editable=False)
    plan_pass = models.ForeignKey(PlanPass, on_delete=models.CASCADE, related_name="decisions")
    at = models.DateTimeField(default=timezone.now, db_index=True)
    kind = models.CharField(max_length=12)  # admit | reclaim | wait | impossible | withdraw
    claim = models.ForeignKey(Claim, on_delete=models.CASCADE, related_name="decisions")
    department = models.ForeignKey(Department, on_delete=models.CASCADE, related_name="+")
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="+")
    data = models.JSONField(default=dict)  # the engine's answer as in its JSON
    victims = models.ManyToManyField(Claim, related_name="reclaimed_by", blank=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.kind} {self.claim}"


class LedgerEntry(models.Model):
    """Who used whose units from when until when. Use in unit-seconds is units × duration.

    `own`: within the department's guarantee. Otherwise borrowed; `lender` null: from unassigned capacity.
    """

    claim = models.ForeignKey(Claim, on_delete=models.CASCADE, related_name="ledger")
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="+")
    department = models.ForeignKey(Department, on_delete=models.CASCADE, related_name="ledger")
    own = models.BooleanField()
    lender = models.ForeignKey(Department, null=True, on_delete=models.CASCADE, related_name="lent")
    units = models.PositiveIntegerField()
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    lent_since = models.DateTimeField(null=True)  # when the loan began, with other entries

    class Meta:
        verbose_name_plural = "ledger entries"
        indexes = [
            models.Index(fields=["pool"], condition=Q(ended_at=None), name="ledger_open"),
            models.Index(fields=["department", "started_at"], name="ledger_of_department"),
            models.Index(fields=["ended_at", "started_at"], name="ledger_over_time"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(ended_at=None) | Q(ended_at__gte=F("started_at")), name="ledger_ends_after_start"
            ),
            models.UniqueConstraint(
                fields=["claim", "own"], condition=Q(ended_at=None, lender=None), name="one_open_entry_a_claim"
            ),
            models.UniqueConstraint(
                fields=["claim", "lender"],
                condition=Q(ended_at=None, lender__isnull=False),
                name="one_open_entry_a_lender",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.units} of {self.pool}"


class UsageHour(models.Model):
    """Metering: unit-seconds of one department in one pool in one hour, summed from the ledger. Rows may be recomputed."""

    department = models.ForeignKey(Department, on_delete=models.CASCADE, related_name="usage_hours")
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="+")
    hour = models.DateTimeField()
    seconds = models.PositiveIntegerField(default=3600)  # seconds summed: fewer in the current hour
    guaranteed = models.PositiveBigIntegerField(default=0)  # unit-seconds promised
    own = models.PositiveBigIntegerField(default=0)
    borrowed = models.PositiveBigIntegerField(default=0)
    lent = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["department", "pool", "hour"], name="one_row_an_hour")]
        indexes = [models.Index(fields=["hour"], name="usage_by_hour")]

    def __str__(self) -> str:
        return f"{self.department} {self.pool} {self.hour:%F %H}"


class Work(models.Model):
    """Metering: unit-seconds that one person's workloads of one kind used in one pool in a period, from one source. As in the
    ledger, it is `own`, or borrowed from `lender` (null: unassigned capacity). Rows are recomputed, never incremented."""

    department = models.ForeignKey(Department, on_delete=models.CASCADE, related_name="+", db_index=False)
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="+", db_index=False)
    person = models.CharField(max_length=150, blank=True)  # blank: unknown
    kind = models.CharField(max_length=12, blank=True)
    own = models.BooleanField()
    lender = models.ForeignKey(Department, null=True, on_delete=models.CASCADE, related_name="+", db_index=False)
    unit_seconds = models.PositiveBigIntegerField()

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.person} {self.pool} {self.unit_seconds}"


class WorkHour(Work):
    hour = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["hour"], name="work_by_hour")]


class WorkDay(Work):
    """The same for a whole day in UTC whose hours are final: reports read days where possible."""

    day = models.DateField()

    class Meta:
        indexes = [models.Index(fields=["day"], name="work_by_day")]


class UsageDay(models.Model):
    """Unit-seconds guaranteed to a department in a pool on a day in UTC. Written together with the day's WorkDay rows, so all
    of them exist if this does."""

    department = models.ForeignKey(Department, on_delete=models.CASCADE, related_name="+", db_index=False)
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="+", db_index=False)
    day = models.DateField()
    guaranteed = models.PositiveBigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["day", "department", "pool"], name="one_row_a_day")]

    def __str__(self) -> str:
        return f"{self.department} {self.pool} {self.day:%F}"


class PoolPrice(models.Model):
    """The price of an hour in a pool since a time, in the installation's currency, for each card, GiB, slice or replica
    (quotas/reports/sums.py). None: no charge. Append-only; `number` counts a pool's prices from 1 and is its ETag."""

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="prices")
    number = models.PositiveIntegerField()
    own = models.DecimalField(max_digits=14, decimal_places=6, null=True)
    borrowed = models.DecimalField(max_digits=14, decimal_places=6, null=True)
    since = models.DateTimeField()
    set_by = models.CharField(max_length=150)

    class Meta:
        ordering = ["pool", "number"]
        constraints = [models.UniqueConstraint(fields=["pool", "number"], name="one_price_a_number")]

    def __str__(self) -> str:
        return f"{self.pool}: {self.own} / {self.borrowed} since {self.since:%F}"


class MonthlyReport(models.Model):
    """A record that a department's owners were sent this month's report. Committed with the messages, so they are sent once."""

    department = models.ForeignKey(Department, on_delete=models.CASCADE, related_name="+")
    month = models.DateField()  # its first day
    sent_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["department", "month"], name="one_report_a_month")]

    def __str__(self) -> str:
        return f"{self.department} {self.month:%Y-%m}"
