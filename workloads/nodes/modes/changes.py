"""Move mode changes from stage to stage. The impure shell around mode_lifecycle.due.
The row is the truth: each stage is entered by one compare-and-set, writes to the cluster may be repeated, and no transaction
is open during a request to the cluster. A process killed between two lines leaves work that the next tick finds.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import structlog
from django.db.models import Q
from django.utils import timezone

from portal import audit
from portal.access import SYSTEM
from portal.background.hints import wake
from portal.infra.locks import durable
from portal.notify.events import emit
from quotas.models import Claim, Node, OutsidePod
from quotas.planning.lock import locked_group
from quotas.rules.draining import announce_drain, groups_of, on_node, withdraw_drain
from workloads.mode_lifecycle import FINAL, PATIENCE, Event, Facts, NotPossible, Stage, due, step
from workloads.models import ModeChange
from workloads.nodes import inventory
from workloads.nodes.modes.keepers import Keeper, keeper_for
from workloads.nodes.modes.recipes import MIG_STATE, Target, is_as_wanted, recipe, with_entry
from workloads.runtime.base import ClusterError

log = structlog.get_logger(__name__)
NOTICED_WITHIN = dt.timedelta(minutes=1)  # until then "failed" may be left from an earlier change
ROUNDS = 8  # more stages in a row than any change has


class StageFailed(Exception):
    """A stage of one or several changes ended with an unexpected error."""


def advance_all(*, now: dt.datetime | None = None) -> int:
    """Advance every live change as far as possible; returns how many moved.

    Raises StageFailed after all have had their turn, so that the scheduled job is shown as failed.
    """
    moved, failed = 0, []
    for change in ModeChange.objects.filter(finished_at=None).select_related("node__cluster"):
        try:
            moved += advance(change, now=now)
        except Exception as error:  # a failure of one node must not affect others; the next tick tries again
            log.exception("mode_change.failed", node=change.node.name, stage=change.stage)
            failed.append(f"{change.node.name}: {_named(error.__cause__ or error)}")
    if failed:
        raise StageFailed("; ".join(failed))
    return moved


def advance(change: ModeChange, *, now: dt.datetime | None = None) -> bool:
    """Advance one change; True if it reached another stage.

    Raises StageFailed on an unexpected error, which is then shown on the change's page; the stage's deadline and a
    cancellation have been applied by then.
    """
    moved, trouble = False, None
    for _ in range(ROUNDS):
        at = now or timezone.now()
        try:
            facts = facts_of(change, now=at)
        except Exception as error:
            trouble = error
            _record_message(change, f"internal error: {_named(error)}")
            # Set while it waits for non-preemptible work; but an error must not last forever.
            if change.deadline is None:
                change.deadline = at + PATIENCE[Stage(change.stage)]
                ModeChange.objects.filter(pk=change.pk, deadline=None).update(deadline=change.deadline)
            facts = Facts(occupied=True, cancelled=change.cancel_requested_at is not None, overdue=_overdue(change, at))
        event = due(Stage(change.stage), facts)
        if event is None or not record_event(change, event, now=at):
            break
        moved = True
        change = ModeChange.objects.select_related("node__cluster").get(pk=change.pk)
        if change.is_final:
            break
    if trouble is not None:
        raise StageFailed(change.node.name) from trouble
    return moved


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]


def _overdue(change: ModeChange, now: dt.datetime) -> bool:
    return change.deadline is not None and now >= change.deadline


def facts_of(change: ModeChange, *, now: dt.datetime) -> Facts:
    """Do what the stage requires, as far as possible now, and return what is known afterwards."""
    stage = Stage(change.stage)
    cancelled = change.cancel_requested_at is not None
    overdue = _overdue(change, now)
    if stage is Stage.DRAINING:
        occupied = _drain(change, now=now) if not cancelled else True
        return Facts(occupied=occupied, cancelled=cancelled, overdue=overdue)
    if stage in FINAL or (cancelled and stage is Stage.APPLYING):
        return Facts(cancelled=cancelled)
    try:
        written = change.written_at is not None or _write(change, keeper_for(change.node.cluster), now=now)
        if stage is not Stage.APPLYING and written:
            change.node.cluster.refresh_from_db()  # declared nodes are in its options
            inventory.refresh(change.node.cluster)
    except ClusterError as error:
        _record_message(change, str(error))
        return Facts(cancelled=cancelled, overdue=overdue)
    change.node.refresh_from_db()
    state = _state(change, now=now)
    return Facts(
        written=written,
        as_wanted=_is_as_wanted(change),
        as_before=_is_as_before(change),
        state=state,
        cancelled=cancelled,
        overdue=overdue,
    )


# Draining --------------------------------------------------------------------------------------------------------------


def live(node: Node) -> ModeChange | None:
    """The node's change that is under way; None if there is none."""
    return ModeChange.objects.filter(node=node, finished_at=None).first()


def still_there(change: ModeChange) -> list[Claim]:
    """The claims that the change waits for."""
    return list(on_node(change.node)) if change.stage == Stage.DRAINING else []


def _drain(change: ModeChange, *, now: dt.datetime) -> bool:
    """Begin the notice of claims that have none yet. True while the node is not empty."""
    with durable():
        for group_id in groups_of(change.node):
            locked_group(group_id)
        deadlines = announce_drain(change.node, change.deadlines, now=now)
        left = on_node(change.node)
        others = OutsidePod.objects.filter(node=change.node).exists()
        deadline = deadline_of(left, others=others, now=now)
        ModeChange.objects.filter(pk=change.pk, stage=Stage.DRAINING).update(deadlines=deadlines, deadline=deadline)
    change.deadlines, change.deadline = deadlines, deadline
    return bool(left) or others


