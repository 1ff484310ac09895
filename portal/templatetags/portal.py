"""What templates need beyond Django's own tags: amounts, times, states, quota bars, fields (templates/_components/README.md)."""

from __future__ import annotations

import datetime as dt
import re
from copy import copy
from typing import Any

from django import template
from django.forms import CheckboxInput, CheckboxSelectMultiple, RadioSelect, Select
from django.forms.boundfield import BoundField, BoundWidget
from django.http import HttpResponse, QueryDict
from django.template import Context
from django.template.defaultfilters import date as date_format
from django.templatetags.static import static
from django.urls import resolve, reverse
from django.utils import timezone
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from portal.access import Right
from portal.ids import new_id
from portal.models import Department, Role, SavedFilter
from portal.text import plain_errors, words
from portal.web import code_names, tours
from portal.web.forms import faults
from portal.web.navigation import Shell
from portal.web.once import FIELD
from portal.web.why import RULES

register = template.Library()

STATE_ICONS = {
    "queued": "hourglass",
    "admitted": "circle-check",
    "starting": "loader",
    "running": "player-play",
    "recalled": "arrow-back-up",
    "stopping": "player-stop",
    "succeeded": "check",
    "failed": "alert-circle",
    "cancelled": "ban",
    "rejected": "circle-x",
}


@register.simple_tag
def once() -> SafeString:
    """The key of a form that adds something: if it is sent twice, it is carried out once (portal/web/once.py)."""
    return format_html('<input type="hidden" name="{}" value="{}">', FIELD, new_id())


@register.simple_tag(takes_context=True)
def part(context: Context, address: str) -> SafeString:
    """Includes the response of the view at this URL in the page, so that a live part is there when the page arrives."""
    path, _mark, query = address.partition("?")
    match, request = resolve(path), copy(context["request"])
    request.method, request.GET = "GET", QueryDict(query)  # also on the page that shows a refused form
    response: HttpResponse = match.func(request, *match.args, **match.kwargs)
    return mark_safe(response.content.decode())  # noqa: S308 - a page of our own, escaped by its template


register.simple_tag(words.space)
register.filter(words.sentences)


@register.simple_tag
def why(topic: str) -> SafeString | str:
    """A link to the rule that explains what is shown, in docs/quota-rules-by-number.md (portal/web/why.py)."""
    rule = RULES.get(topic)
    if rule is None:
        return ""
    address = f"{reverse('portal:help_page', args=['quota-rules-by-number'])}#rule-{rule}"
    text = _("Why? Rule %(number)s") % {"number": rule}
    return format_html('<a class="why small text-nowrap" href="{}">{}</a>', address, text)


@register.inclusion_tag("_components/tour.html", takes_context=True)
def tour(context: Context, *names: str) -> dict[str, Any]:
    """Before an element with data-tour: the card of a guided tour, if the reader is at one of these steps. Without names, at
    the end of a page: the form of the card's buttons (the card may be inside another form), and the card of a step about this
    page whose element is missing."""
    stand, match = tours.stand_of(context["shell"]), context["request"].resolver_match
    card = False
    if stand is not None and stand.step is not None and not stand.is_drawn:
        card = stand.step.name in names if names else match is not None and stand.step.view == match.view_name
        stand.is_drawn = card
    return {"stand": stand, "card": card, "is_end": not names}


@register.inclusion_tag("_components/tour_offer.html", takes_context=True)
def tour_offer(context: Context) -> dict[str, Any]:
    """On the first page after login: a tour to begin or to continue."""
    return {"stand": tours.offered_to(context["shell"])}


@register.simple_tag
def icon(name: str, extra: str = "") -> SafeString:
    """One icon of the sprite. It is decorative: the text beside it must have the same meaning."""
    return format_html(
        '<svg class="icon {}" aria-hidden="true" focusable="false" fill="none" stroke="currentColor" stroke-width="1.5"'
        ' stroke-linecap="round" stroke-linejoin="round"><use href="{}#{}"></use></svg>',
        extra,
        static("vendor/icons.svg"),
        name,
    )


for plain in (
    faults,
    code_names.event_label,
    plain_errors.plain_error,
    plain_errors.technical,
    words.amount,
    words.exact,
    words.guarantee,
    words.memory,
    words.file_size,
    words.listed,
    words.cores,
    words.duration,
    words.price,
    words.unit_name,
    words.part,
    words.percent,
):
    register.filter(plain)
register.simple_tag(words.charged)


