"""A real OpenLDAP (Debian's slapd) for the tests of sign-in: a separate server on a free port, with a small company."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.servers import free_port, listening, wait

BINARY = shutil.which("slapd") or next(iter(filter(os.path.exists, ["/usr/sbin/slapd"])), None)
BASE = "dc=example,dc=org"
PEOPLE, GROUPS = f"ou=people,{BASE}", f"ou=groups,{BASE}"
SERVICE, SECRET = f"cn=portal,{BASE}", "of-the-service"
PASSWORD = "correct horse battery staple"
CONFIG = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/nis.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
moduleload memberof
pidfile {folder}/pid
TLSCACertificateFile {folder}/ca.pem
TLSCertificateFile {folder}/ca.pem
TLSCertificateKeyFile {folder}/key.pem
database mdb
suffix "{base}"
directory {folder}/data
rootdn "cn=admin,{base}"
rootpw admin
maxsize 33554432
overlay memberof
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="{service}" read by * none
"""
LDIF = """
dn: {base}
objectClass: dcObject
objectClass: organization
dc: example
o: Example

dn: {service}
objectClass: organizationalRole
objectClass: simpleSecurityObject
userPassword: {secret}

dn: {people}
objectClass: organizationalUnit

dn: {groups}
objectClass: organizationalUnit

dn: cn=all,{groups}
objectClass: groupOfNames
member: {service}
"""


def missing() -> str:
    """What is missing to run and query a server; "" if nothing is."""
    try:
        import ldap  # noqa: F401
    except ImportError:
        return "python-ldap (requirements/ldap.txt)"
    return "" if BINARY else "slapd"


class Slapd:
    """A running server, with actions of its administrator."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"ldap://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.pem"

    def prepare(self) -> None:
        (self.folder / "data").mkdir(parents=True)
        facts = {
            "folder": self.folder, "base": BASE, "people": PEOPLE, "groups": GROUPS, "service": SERVICE, "secret": SECRET,
        }  # fmt: skip
        subprocess.run(
            [
                "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "2",
                "-keyout", self.folder / "key.pem", "-out", self.ca_file,
            ],
            check=True, capture_output=True,
        )  # fmt: skip
        (self.folder / "slapd.conf").write_text(CONFIG.format(**facts))
        (self.folder / "company.ldif").write_text(LDIF.format(**facts).strip() + "\n")
        assert BINARY is not None
        add = Path(BINARY).with_name("slapadd")
        subprocess.run(
            [add, "-f", self.folder / "slapd.conf", "-l", self.folder / "company.ldif"], check=True, capture_output=True
        )

    def start(self) -> None:
        assert BINARY is not None
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [BINARY, "-f", self.folder / "slapd.conf", "-h", self.url, "-d", "0"],
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        wait("slapd", lambda: listening(self.port))

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(20)
            self.process = None

    def _modify(self, entry: str, changes: list[tuple[int, str, bytes | None]]) -> None:
        import ldap

        connection = ldap.initialize(self.url)
        connection.simple_bind_s(f"cn=admin,{BASE}", "admin")
        connection.modify_s(entry, changes)
        connection.unbind_s()

    def _add(self, dn: str, attributes: dict[str, list[bytes]]) -> None:
        import ldap

        connection = ldap.initialize(self.url)
        connection.simple_bind_s(f"cn=admin,{BASE}", "admin")
        connection.add_s(dn, list(attributes.items()))
        connection.unbind_s()

    def delete(self, dn: str) -> None:
        import ldap

        connection = ldap.initialize(self.url)
        connection.simple_bind_s(f"cn=admin,{BASE}", "admin")
        connection.delete_s(dn)
        connection.unbind_s()

    def person(self, uid: str, password: str = PASSWORD, **more: str) -> str:
        """Adds a person; returns the entry's DN."""
        from ldap.dn import escape_dn_chars

        values = {"cn": uid.title(), "sn": "Example", "givenName": uid.title(), "mail": f"{uid}@example.org", **more}
        dn = f"uid={escape_dn_chars(uid)},{PEOPLE}"
        attributes = {name: [value.encode()] for name, value in values.items()}
        self._add(
            dn,
            attributes
            | {"objectClass": [b"inetOrgPerson"], "uid": [uid.encode()], "userPassword": [password.encode()]},
        )
        return dn

    def group(self, name: str, *members: str) -> str:
        dn = f"cn={name},{GROUPS}"
        self._add(dn, {"objectClass": [b"groupOfNames"], "member": [each.encode() for each in (SERVICE, *members)]})
        return dn

    def posix_group(self, name: str, *logins: str) -> None:
        members = {"memberUid": [each.encode() for each in logins]} if logins else {}
        self._add(f"cn={name},{GROUPS}", {"objectClass": [b"posixGroup"], "gidNumber": [b"7"], **members})

    def join(self, group: str, dn: str) -> None:
        import ldap

        self._modify(f"cn={group},{GROUPS}", [(ldap.MOD_ADD, "member", dn.encode())])

    def leave(self, group: str, dn: str) -> None:
        import ldap

        self._modify(f"cn={group},{GROUPS}", [(ldap.MOD_DELETE, "member", dn.encode())])

    def rename(self, dn: str, uid: str) -> None:
        import ldap

        connection = ldap.initialize(self.url)
        connection.simple_bind_s(f"cn=admin,{BASE}", "admin")
        connection.rename_s(dn, f"uid={uid}")
        connection.unbind_s()

    def toml(self, key: str = "corp", **more: str | bool) -> str:
        """The portal's settings for this directory."""
        values: dict[str, str | bool] = {
            "label": "Company directory", "server_url": self.url, "bind_dn": SERVICE, "bind_password": SECRET,
            "user_base": PEOPLE, "group_base": GROUPS, **more,
        }  # fmt: skip
        lines = [
            f"{name} = {str(value).lower() if isinstance(value, bool) else repr(value)}"
            for name, value in values.items()
        ]
        return "\n".join([f"[{key}]", *lines, ""])


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Slapd]:
    """A server with its data in this folder."""
    server = Slapd(folder)
    server.prepare()
    server.start()
    try:
        yield server
    finally:
        server.stop()
