from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("workloads", "0022_estimates_as_played")]

    operations = [migrations.RenameField("modechange", "told", "deadlines")]
