from django.db import migrations

NOT_SENT = {
    "node.quarantined", "node.quarantine_ended", "cluster.not_measured", "cluster.measured", "provider.missing",
    "directory.away", "directory.too_many_lose", "directory.read_again", "member.invited", "member.removed",
    "webhook.failing",
}  # fmt: skip


def take_out(apps, schema_editor):
    """Kinds that no webhook is sent. One that asked for nothing else is disabled: with no kinds it would be sent all."""
    for hook in apps.get_model("portal", "Webhook").objects.exclude(kinds=[]):
        kept = [kind for kind in hook.kinds if kind not in NOT_SENT]
        if kept != hook.kinds:
            hook.kinds, hook.active = kept, hook.active and bool(kept)
            hook.version += 1
            hook.save(update_fields=["kinds", "active", "version"])


class Migration(migrations.Migration):

    dependencies = [
        ("portal", "0018_tours"),
    ]

    operations = [
        migrations.RunPython(take_out, migrations.RunPython.noop),
    ]
