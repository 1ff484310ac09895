"""The application that `portal.serve` runs, under any ASGI server: see portal/hybrid.py."""

import os
import signal
import threading
from importlib import import_module

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
django.setup()

from django.conf import settings  # noqa: E402
from django.utils.module_loading import import_string  # noqa: E402

from portal import garbage, held  # noqa: E402
from portal.hybrid import Hybrid  # noqa: E402

application = Hybrid(import_string(settings.NOTEBOOK_APPLICATION), threads=settings.WEB_THREADS)

import_module(settings.ROOT_URLCONF)  # with all views: the first request need not wait for them
garbage.look_seldom()

if threading.current_thread() is threading.main_thread():  # portal.serve says with it that the process is about to end
    signal.signal(signal.SIGUSR1, lambda *_: held.close())
