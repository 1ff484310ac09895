from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("workloads", "0023_deadlines_of_mode_changes")]

    operations = [migrations.RenameField("metricssource", "told_at", "notified_at")]
