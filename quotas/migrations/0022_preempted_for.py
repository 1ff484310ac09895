import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("quotas", "0021_balances_of_departments")]

    operations = [
        migrations.RenameField("claim", "held_for", "preempted_for"),
        migrations.AlterField(
            "claim",
            "preempted_for",
            models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to="quotas.claim"),
        ),
    ]
