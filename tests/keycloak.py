"""A real Keycloak for the tests of sign-in: fetched once by Maven, pinned by version and digest, and kept outside of the
checkout.

`python -m tests.keycloak` fetches and prepares it, which takes a minute; a start of the prepared server takes seconds.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import signal
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.servers import free_port

VERSION = "26.7.3"
SHA256 = "27a6535553c3cdcd083872ba40629efafb3475e3b758e0c6f691395561dd0f1f"
ARTIFACT = f"org.keycloak:keycloak-quarkus-dist:{VERSION}:zip"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-quota-portal"
HOME = CACHE / f"keycloak-{VERSION}"
PREPARED = HOME / "prepared"  # data folder of an empty server; exists if the preparation is complete
ADMIN = {"KC_BOOTSTRAP_ADMIN_USERNAME": "admin", "KC_BOOTSTRAP_ADMIN_PASSWORD": "of-the-tests-only"}
LIGHT = "-XX:TieredStopAtLevel=1"  # optimised compilation does not pay for a server that runs for minutes
PATIENCE = 240  # s


def missing() -> str:
    """The missing command; "" if Keycloak can run."""
    if PREPARED.exists():
        return "" if shutil.which("java") else "java"
    return next((name for name in ("java", "mvn") if shutil.which(name) is None), "")


def prepare() -> None:
    """Fetches, unpacks and builds the server unless that is done; concurrent processes wait."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "keycloak.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if PREPARED.exists():
            return
        shutil.rmtree(HOME, ignore_errors=True)
        _unpack(_fetch())
        subprocess.run([HOME / "bin" / "kc.sh", "build", "--db=dev-file"], check=True, stdout=subprocess.DEVNULL)
        with _process(HOME / "data", free_port(), HOME / "prepare.log"):
            pass  # the first start creates its tables and the realm of its administrators
        (HOME / "data").rename(PREPARED)


def _fetch() -> Path:
    repository = CACHE / "maven"
    command = [
        "mvn", "--batch-mode", "--quiet", "dependency:get", f"-Dartifact={ARTIFACT}", "-Dtransitive=false",
        f"-Dmaven.repo.local={repository}",
    ]  # fmt: skip
    subprocess.run(command, check=True)
    archive = next(repository.rglob(f"keycloak-quarkus-dist-{VERSION}.zip"))
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != SHA256:
        archive.unlink()
        raise RuntimeError(f"{ARTIFACT} has the digest {digest}, not {SHA256}")
    return archive


def _unpack(archive: Path) -> None:
    with zipfile.ZipFile(archive) as contents:
        contents.extractall(CACHE)
    archive.unlink()
    for script in (HOME / "bin").glob("*.sh"):
        script.chmod(0o755)


@contextlib.contextmanager
def _process(data: Path, port: int, log: Path) -> Iterator[Callable[[], None]]:
    """Runs a server until the end of the block, or until the yielded function is called."""
    url = f"http://127.0.0.1:{port}"
    command = [
        HOME / "bin" / "kc.sh", "start", "--optimized", "--http-enabled=true", "--http-host=127.0.0.1",
        f"--http-port={port}", f"--hostname={url}", "--cache=local", f"--http-management-port={free_port()}",
        f"--db-url=jdbc:h2:file:{data}/h2/keycloakdb;NON_KEYWORDS=VALUE",
    ]  # fmt: skip
    environment = {**os.environ, **ADMIN, "JAVA_OPTS_KC_HEAP": "-Xms64m -Xmx512m", "JAVA_OPTS_APPEND": LIGHT}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )

    def stop() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    try:
        _wait(url, process, log)
        yield stop
    finally:
        stop()


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/realms/master", trust_env=False, timeout=5).status_code == 200:
                return
        time.sleep(0.2)
    raise RuntimeError(f"Keycloak did not start:\n{log.read_text()[-4000:]}")


