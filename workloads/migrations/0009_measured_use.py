"""Where use is measured, and the means of five minutes and of hours.

The columns stand from the widest to the narrowest, because there are millions of rows and PostgreSQL aligns each column.
"""

import django.db.models.deletion
from django.db import migrations, models

MEASURED = [
    ("attempt", models.ForeignKey(
        db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="workloads.attempt")),
    ("at", models.DateTimeField()),
    ("gpu_mib", models.PositiveIntegerField(null=True)),
    ("watts", models.PositiveIntegerField(null=True)),
    ("cpu_milli", models.PositiveIntegerField(null=True)),
    ("memory_mib", models.PositiveIntegerField(null=True)),
    ("gpu", models.PositiveSmallIntegerField(null=True)),
    ("rank", models.PositiveSmallIntegerField()),
    ("cards", models.PositiveSmallIntegerField(default=0)),
]  # fmt: skip
KEY = ("pk", models.CompositePrimaryKey("attempt", "rank", "at", blank=True, editable=False, primary_key=True, serialize=False))


class Migration(migrations.Migration):
    dependencies = [
        ("quotas", "0015_requests_for_quota"),
        ("workloads", "0008_plain_labels"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="attempt", index=models.Index(fields=["cluster", "finished_at"], name="attempt_ended")
        ),
        migrations.CreateModel(
            name="MetricsSource",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("url", models.CharField(blank=True, max_length=500)),
                ("auth", models.CharField(
                    choices=[("none", "none"), ("bearer", "bearer token"), ("basic", "user name and password")],
                    default="none", max_length=8)),
                ("username", models.CharField(blank=True, max_length=200)),
                ("secret", models.TextField(blank=True, editable=False)),
                ("ca", models.TextField(blank=True)),
                ("exporters", models.JSONField(default=list)),
                ("selector", models.CharField(blank=True, max_length=300)),
                ("measured_at", models.DateTimeField(editable=False, null=True)),
                ("ranks", models.PositiveIntegerField(default=0, editable=False)),
                ("gpu_ranks", models.PositiveIntegerField(default=0, editable=False)),
                ("failing_since", models.DateTimeField(editable=False, null=True)),
                ("failure", models.JSONField(default=dict, editable=False)),
                ("complete_until", models.DateTimeField(editable=False, null=True)),
                ("cluster", models.OneToOneField(
                    on_delete=django.db.models.deletion.CASCADE, related_name="metrics_source", to="quotas.cluster")),
            ],
        ),
        migrations.CreateModel(
            name="MeasuredBucket",
            fields=[*MEASURED, KEY],
            options={"indexes": [models.Index(fields=["at"], name="measured_bucket_at")]},
        ),
        migrations.CreateModel(
            name="MeasuredHour",
            fields=[*MEASURED, ("buckets", models.PositiveSmallIntegerField(default=0)), KEY],
            options={"indexes": [models.Index(fields=["at"], name="measured_hour_at")]},
        ),
    ]  # fmt: skip
