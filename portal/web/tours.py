"""Guided tours: a card beside one element of a page at a time, and each person's position in a tour (docs/adr/0069).

`{% tour "name" %}` is in a template right before the element that the step explains, and the element has `data-tour="name"`:
the tag draws the card there while the reader is at this step, and the style sheet outlines the element.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.utils.translation import gettext_lazy as _

from portal.access import NotVisible, Right
from portal.models import User
from portal.web.navigation import Shell, address

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise as Text

ANCHOR = "tour"  # id of the card, to which the links between steps jump, also for the keyboard


@dataclass(frozen=True, slots=True)
class Step:
    """`view`: the name of the page's URL, with an optional query. `right`: the page is a department's, and needs this right
    there."""

    name: str
    view: str
    title: Text
    text: Text
    right: Right | None = None


@dataclass(frozen=True, slots=True)
class Tour:
    key: str
    label: Text
    line: Text  # description on the Help page
    steps: tuple[Step, ...]


RESEARCHER = Tour("researcher", _("Researchers"), _("From what is free now to a running workload and a recall"), (
    Step("free", "portal:home", _("Free for you now"),
         _("What your department can start in each pool right now, and what is returned within a few minutes. Click a "
           "pool's name to open the form for it.")),
    Step("presets", "workloads:new", _("Start from a preset"),
         _("Each preset fills the form: kind, GPU, image, limits. Change whatever you like below."), Right.SUBMIT),
    Step("verdict", "workloads:new", _("The preview, before you submit"),
         _("It updates with every change of the form: starts now, starts on borrowed cards that can be recalled, waits "
           "and until when, or cannot run and why."), Right.SUBMIT),
    Step("followed", "workloads:latest", _("A workload's page"),
         _("Its page opens after you submit. Log, measured use, files and events are live; a timeline shows its attempts. "
           "It keeps its ID and files through every attempt."), Right.SEE),
    Step("recalled", "workloads:latest", _("What a recall looks like"),
         _("When borrowed cards are recalled, a countdown appears here, on Home and in your inbox. Save within the "
           "notice; the workload is queued again automatically and continues from its checkpoint."), Right.SEE),
))  # fmt: skip
OWNER = Tour("owner", _("Quota owners"), _("Who borrows, how to get it back, and what it cost"), (
    Step("board", "quotas:department", _("Who borrows from you"),
         _("Guaranteed, own, lent and borrowed amounts of each pool, live, with who borrows how much since when."), Right.SEE),
    Step("recall", "quotas:recall", _("Recall, with a preview"),
         _("Choose a pool and an amount: the preview names who would have to release it and by when. Nothing "
           "happens before you confirm."), Right.STEER),
    Step("limits", "quotas:quotas", _("Quotas, limits and lending windows"),
         _("Edit sets how much you lend, and at which hours. Each change is previewed and recorded in the history "
           "below."), Right.SEE),
    Step("requests", "quotas:requests", _("Requests for quota"),
         _("Teams ask here for more, and you ask for your department. A request says who would be affected; "
           "approve all of it, less, or for a term.")),
    Step("usage", "quotas:usage", _("Usage, cost and backtests"),
         _("Any period, by person, pool or kind, also as CSV. Backtest on a pool's page replays the last weeks under "
           "other quotas and changes nothing.")),
))  # fmt: skip
OPERATOR = Tour("operator", _("Operators"), _("Current status, and where everything is set"), (
    Step("health", "portal:operator", _("Current status"),
         _("Consistency, clusters and queues; below, scheduled jobs and processes. Problems are shown in red, with what to do.")),
    Step("pools", "quotas:operator_pools", _("Pools"),
         _("Each kind of GPU capacity of a cluster: notice, grace, queue order, idle policy and price.")),
    Step("map", "quotas:card_map", _("Card map"),
         _("Every node and card at a glance: who uses it, or how busy it is. Click a card to see who has it, for what and "
           "until when.")),
    Step("nodes", "quotas:operator_nodes", _("Nodes"),
         _("Drain a node, change its sharing mode, quarantine a faulty card. A preview says who is affected "
           "before you confirm.")),
    Step("clusters", "workloads:clusters", _("Clusters"),
         _("Connect a Kubernetes cluster with its kubeconfig, test it, and measure the use of its cards through its "
           "Prometheus.")),
    Step("users", "portal:operator_users", _("Users"),
         _("Accounts and operators. Identity providers, directories and the roles of their groups are under "
           "Groups.")),
    Step("configuration", "workloads:configuration", _("Configuration as code"),
         _("All settings as one file. A dry run lists every value that would change and who would be recalled; the file "
           "is applied as a whole or not at all.")),
    Step("estimates", "workloads:estimates", _("Accuracy of estimates"),
         _("Waiting workloads show an estimated start. Here each estimate is compared with what happened.")),
))  # fmt: skip
PIPELINES = Tour("pipelines", _("Pipelines"), _("From a token to the API page"), (
    Step("token", "portal:tokens", _("A token for the pipeline"),
         _("The scopes read and submit are enough. GPU-hours and addresses limit what it can do. A token that must not "
           "depend on one person belongs to a service account; a quota owner creates it under Members.")),
    Step("spec", "workloads:latest?tab=spec", _("Any workload as a request"),
         _("Specification shows a workload in the format of the API. Copy it, and post the same from a pipeline."), Right.SEE),
    Step("guide", "api:docs", _("The API's guide"),
         _("Conventions, idempotency keys, and a pipeline that waits through recalls and ends with the job's "
           "exit code.")),
    Step("reference", "api:docs", _("Every operation"),
         _("Each with an example and calls to copy for curl, Python and gpuq. Try it sends them from the browser.")),
))  # fmt: skip
TOURS = {tour.key: tour for tour in (RESEARCHER, OWNER, OPERATOR, PIPELINES)}


@dataclass
class Stand:
    """The reader's position: at a `step` of a tour, or offered a tour (`step` None)."""

    tour: Tour
    steps: list[Step]  # those with pages that the reader can open
    step: Step | None = None
    is_drawn: bool = False  # the card is already on this page

    @property
    def number(self) -> int:
        return self.steps.index(self.step) + 1 if self.step else 0

    @property
    def back(self) -> Step | None:
        return self.steps[self.number - 2] if self.number > 1 else None

    @property
    def next(self) -> Step | None:
        return self.steps[self.number] if self.number < len(self.steps) else None


