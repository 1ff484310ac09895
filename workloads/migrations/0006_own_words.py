from django.db import migrations, models


def mark(apps, schema_editor):
    """What may still start keeps what its preset wrote."""
    live = apps.get_model("workloads", "Workload").objects.filter(finished_at=None, preset__isnull=False)
    for workload in live.select_related("preset").iterator():
        words = enumerate(workload.command)
        own = [at for at, word in words if "$(PORTAL_" in word and word in workload.preset.command]
        if own:
            type(workload).objects.filter(pk=workload.pk).update(own_words=own)


class Migration(migrations.Migration):
    dependencies = [("workloads", "0005_stuck")]

    operations = [
        migrations.AddField(model_name="workload", name="own_words", field=models.JSONField(default=list)),
        migrations.RunPython(mark, migrations.RunPython.noop, elidable=True),
    ]
