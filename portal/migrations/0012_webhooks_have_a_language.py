from django.db import migrations, models


def as_before(apps, _schema):
    """Until now the receivers that are chats were written to in Chinese."""
    apps.get_model("portal", "Webhook").objects.exclude(shape="generic").update(language="zh-hans")


class Migration(migrations.Migration):

    dependencies = [
        ("portal", "0011_missing_provider"),
    ]

    operations = [
        migrations.AddField(
            model_name="webhook",
            name="language",
            field=models.CharField(choices=[("en", "English"), ("zh-hans", "Simplified Chinese")], default="en", db_default="en", max_length=10, verbose_name="language"),
        ),
        migrations.AlterField(
            model_name="webhook",
            name="shape",
            field=models.CharField(choices=[("generic", "signed JSON"), ("slack", "Slack"), ("teams", "Microsoft Teams"), ("wecom", "WeCom (企业微信)"), ("feishu", "Feishu (飞书)"), ("dingtalk", "DingTalk (钉钉)")], default="generic", max_length=10),
        ),
        migrations.RunPython(as_before, migrations.RunPython.noop),
    ]
