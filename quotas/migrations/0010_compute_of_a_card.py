from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import Min


def as_their_cards_say(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    cards = apps.get_model("quotas", "Card").objects.filter(pool__isnull=False, cores__gt=0)
    for row in cards.order_by().values("pool").annotate(least=Min("cores")):
        apps.get_model("quotas", "Pool").objects.filter(pk=row["pool"]).update(card_cores=row["least"])


class Migration(migrations.Migration):

    dependencies = [
        ("quotas", "0009_since_when_it_is_lent"),
    ]

    operations = [
        migrations.AddField(
            model_name="pool",
            name="card_cores",
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.RunPython(as_their_cards_say, migrations.RunPython.noop),
    ]
