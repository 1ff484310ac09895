"""Failed logins are counted in the cache: the tables of django-axes, which did it before, go."""

from django.db import migrations

TABLES = ("axes_accessattemptexpiration", "axes_accessattempt", "axes_accesslog", "axes_accessfailurelog")


class Migration(migrations.Migration):
    dependencies = [("portal", "0006_plain_labels")]

    operations = [migrations.RunSQL(f"DROP TABLE IF EXISTS {table}", migrations.RunSQL.noop) for table in TABLES]