@register.filter
def breakable(text: str) -> SafeString:
    """An e-mail address or an image reference, which may be broken behind its marks instead of inside a word."""
    return mark_safe(re.sub(r"([@/:]+)(?=.)", r"\1<wbr>", escape(text)))  # noqa: S308 - escaped


@register.filter
def lend_limit(units: int | None, pool: Any) -> str:
    """A lend limit in words; None is "all"."""
    return words.limit_in_words("lend_limit", units, pool)


@register.filter
def steers(shell: Shell, department: Department) -> bool:
    """Whether the reader may steer the department: not every page about one has it in its URL."""
    return bool(shell.actor and shell.actor.may(Right.STEER, department))


@register.filter
def role_name(role: str) -> str:
    """The label of a role."""
    return str(Role(role).label)


@register.filter
def steps(depth: int) -> range:
    """One item for each level below the first, to indent a row of a tree."""
    return range(max(0, depth - 1))


@register.simple_tag
def ago(moment: dt.datetime | None, never: str = "") -> str | SafeString:
    """A time as distance from now, updated by portal.js; absolute in the reader's zone on hover."""
    if moment is None:
        return never or _("never")
    seconds = (timezone.now() - moment).total_seconds()
    if abs(seconds) < 1:
        text = _("just now")
    elif seconds > 0:
        text = _("%(time)s ago") % {"time": words.duration(seconds)}
    else:
        text = _("in %(time)s") % {"time": words.duration(-seconds)}
    return _time(moment, text, "relative")


@register.simple_tag
def due(moment: dt.datetime | None) -> str | SafeString:
    """The time left until something happens; "now" once it is due, never negative."""
    if moment is None:
        return ""
    left = (moment - timezone.now()).total_seconds()
    text = _("in %(time)s") % {"time": words.duration(left)} if left >= 1 else _("now")
    return _time(moment, text, "due")


@register.simple_tag
def countdown(moment: dt.datetime | None) -> str | SafeString:
    """The time left until `moment` as minutes and seconds, ticking by the server's clock."""
    if moment is None:
        return ""
    left = max(0, int((moment - timezone.now()).total_seconds()))
    hours, rest = divmod(left, 3600)
    text = f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"
    return _time(moment, text, "countdown")


@register.simple_tag
def since(moment: dt.datetime | None) -> str | SafeString:
    """How long something has lasted, ticking."""
    return "" if moment is None else _time(moment, words.duration(timezone.now() - moment), "since")


@register.simple_tag
def clock(moment: dt.datetime | None) -> str | SafeString:
    """An absolute time, as short as possible: 18:20 today, 23 Nov 18:20 this year, 23 Nov 2027 18:20."""
    if moment is None:
        return ""
    local, today = timezone.localtime(moment), timezone.localdate()
    shape = "H:i" if local.date() == today else _("j M H:i") if local.year == today.year else _("j M Y H:i")
    return _time(moment, date_format(local, shape), "")


@register.simple_tag(takes_context=True)
def saved_filters(context: Context) -> list[SavedFilter]:
    """The filters that the reader has saved for the list on this page."""
    request = context["request"]
    return list(SavedFilter.objects.filter(user=request.user, path=request.path))


@register.simple_tag
def moment(at: dt.datetime) -> SafeString:
    """A time to the second in the reader's zone: for logs, where times are compared and copied."""
    return _time(at, date_format(timezone.localtime(at), "Y-m-d H:i:s"), "")


def _time(moment: dt.datetime, text: str, kind: str) -> SafeString:
    local = timezone.localtime(moment)
    return format_html(
        '<time datetime="{}" title="{}" data-time="{}">{}</time>',
        moment.isoformat(),
        date_format(local, "Y-m-d H:i:s T"),
        kind,
        text,
    )


@register.inclusion_tag("_components/state.html")
def state(value: Any, label: str = "") -> dict[str, Any]:
    """A workload's state as icon and word. `value` is a State or its name."""
    name = str(getattr(value, "value", value))
    return {"state": name, "label": label or getattr(value, "label", name), "icon_name": STATE_ICONS.get(name, "flag")}


