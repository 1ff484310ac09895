from django.apps import AppConfig
from django.conf import settings


class PortalConfig(AppConfig):
    name = "portal"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from portal.infra.telemetry import switch
        from portal.text import spacing
        from portal.web.error_pages import replace_technical_pages

        replace_technical_pages()
        spacing.begin()
        switch.begin(settings.TRACES, settings.ERRORS, settings.VERSION)
