"""Loaded by `-p` before Django reads its settings: the environment of a test run, and its throw-away servers.

Each worker of xdist has servers of its own: event streams wait for the oldest open transaction of the whole PostgreSQL
server, and Redis channels are shared by all its databases, so two test sessions on one server would wait for each other.
"""

import base64
import os
import tempfile

from tests import servers

os.environ.setdefault("DEBUG", "true")
os.environ.setdefault("ENCRYPTION_KEYS", base64.urlsafe_b64encode(os.urandom(32)).decode())
os.environ.setdefault("LOG_LEVEL", "ERROR")

GIVEN = {"DATABASE_URL", "TEST_REDIS_URL"} & set(os.environ) - set(os.environ.get("OWN_SERVERS", "").split())
if "PYTEST_XDIST_WORKER" in os.environ or "DATA_DIR" not in os.environ:
    os.environ["DATA_DIR"] = tempfile.mkdtemp(prefix="gqp-data-")
if "DATABASE_URL" not in GIVEN:
    os.environ["DATABASE_URL"] = servers.postgres() or "sqlite:///" + os.environ["DATA_DIR"] + "/test.sqlite3"
if "TEST_REDIS_URL" not in GIVEN:
    os.environ["TEST_REDIS_URL"] = servers.redis() or ""
os.environ["OWN_SERVERS"] = " ".join(
    {"DATABASE_URL", "TEST_REDIS_URL"} - GIVEN
)  # workers inherit this and start their own
