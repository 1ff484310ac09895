"""The ASGI application of this process, and how the process ends with its parent. Imported after Django is set up."""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from importlib import import_module

from django.conf import settings
from django.utils.module_loading import import_string

from portal.server import answers, shutdown
from portal.server.asgi_server import Hybrid

application = Hybrid(import_string(settings.NOTEBOOK_APPLICATION), threads=settings.WEB_THREADS)

import_module(settings.ROOT_URLCONF)  # loads all views, so that the first request does not wait for them
gc.freeze()  # imported objects stay: full collections took 0.2 s to scan them, during about every tenth page

LAST_WORD = 1.0  # seconds for held requests to end


def end_with(parent: multiprocessing.process.BaseProcess) -> None:
    """Ends this process when its parent has ended, however that happened.

    Otherwise it would keep the port and go on answering beside the next server.
    """
    multiprocessing.connection.wait([parent.sentinel])
    shutdown.close()
    time.sleep(LAST_WORD)
    os._exit(1)


threading.Thread(target=answers.keep_regularly, name="answers", daemon=True).start()

if (server := multiprocessing.parent_process()) is not None:  # one of several that portal.server.serve started
    threading.Thread(target=end_with, args=(server,), name="end-with-parent", daemon=True).start()

if threading.current_thread() is threading.main_thread():
    # portal.server.serve sends it shortly before it ends the process
    signal.signal(signal.SIGUSR1, lambda *_: shutdown.close())