@register.inclusion_tag("_components/quota_bar.html")
def quota_bar(
    pool: Any,
    guaranteed: int = 0,
    own: int = 0,
    borrowed: int = 0,
    lent: int = 0,
    held: int = 0,
    ceiling: int | None = None,
    legend: bool = True,
) -> dict[str, Any]:
    """One department's use of one pool. Own use is drawn solid, lent dotted, held dashed, borrowed hatched and beyond the
    guarantee."""
    inside = own + held + lent
    start = max(guaranteed, inside)
    total = max(ceiling or 0, start + borrowed, 1)
    kinds = [
        ("own", _("own"), 0, own),
        ("held", _("held"), own, held),
        ("lent", _("lent"), own + held, lent),
        ("borrowed", _("borrowed"), start, borrowed),
    ]
    drawn = [
        {"kind": kind, "label": label, "units": units, "x": percent(at, total), "width": percent(units, total)}
        for kind, label, at, units in kinds
        if units
    ]
    return {
        "pool": pool,
        "parts": drawn,
        "mark": percent(guaranteed, total) if 0 < guaranteed < total else "",
        "guaranteed": guaranteed,
        "ceiling": ceiling,
        "legend": legend,
    }


@register.inclusion_tag("_components/quota_bar.html")
def pool_bar(
    pool: Any,
    capacity: int,
    promised: int = 0,
    own: int = 0,
    borrowed: int = 0,
    held: int = 0,
    outside: int = 0,
    away: int = 0,
) -> dict[str, Any]:
    """Everybody's use of one pool, on the pool's scale: the parts follow each other, and the empty rest is free.

    `outside`: used by pods that the portal did not start. `away`: capacity that is offline at present.
    """
    kinds = [
        ("own", _("own"), own),
        ("borrowed", _("borrowed"), borrowed),
        ("outside", _("outside the quota"), outside),
        ("held", _("held"), held),
        ("away", _("offline"), away),
    ]
    total, at, drawn = max(capacity, own + borrowed + outside + held + away, 1), 0, []
    for kind, label, units in kinds:
        if units:
            x, width = percent(at, total), percent(units, total)
            drawn.append({"kind": kind, "label": label, "units": units, "x": x, "width": width})
            at += units
    return {
        "pool": pool,
        "parts": drawn,
        "mark": percent(promised, total) if 0 < promised < total else "",
        "guaranteed": promised,
        "capacity": capacity,
        "legend": True,
    }


def percent(part: int, whole: int) -> str:
    return f"{part * 100 / whole:.2f}%"


@register.inclusion_tag("_components/field.html")
def field(bound: BoundField, hint: str = "") -> dict[str, Any]:
    """A form field with label, help and the errors beside it; `hint` replaces the help text."""
    widget = bound.field.widget
    several = isinstance(widget, CheckboxSelectMultiple | RadioSelect)
    check = isinstance(widget, CheckboxInput)
    style = "form-check-input" if check or several else "form-select" if isinstance(widget, Select) else "form-control"
    if bound.errors:
        style += " is-invalid"
    attrs: dict[str, str | bool] = {"class": f"{widget.attrs.get('class', '')} {style}".strip()}
    return {
        "bound": bound,
        "check": check,
        "several": several,
        "rendered": "" if several else bound.as_widget(attrs=attrs),
        "options": subwidgets(bound, style) if several else [],
        "hint": hint or bound.help_text,
    }


@register.inclusion_tag("_components/errors.html")
def errors(*asked: Any) -> dict[str, Any]:
    """What is wrong with these forms and formsets, above them: links to the fields, the first of which has the focus; and both
    versions, if somebody else changed one meanwhile. Nothing for a form that the page does not have."""
    given = [form for form in asked if form]
    wrong = faults(given)
    fields = list(dict.fromkeys(fault.id for fault in wrong if fault.id))
    conflicts = [form.conflict for form in given if getattr(form, "conflict", None) is not None]
    return {
        "faults": wrong, "fields": len(fields), "focus": fields[0] if fields else "",
        "conflict": conflicts[0] if conflicts else None,
    }  # fmt: skip


def subwidgets(bound: BoundField, style: str) -> list[BoundWidget]:
    bound.field.widget.attrs["class"] = style  # its options use this class
    return list(bound.subwidgets)


@register.inclusion_tag("_components/pager.html", takes_context=True)
def pager(context: template.Context, page: Any) -> dict[str, Any]:
    """The footer of a card: previous, next and "51–100 of 312" for a Django Page, keeping the query string; nothing if there is
    one page only."""
    return {"request": context["request"], "page": page}


@register.simple_tag
def note(stored: dict[str, Any], plain: str = "") -> str:
    """The translation of a stored sentence; `plain` if none is stored."""
    return words.stored_sentence(stored) if stored else plain


@register.filter
def sentence(stored: dict[str, Any]) -> str:
    """The translation of a stored sentence."""
    return words.stored_sentence(stored)


@register.simple_tag
def notes(stored: list[dict[str, Any]], plain: str = "") -> str:
    return _("; ").join(note(each) for each in stored) or plain
