"""Idle policies in words."""

from __future__ import annotations

from django.utils.translation import gettext as _

from portal.text.words import duration
from quotas.wording import clock_of
from workloads.idle.rule import Action, Rule
from workloads.models import IdleExemption, Kind


def action_name(action: Action) -> str:
    return {
        Action.NOTHING: _("do nothing"),
        Action.WARN: _("warn only"),
        Action.BORROWED: _("stop borrowed work only"),
        Action.STOP: _("warn, then stop"),
    }[action]


def kinds_name(kind: str) -> str:
    """The plural of the kind, capitalised to begin a sentence."""
    return {
        Kind.NOTEBOOK.value: _("Notebooks"), Kind.JOB.value: _("Jobs"), Kind.DISTRIBUTED.value: _("Distributed jobs"),
        Kind.SERVICE.value: _("Services"),
    }[kind]  # fmt: skip


def policy_sentences(kind: str, rule: Rule | None) -> list[str]:
    """Sentences about what the rule does to idle workloads of a kind; empty if it does nothing."""
    if rule is None or rule.action is Action.NOTHING:
        return []
    numbers = {
        "kinds": kinds_name(kind), "below": f"{rule.below} %", "minutes": duration(rule.minutes * 60),
        "countdown": duration(rule.countdown * 60), "keep": duration(rule.keep * 60),
    }  # fmt: skip
    text = {
        Action.WARN: _("%(kinds)s here are warned after %(minutes)s below %(below)s GPU activity."),
        Action.BORROWED: _(
            "%(kinds)s here that use borrowed capacity are warned after %(minutes)s below %(below)s GPU activity and stopped "
            "%(countdown)s later. “Keep it” postpones that once, by %(keep)s."
        ),
        Action.STOP: _(
            "%(kinds)s here are warned after %(minutes)s below %(below)s GPU activity and stopped %(countdown)s later. "
            "“Keep it” postpones that once, by %(keep)s."
        ),
    }[rule.action]
    also = [_("A busy kernel, or use of a terminal, counts as activity.")] if kind == Kind.NOTEBOOK else []
    return [text % numbers, *also]


def idle_sentences(kind: str, rule: Rule | None, exemption: IdleExemption | None) -> list[str]:
    """Sentences about what happens to an idle workload: what the rule does, or that it is exempt; empty if there is no rule."""
    sentences = policy_sentences(kind, rule)
    if exemption is None or not sentences:
        return sentences
    text = _("Exempt from the idle policy until %(until)s: %(why)s")
    return [text % {"until": clock_of(exemption.lasts_until), "why": exemption.why}]