def outside_there(change: ModeChange) -> int:
    """Number of outside pods with a GPU, which the change waits for too."""
    return OutsidePod.objects.filter(node=change.node).count() if change.stage == Stage.DRAINING else 0


def deadline_of(left: Sequence[Claim], *, others: bool, now: dt.datetime) -> dt.datetime | None:
    """When the node must be empty; None if something on it must not be stopped. `others`: whether there are outside pods, which
    the portal never touches."""
    if others or not all(claim.preemptible for claim in left):
        return None
    ends = [(claim.leave_by or now) + dt.timedelta(seconds=claim.grace) for claim in left]
    return max(ends, default=now) + PATIENCE[Stage.DRAINING]


# Writing and looking ---------------------------------------------------------------------------------------------------


def _write(change: ModeChange, keeper: Keeper, *, now: dt.datetime) -> bool:
    """Write the next part of this stage; True when all parts are written. Each part is checked before it is written."""
    node, back = change.node.name, change.stage == Stage.REVERTING
    target = Target.from_json(change.target)
    entry = None if back else recipe(target, change.before["labels"]).entry
    if entry is not None:
        data = keeper.config(entry.which)
        try:
            wanted = with_entry(entry, data)
        except ValueError as error:
            record_event(change, Event.FAULT, now=now, message=str(error))
            return False
        if wanted != data:
            keeper.write_config(entry.which, {k: v for k, v in wanted.items() if data.get(k) != v})
        if not keeper.restarted(entry.which, node, change.stage_since):
            return False
    labels = change.before["labels"] if back else change.labels
    labels = {name: labels.get(name) for name in change.labels}
    present = keeper.labels(node)
    if any(present.get(name) != value for name, value in labels.items()):
        keeper.set_labels(node, labels)
    done: dict[str, Any] = {"written_at": now} | ({} if back else {"message": ""})
    ModeChange.objects.filter(pk=change.pk, stage=change.stage).update(**done)
    change.written_at = now
    return True


def _state(change: ModeChange, *, now: dt.datetime) -> str:
    """mig-manager's state of this change; "" if mig-manager is not involved or has not begun."""
    if not any(name.startswith("nvidia.com/mig.") for name in change.labels):
        return ""
    state = str(change.node.labels.get(MIG_STATE, ""))
    if state in ("pending", "rebooting") and change.noticed_at is None:
        ModeChange.objects.filter(pk=change.pk).update(noticed_at=now)
    elif state == "failed" and change.noticed_at is None:
        late = change.written_at is not None and now >= change.written_at + NOTICED_WITHIN
        return state if late else ""
    return state


def _is_as_wanted(change: ModeChange) -> bool:
    node = change.node
    units = node.cards.values_list("units", flat=True).first() or 0
    return is_as_wanted(
        Target.from_json(change.target), system=node.sharing, held_back=node.held_back, labels=node.labels,
        instances=node.instances, units_per_card=units,
    )  # fmt: skip


def _is_as_before(change: ModeChange) -> bool:
    node, before = change.node, change.before
    labels = all(node.labels.get(name) == before["labels"].get(name) for name in change.labels)
    serves = not node.held_back or bool(before["held_back"])
    return labels and serves and node.sharing == before["sharing"] and node.instances == before["instances"]


def _record_message(change: ModeChange, message: str) -> None:
    """Record what the change waits for, to be shown. While it is being reverted, the reason for that comes first."""
    text = message
    if change.stage == Stage.REVERTING and message not in change.message:
        text = f"{change.message}; {message}" if change.message else message
    elif change.stage == Stage.REVERTING:
        text = change.message
    change.message = text[:300]
    ModeChange.objects.filter(pk=change.pk).exclude(message=change.message).update(message=change.message)
    log.warning("mode_change.waits", node=change.node.name, stage=change.stage, error=message[:300])


# What happened ---------------------------------------------------------------------------------------------------------


def record_event(change: ModeChange, event: Event, *, now: dt.datetime, message: str = "") -> bool:
    """Apply an event to the change by compare-and-set, with all consequences. False if another process was faster."""
    try:
        stage = step(Stage(change.stage), event)
    except NotPossible:
        return False
    facts: dict[str, Any] = {"stage": stage.value, "stage_since": now, "written_at": None, "noticed_at": None}
    facts["deadline"] = None if stage in FINAL else now + PATIENCE[stage]
    if message or event in (Event.FAULT, Event.TIMEOUT):
        facts["message"] = (message or f"{event} while {change.stage}: {change.message}".removesuffix(": "))[:300]
    if stage in FINAL:
        facts["finished_at"] = now
    if event is Event.WRITTEN:
        facts["written_at"] = change.written_at or now
    with durable():
        for group_id in groups_of(change.node):
            locked_group(group_id)
        if not ModeChange.objects.filter(Q(pk=change.pk) & Q(stage=change.stage)).update(**facts):
            return False
        if stage in FINAL and stage is not Stage.FAILED:
            _back_in_service(change)
        if stage is Stage.CANCELLED:
            withdraw_drain(change.node, change.deadlines, now=now)
        emit("node.mode_change", node=change.node.name, change=change.public_id, stage=stage.value)
        audit.record(
            SYSTEM, f"node.mode_{stage.value}", change.node.name,
            after={"change": change.public_id, "event": event.value, "mode": change.target["mode"]},
        )  # fmt: skip
    return True


def _back_in_service(change: ModeChange) -> None:
    if not change.before["drained"]:
        Node.objects.filter(pk=change.node_id).update(drained=False)
    for group_id in groups_of(change.node):
        wake("quotas.plan", group_id=group_id)
