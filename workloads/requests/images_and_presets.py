"""Images and presets, managed by operators. Each change is recorded in the audit log."""

from __future__ import annotations

from typing import Any

from portal import audit
from portal.access import Actor
from portal.infra import versions
from portal.infra.locks import durable
from quotas.amounts import check_not_little
from workloads.models import Image, Preset

MAY_BE_EMPTY = ("kinds", "command", "setup")  # Django would reject an empty value; each is validated where it is parsed
IMAGE_FIELDS = ("name", "title", "kinds", "interpreter", "min_driver", "active")
PRESET_FIELDS = (
    "slug", "title", "description", "kind", "pool_id", "pods", "setup", "units_per_pod", "cores_per_pod", "profile", "image_id",
    "command", "cpu_milli", "memory_mib", "max_runtime", "order", "active",
)  # fmt: skip


def save_image(*, actor: Actor, image: Image, seen: str = "") -> Image:
    """Adds the image, or changes the one with its key. Raises Conflict, ValidationError (errors by field), NotVisible (the
    actor is no operator)."""
    actor.require_operator()
    image.full_clean(exclude=MAY_BE_EMPTY)
    with durable():
        before = _facts(Image.catalogue().select_for_update(no_key=True).filter(pk=image.pk).first(), IMAGE_FIELDS)
        versions.check(before or {}, seen)
        image.save()
        after = _facts(image, IMAGE_FIELDS)
        audit.record(actor, "image.changed" if before else "image.added", image.name, before=before, after=after)
    return image


def save_preset(*, actor: Actor, preset: Preset, seen: str = "") -> Preset:
    """Adds the preset, or changes the one with its key. Raises Conflict, ValidationError (errors by field), Invalid
    (units_per_pod), NotVisible (the actor is not an operator)."""
    actor.require_operator()
    preset.full_clean(exclude=MAY_BE_EMPTY)
    check_not_little(preset.units_per_pod, preset.pool, "units_per_pod")
    with durable():
        before = _facts(
            Preset.objects.select_for_update(no_key=True, of=("self",)).filter(pk=preset.pk).first(), PRESET_FIELDS
        )
        versions.check(before or {}, seen)
        preset.save()
        after = _facts(preset, PRESET_FIELDS)
        audit.record(actor, "preset.changed" if before else "preset.added", preset.slug, before=before, after=after)
    return preset


def mark_of(row: Image | Preset) -> str:
    """The version mark for the row's form; "" for a new row."""
    facts = _facts(row, IMAGE_FIELDS if isinstance(row, Image) else PRESET_FIELDS) if row.pk else None
    return versions.mark(facts) if facts else ""


def _facts(row: Image | Preset | None, fields: tuple[str, ...]) -> dict[str, Any] | None:
    return None if row is None else {field: getattr(row, field) for field in fields}
