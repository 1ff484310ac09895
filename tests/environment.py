"""Loaded by `-p` before Django reads its settings: the environment of a test run, and its throw-away servers.

Workers of xdist inherit the first process's environment, so there is one server of each kind a run.
"""

import base64
import os
import tempfile

from tests import servers

os.environ.setdefault("DEBUG", "true")
os.environ.setdefault("ENCRYPTION_KEYS", base64.urlsafe_b64encode(os.urandom(32)).decode())
os.environ.setdefault("LOG_LEVEL", "ERROR")
os.environ.setdefault("DATA_DIR", tempfile.mkdtemp(prefix="gqp-data-"))
if "DATABASE_URL" not in os.environ:
    os.environ["DATABASE_URL"] = servers.postgres() or "sqlite:///" + os.environ["DATA_DIR"] + "/test.sqlite3"
if "TEST_REDIS_URL" not in os.environ:
    os.environ["TEST_REDIS_URL"] = servers.redis() or ""
