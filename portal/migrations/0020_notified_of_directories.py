from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("portal", "0019_kinds_of_webhooks")]

    operations = [migrations.RenameField("directoryreading", "told_at", "notified_at")]
