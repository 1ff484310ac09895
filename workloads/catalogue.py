"""Images and presets, as operators keep them. One write each, with its audit row."""

from __future__ import annotations

from typing import Any

from portal import audit
from portal.access import Actor
from portal.locks import durable
from workloads.models import Image, Preset

IMAGE_FIELDS = ("name", "title", "kinds", "interpreter", "min_driver", "active")
PRESET_FIELDS = (
    "slug", "title", "description", "kind", "pool_id", "pods", "setup", "units_per_pod", "cores_per_pod", "profile", "image_id",
    "command", "cpu_milli", "memory_mib", "max_runtime", "order", "active",
)  # fmt: skip


def save_image(*, actor: Actor, image: Image) -> Image:
    """Makes it, or changes the one with its key. Raises NotVisible for anybody but operators."""
    actor.require_operator()
    with durable():
        before = _facts(Image.objects.filter(pk=image.pk).first(), IMAGE_FIELDS)
        image.save()
        after = _facts(image, IMAGE_FIELDS)
        audit.record(actor, "image.changed" if before else "image.added", image.name, before=before, after=after)
    return image


def save_preset(*, actor: Actor, preset: Preset) -> Preset:
    """Makes it, or changes the one with its key. Raises NotVisible for anybody but operators."""
    actor.require_operator()
    with durable():
        before = _facts(Preset.objects.filter(pk=preset.pk).first(), PRESET_FIELDS)
        preset.save()
        after = _facts(preset, PRESET_FIELDS)
        audit.record(actor, "preset.changed" if before else "preset.added", preset.slug, before=before, after=after)
    return preset


def _facts(row: Image | Preset | None, fields: tuple[str, ...]) -> dict[str, Any] | None:
    return None if row is None else {field: getattr(row, field) for field in fields}
