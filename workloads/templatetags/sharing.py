"""What a request takes of a sharing system, in words and as a picture, for every page."""

from __future__ import annotations

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext

from workloads.models import Preset
from workloads.sharing import SYSTEMS

register = template.Library()
PODS_DRAWN, CARDS_DRAWN = 4, 8
CARD, GAP, BETWEEN = 14, 3, 8  # pixels: a card's side, the gap to the next one, and to the next pod


@register.filter
def sharing_name(key: str) -> str:
    """`mig` → “MIG instances”; what no module serves stays as it is."""
    system = SYSTEMS.get(key)
    return gettext(system.ABOUT.title) if system else key


@register.simple_tag
def takes(preset: Preset) -> SafeString:
    """A picture of its cards: one square each, filled as far as it takes the card, with a gap between pods. The words
    beside it say the same."""
    cards, part = divmod(preset.units_per_pod, preset.pool.units_per_card)
    fills = [1.0] * cards + ([part / preset.pool.units_per_card] if part else [])
    squares, x = [], 0
    for _pod in range(min(preset.pods, PODS_DRAWN)):
        for fill in fills[:CARDS_DRAWN]:
            height = max(2, round(CARD * fill))
            squares.append((x, CARD, CARD, x, CARD - height, CARD, height))
            x += CARD + GAP
        x += BETWEEN
    drawn = format_html_join(
        "",
        '<rect class="takes-card" x="{}" y="0" width="{}" height="{}" rx="2"/>'
        '<rect class="takes-part" x="{}" y="{}" width="{}" height="{}" rx="2"/>',
        squares,
    )
    more = "…" if preset.pods > PODS_DRAWN or len(fills) > CARDS_DRAWN else ""
    return format_html(
        '<svg class="takes" width="{}" height="{}" aria-hidden="true" focusable="false">{}<text x="{}" y="{}">{}</text></svg>',
        x + (CARD if more else 0), CARD, drawn, max(0, x - BETWEEN), CARD - 2, more,
    )  # fmt: skip
