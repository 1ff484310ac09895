"""One change of one node's mode, from the operator's word to the node back in service."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from portal.ids import new_id
from portal.models import User
from quotas.models import Node
from workloads.modes.course import FINAL
from workloads.modes.course import Stage as S


class Stage(models.TextChoices):
    """workloads.modes.course.Stage with the words people read."""

    DRAINING = S.DRAINING.value, _("draining")
    APPLYING = S.APPLYING.value, _("writing")
    VERIFYING = S.VERIFYING.value, _("waiting for the cluster")
    REVERTING = S.REVERTING.value, _("going back")
    DONE = S.DONE.value, _("done")
    CANCELLED = S.CANCELLED.value, _("cancelled")
    REVERTED = S.REVERTED.value, _("as it was before")
    FAILED = S.FAILED.value, _("failed")


class ModeChange(models.Model):
    public_id = models.CharField(max_length=26, unique=True, default=new_id, editable=False)
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="mode_changes")
    author = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    target = models.JSONField()  # recipes.Target
    before = models.JSONField()  # labels that will be written, as they were; sharing, held_back, drained
    labels = models.JSONField()  # what is written: {label: value, or null to take it away}
    told = models.JSONField(default=dict)  # claims told to go: {public id: by when}
    stage = models.CharField(max_length=10, choices=Stage.choices, default=Stage.DRAINING)
    stage_since = models.DateTimeField(default=timezone.now)
    deadline = models.DateTimeField(null=True)  # of the stage; null: it waits for work that must not be stopped
    cancel_requested_at = models.DateTimeField(null=True)
    written_at = models.DateTimeField(null=True)  # in this stage
    noticed_at = models.DateTimeField(null=True)  # the cluster was seen to work on it
    started_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True)
    message = models.CharField(max_length=300, blank=True)  # why it went back or failed, or what it waits for

    class Meta:
        ordering = ["-public_id"]
        constraints = [
            models.UniqueConstraint(fields=["node"], condition=Q(finished_at=None), name="one_live_change_a_node")
        ]

    def __str__(self) -> str:
        return f"{self.node} {self.stage}"

    @property
    def is_final(self) -> bool:
        return S(self.stage) in FINAL
