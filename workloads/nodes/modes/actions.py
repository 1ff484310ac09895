"""Start and cancel a mode change of a node. Each is one transaction with its audit entry."""

from __future__ import annotations

from django.db import IntegrityError
from django.utils import timezone

from portal import audit
from portal.access import Actor
from portal.background.hints import wake
from portal.errors import N_, Invalid, Problem
from portal.infra.locks import durable
from portal.notify.events import emit
from portal.text.plain_errors import plain_error
from quotas.models import Node, OutsidePod
from quotas.planning.lock import locked_group
from quotas.rules.draining import announce_drain, groups_of, on_node
from workloads.mode_lifecycle import Stage
from workloads.models import ModeChange
from workloads.nodes.modes.changes import deadline_of, live
from workloads.nodes.modes.keepers import Keeper, keeper_for
from workloads.nodes.modes.previews import check_target
from workloads.nodes.modes.recipes import Target, recipe
from workloads.runtime.base import ClusterError


class ChangeUnderWay(Problem):
    code = "change_under_way"
    message = N_("The mode of %(node)s is already being changed: finish or cancel that change first.")


class NoKeeper(Invalid):
    code = "cannot_change"
    message = N_("The cluster does not allow the portal to change its nodes: %(why)s")


class TooLate(Problem):
    code = "too_late"
    message = N_("This change has already ended.")


def keeper_of(node: Node) -> Keeper:
    """The interface that changes the node. Raises NoKeeper if the portal cannot change it."""
    try:
        keeper = keeper_for(node.cluster)
        keeper.labels(node.name)
    except ClusterError as error:
        raise NoKeeper(why=plain_error(str(error))[:200]) from error
    return keeper


def check_start(node: Node, target: Target) -> None:
    """Raise what `start` would raise: Invalid, NoKeeper, ChangeUnderWay. For a check before the confirmation."""
    check_target(node, target)
    keeper_of(node)
    if live(node) is not None:
        raise ChangeUnderWay(node=node.name)


def start(*, actor: Actor, node: Node, target: Target) -> ModeChange:
    """Take the node out of service and begin the notice of its workloads; the periodic task does the rest.

    Raises NotVisible for anybody but operators, Invalid, NoKeeper, ChangeUnderWay.
    """
    actor.require_operator()
    check_target(node, target)
    keeper = keeper_of(node)
    present = keeper.labels(node.name)
    wanted = recipe(target, present)
    if wanted.entry is not None and not keeper.may_write(wanted.entry.which):
        raise NoKeeper(why=f"its options name no place for the configuration {wanted.entry.which}")
    now = timezone.now()
    before = {
        "labels": {name: present[name] for name in wanted.labels if name in present},
        "sharing": node.sharing, "instances": node.instances, "held_back": node.held_back,
    }  # fmt: skip
    try:
        with durable():
            for group_id in groups_of(node):
                locked_group(group_id)
            node.refresh_from_db()
            before["drained"] = node.drained
            change = ModeChange.objects.create(
                node=node, author=actor.user, target=target.as_json(), before=before, labels=dict(wanted.labels),
            )  # fmt: skip
            Node.objects.filter(pk=node.pk).update(drained=True)
            change.deadlines = announce_drain(node, {}, now=now)
            others = OutsidePod.objects.filter(node=node).exists()
            change.deadline = deadline_of(on_node(node), others=others, now=now)
            change.save(update_fields=["deadlines", "deadline"])
            audit.record(actor, "node.mode_change_asked", node.name, before=before, after=change.target)
            emit("node.mode_change", node=node.name, change=change.public_id, stage=Stage.DRAINING.value)
            wake("workloads.modes")
    except IntegrityError as error:
        raise ChangeUnderWay(node=node.name) from error
    return change


def cancel(*, actor: Actor, change: ModeChange) -> ModeChange:
    """Cancel a change: until something is written, the workloads may stay; after that the node is changed back.

    Raises NotVisible for anybody but operators, TooLate.
    """
    actor.require_operator()
    with durable():
        running = ModeChange.objects.filter(pk=change.pk, finished_at=None).exclude(stage=Stage.REVERTING)
        if not running.exists():
            raise TooLate
        if running.filter(cancel_requested_at=None).update(cancel_requested_at=timezone.now()):
            audit.record(actor, "node.mode_change_cancelled", change.node.name, after={"change": change.public_id})
            wake("workloads.modes")
    change.refresh_from_db()
    return change