class Keycloak:
    """A running server with one realm, with actions of its administrator."""

    realm = "company"
    client_id = "gpu-portal"

    def __init__(self, url: str, stop: Callable[[], None]) -> None:
        self.stop = stop
        self.url, self.client_secret = url, secrets.token_urlsafe(24)

    @property
    def server_url(self) -> str:
        return f"{self.url}/realms/{self.realm}"

    def admin(self, method: str, path: str, **more: Any) -> httpx.Response:
        form = {
            "grant_type": "password", "client_id": "admin-cli", "username": ADMIN["KC_BOOTSTRAP_ADMIN_USERNAME"],
            "password": ADMIN["KC_BOOTSTRAP_ADMIN_PASSWORD"],
        }  # fmt: skip
        with httpx.Client(base_url=self.url, trust_env=False, timeout=60) as client:
            token = client.post("/realms/master/protocol/openid-connect/token", data=form).raise_for_status().json()
            headers = {"Authorization": f"Bearer {token['access_token']}"}
            return client.request(method, f"/admin/realms{path}", headers=headers, **more).raise_for_status()

    def make_realm(self, portal: str, people: list[dict[str, Any]], groups: list[str]) -> None:
        """Creates the realm with users, top-level groups, and the portal at this address as a client."""
        mapper = {
            "name": "groups",
            "protocol": "openid-connect",
            "protocolMapper": "oidc-group-membership-mapper",
            "config": {
                "claim.name": "groups",
                "full.path": "true",
                "id.token.claim": "true",
                "userinfo.token.claim": "true",
            },
        }
        client = {
            "clientId": self.client_id, "secret": self.client_secret, "publicClient": False, "standardFlowEnabled": True,
            "redirectUris": [f"{portal}/login/with/keycloak/callback/"], "protocolMappers": [mapper],
        }  # fmt: skip
        users = [
            {
                "username": each["username"], "email": each["email"], "emailVerified": True, "enabled": True,
                "firstName": each["username"].capitalize(), "lastName": "Example", "groups": each.get("groups", []),
                "credentials": [{"type": "password", "value": each["password"], "temporary": False}],
            }
            for each in people
        ]  # fmt: skip
        realm = {
            "realm": self.realm, "enabled": True, "sslRequired": "none", "duplicateEmailsAllowed": True,
            "loginWithEmailAllowed": False, "clients": [client], "users": users,
            "groups": [{"name": name.strip("/")} for name in groups],
        }  # fmt: skip
        self.admin("POST", "", json=realm)

    def make_saml_client(
        self, portal: str, key: str = "sso", name_id_format: str = "persistent", **attributes: str
    ) -> None:
        """Creates a SAML client for the portal in the realm. `attributes`: of the client, adding to the defaults or replacing
        them."""
        address = f"{portal}/login/with/{key}/saml/"
        properties = {"username": "username", "email": "email", "firstName": "firstName", "lastName": "lastName"}
        basic = "urn:oasis:names:tc:SAML:2.0:attrname-format:basic"
        mappers = [
            {
                "name": name, "protocol": "saml", "protocolMapper": "saml-user-property-mapper",
                "config": {"user.attribute": of, "attribute.name": name, "attribute.nameformat": "Basic"},
            }
            for name, of in properties.items()
        ]  # fmt: skip
        groups = {
            "name": "groups", "protocol": "saml", "protocolMapper": "saml-group-membership-mapper",
            "config": {"attribute.name": "groups", "full.path": "true", "single": "true", "attribute.nameformat": basic},
        }  # fmt: skip
        client = {
            "clientId": f"{address}metadata/", "protocol": "saml", "redirectUris": [f"{portal}/*"],
            "attributes": {
                "saml.client.signature": "false", "saml.server.signature": "true", "saml.assertion.signature": "true",
                "saml.force.post.binding": "true", "saml.authnstatement": "true",
                "saml_name_id_format": name_id_format, "saml_force_name_id_format": "true",
                "saml_assertion_consumer_url_post": address, "saml_idp_initiated_sso_url_name": key,
                **{name.replace("__", "."): value for name, value in attributes.items()},
            },
            "protocolMappers": [*mappers, groups],
        }  # fmt: skip
        self.admin("POST", f"/{self.realm}/clients", json=client)

    def change_client(self, client_id: str, attributes: dict[str, str]) -> None:
        """Sets these attributes of the client."""
        [row] = self.admin("GET", f"/{self.realm}/clients", params={"clientId": client_id}).json()
        self.admin(
            "PUT", f"/{self.realm}/clients/{row['id']}", json=row | {"attributes": row["attributes"] | attributes}
        )

    def leave(self, username: str, group: str) -> None:
        """Removes the user from the group."""
        user = self.admin("GET", f"/{self.realm}/users", params={"username": username, "exact": "true"}).json()[0]["id"]
        groups = self.admin("GET", f"/{self.realm}/users/{user}/groups").json()
        found = next(each["id"] for each in groups if each["path"] == group)
        self.admin("DELETE", f"/{self.realm}/users/{user}/groups/{found}")


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Keycloak]:
    """A separate server, with its data in this folder."""
    prepare()
    data, port = folder / "keycloak", free_port()
    shutil.copytree(PREPARED, data)
    with _process(data, port, folder / "keycloak.log") as stop:
        yield Keycloak(f"http://127.0.0.1:{port}", stop)


if __name__ == "__main__":
    prepare()