def address_of(shell: Shell, step: Step) -> str:
    """The URL of the step's page; "" if the reader cannot open it."""
    view, mark, query = step.view.partition("?")
    slug = {}
    if step.right is not None:
        if shell.actor is None or shell.department is None or not shell.actor.may(step.right, shell.department):
            return ""
        slug = {"department": shell.department.slug}
    page = address(view, slug)
    return f"{page}{mark}{query}#{ANCHOR}" if page else ""


def tours_of(shell: Shell) -> list[Tour]:
    """The tours for this reader; the first one is offered."""
    if shell.actor is None:
        return []
    tours = [OPERATOR] if shell.actor.is_operator else []
    if shell.department is None:
        return tours
    if shell.actor.is_operator or shell.may_steer:
        tours.append(OWNER)
    return [*tours, RESEARCHER, *([PIPELINES] if shell.may_submit else [])]


def stand_at(shell: Shell, tour: Tour, name: str) -> Stand:
    """The position at the step of this name, else at the first step. `tour` has steps for everybody to whom it is open."""
    steps = [step for step in tour.steps if address_of(shell, step)]
    return Stand(tour, steps, next((step for step in steps if step.name == name), steps[0]))


def go(shell: Shell, key: str, name: str) -> str:
    """Moves the reader to the step `name` of a tour; "start" is its first, "" closes it for good. Returns the URL of the step's
    page, "" after closing. Raises NotVisible if the reader has no such tour or step."""
    tour = TOURS.get(key)
    if shell.user is None or tour is None or tour not in tours_of(shell):
        raise NotVisible
    row = User.objects.filter(pk=shell.user.pk)
    if not name:
        row.update(tour=key, tour_step="", tour_closed=True)
        return ""
    step = stand_at(shell, tour, name).step
    if step is None or name not in (step.name, "start"):
        raise NotVisible
    row.update(tour=key, tour_step=step.name, tour_closed=False)
    return address_of(shell, step)


def stand_of(shell: Shell) -> Stand | None:
    """The position of this page's reader, computed once for each page; None without an open tour."""
    user, tour = shell.user, None
    if user is None or user.tour_closed or (tour := TOURS.get(user.tour)) is None or tour not in tours_of(shell):
        return None
    once: dict[str, Stand] = shell.request.__dict__.setdefault("tours", {})
    return once.setdefault(tour.key, stand_at(shell, tour, user.tour_step))


def offered_to(shell: Shell) -> Stand | None:
    """What the first page after login offers: a tour to begin, or one to continue on another page; None if neither."""
    user, match = shell.user, shell.request.resolver_match
    if user is None or user.tour_closed or match is None or shell.actor is None:
        return None
    if match.view_name != ("portal:operator" if shell.actor.is_operator else "portal:home"):
        return None
    stand = stand_of(shell)
    if stand is not None and stand.step is not None:
        return None if stand.step.view == match.view_name else stand
    tours = tours_of(shell)
    return Stand(tours[0], stand_at(shell, tours[0], "").steps) if tours else None
