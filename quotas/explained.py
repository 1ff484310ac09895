"""Policies in words."""

from __future__ import annotations

from django.utils.translation import gettext as _

from quotas.engine import types as e


def policy(policy: e.Policy) -> tuple[str, ...]:
    """One sentence for each of the three rules."""
    reclaim = {
        "any": _("Inside the guarantee it takes back any work of who borrows."),
        "lower_priority": _("Inside the guarantee it takes back borrowers' work of lower priority only."),
        "never": _("Inside the guarantee it takes nothing back: it waits until borrowers end."),
    }
    within = {
        "lower_priority": _("In its own department it stops work of lower priority."),
        "lower_or_newer_equal": _("In its own department it stops work of lower priority, and newer work of the same."),
        "never": _("In its own department it stops nothing."),
    }
    preempt = policy.borrow_preempt
    if preempt is None:
        borrowing = _("While it borrows it takes nothing from others.")
    elif preempt.max_priority is None:
        borrowing = _("While it borrows it takes other borrowers' work of lower priority.")
    else:
        text = _("While it borrows it takes other borrowers' work of lower priority, at most %(priority)s.")
        borrowing = text % {"priority": preempt.max_priority}
    return reclaim[policy.reclaim], within[policy.within], borrowing
