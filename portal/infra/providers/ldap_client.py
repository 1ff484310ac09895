"""Queries an LDAP directory about people: whether a password is right, who they are, and which groups they have.

Every incomplete answer raises DirectoryAway, so that nothing is concluded from it. That is why python-ldap is used directly,
and not django-auth-ldap, whose searches return "nothing found" when they fail.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from portal.infra.providers.directories import DN, Directory

try:
    import ldap
    import ldap.dn
    import ldap.filter
except ImportError:  # an extra: providers.directories stops the start if a directory is configured without it
    ldap = None

PATIENCE = 5  # s for each answer
BINARY = {"objectGUID"}  # attributes with binary values, of Active Directory
REFUSED = (
    "INVALID_CREDENTIALS", "UNWILLING_TO_PERFORM", "CONSTRAINT_VIOLATION", "INAPPROPRIATE_AUTH", "INSUFFICIENT_ACCESS",
    "STRONG_AUTH_REQUIRED", "NO_SUCH_OBJECT", "INVALID_DN_SYNTAX",
)  # fmt: skip
"""The errors with which directories refuse a login by this password."""
Attributes = Mapping[str, list[bytes]]


class DirectoryAway(Exception):
    """The directory did not answer, or not completely. The message has the reason, for the log and for operators."""


@dataclass(frozen=True, slots=True)
class Person:
    """An entry of the directory. `subject` stays the same when the entry is renamed or moved."""

    dn: str
    subject: str
    login: str
    claims: Mapping[str, Any]


class Connection:
    def __init__(self, directory: Directory, connection: Any) -> None:
        self.directory, self.connection = directory, connection

    def person(self, login: str) -> Person | None:
        """The person with this login name; None if there is none or more than one."""
        given = ldap.filter.escape_filter_chars(login)
        return self._person(self.directory.user_filter.format(login=given))

    def person_of(self, subject: str) -> Person | None:
        """The person with this `subject`; None if the user filter does not find them, so that they may not log in (any
        more)."""
        name = self.directory.id_attribute
        try:
            value = uuid.UUID(subject).bytes_le if name in BINARY else subject.encode()
        except ValueError:
            return None
        escaped = "".join(f"\\{byte:02x}" for byte in value)
        return self._person(f"(&{self.directory.user_filter.format(login='*')}({name}={escaped}))")

    def _person(self, text: str) -> Person | None:
        about = self.directory
        columns = {
            "email": about.email_attribute, "given_name": about.given_name_attribute,
            "family_name": about.family_name_attribute, "preferred_username": about.username_attribute,
        }  # fmt: skip
        wanted = [*columns.values(), about.id_attribute, about.groups_attribute]
        entries = self._search(about.user_base, text, [name for name in wanted if name])
        if len(entries) != 1:
            return None
        dn, attributes = entries[0]
        subject = _subject(about.id_attribute, attributes)
        if not subject:
            raise DirectoryAway(f"{dn} shows no {about.id_attribute}: set id_attribute, or let bind_dn read it")
        claims = {claim: _text(attributes, name) for claim, name in columns.items()}
        login = claims["preferred_username"]
        groups = self._groups(dn, login, attributes)
        return Person(dn, subject, login, {"sub": subject, **claims, "groups": sorted(groups)})

    def _groups(self, dn: str, login: str, attributes: Attributes) -> set[str]:
        about = self.directory
        if about.groups_attribute:
            return {_group_name(about.group_name, each) for each in _texts(attributes, about.groups_attribute)}
        names: set[str] = set()
        todo, seen = [(dn, login)] if about.group_base else [], {dn}
        while todo:
            of, also = (ldap.filter.escape_filter_chars(each) for each in todo.pop())
            wanted = [] if about.group_name == DN else [about.group_name]
            for group, columns in self._search(about.group_base, about.group_filter.format(dn=of, login=also), wanted):
                names.update([group] if about.group_name == DN else _texts(columns, about.group_name))
                if about.nested_groups and group not in seen:
                    seen.add(group)
                    todo.append((group, ""))
        return names

    def require_whole(self) -> None:
        """Requires that the directory shows somebody who may log in, and an entry below the base of groups: nothing can be
        concluded from a directory that is empty or hides its entries. Raises DirectoryAway."""
        about = self.directory
        people = f"(&{about.user_filter.format(login='*')}({about.id_attribute}=*))"
        for name, text in (("user_base", people), ("group_base", "(objectClass=*)")):
            base = getattr(about, name)
            if base and not self._search(base, text, ["1.1"], most=2, below=name == "group_base"):
                raise DirectoryAway(f"{name} {base} shows no entries: check it, and what bind_dn may read")

    def _search(
        self, base: str, text: str, wanted: list[str], most: int = 0, below: bool = False
    ) -> list[tuple[str, Attributes]]:
        """The entries that the filter finds: (dn, attributes). `most`: at most so many; `below`: without the base itself.
        Raises DirectoryAway."""
        try:
            rows = self.connection.search_ext_s(
                base, ldap.SCOPE_SUBTREE, text, wanted or ["1.1"], timeout=PATIENCE, sizelimit=most
            )
        except ldap.SIZELIMIT_EXCEEDED as error:
            if not most:
                raise _failure(self.directory, error) from error
            return [(base, {})]  # there are more than that
        except ldap.LDAPError as error:
            raise _failure(self.directory, error, base) from error
        entries = [(dn, attributes) for dn, attributes in rows if dn is not None]  # None: referrals to other servers
        return [each for each in entries if not below or each[0].casefold() != base.casefold()]


@contextlib.contextmanager
def connected(directory: Directory) -> Iterator[Connection]:
    """A connection bound as `bind_dn`, or anonymously. Raises DirectoryAway."""
    connection = _open(directory)
    try:
        try:
            connection.simple_bind_s(directory.bind_dn, directory.bind_password)
        except ldap.LDAPError as error:
            raise _failure(directory, error, directory.bind_dn or "an anonymous bind") from error
        yield Connection(directory, connection)
    finally:
        _close(connection)


def verified(directory: Directory, login: str, password: str) -> Person | None:
    """The person with this login name and password; None if there is none. Raises DirectoryAway."""
    with connected(directory) as connection:
        person = connection.person(login) if "\x00" not in login else None
    return person if person is not None and password_is_right(directory, person.dn, password) else None


def password_is_right(directory: Directory, dn: str, password: str) -> bool:
    """Whether the directory accepts the password for this entry. Raises DirectoryAway."""
    if not password or "\x00" in password:  # a bind with an empty password is anonymous, and succeeds
        return False
    connection = _open(directory)
    try:
        connection.simple_bind_s(dn, password)
    except tuple(getattr(ldap, name) for name in REFUSED):
        return False
    except ldap.LDAPError as error:
        raise _failure(directory, error) from error
    finally:
        _close(connection)
    return True


def _open(directory: Directory) -> Any:
    try:
        connection = ldap.initialize(directory.server_url)
        connection.protocol_version = ldap.VERSION3
        connection.set_option(ldap.OPT_REFERRALS, 0)
        connection.set_option(ldap.OPT_NETWORK_TIMEOUT, PATIENCE)
        connection.set_option(ldap.OPT_TIMEOUT, PATIENCE)
        connection.set_option(ldap.OPT_X_TLS_REQUIRE_CERT, ldap.OPT_X_TLS_DEMAND)
        if directory.ca_file:
            connection.set_option(ldap.OPT_X_TLS_CACERTFILE, directory.ca_file)
        connection.set_option(ldap.OPT_X_TLS_NEWCTX, 0)  # applies the two options above
        if directory.start_tls:
            connection.start_tls_s()
    except (ldap.LDAPError, ValueError, OSError) as error:
        raise _failure(directory, error) from error
    return connection


def _close(connection: Any) -> None:
    with contextlib.suppress(ldap.LDAPError):
        connection.unbind_s()


def _failure(directory: Directory, error: Exception, about: str = "") -> DirectoryAway:
    """The error as one line: the server's address, `about`, and the message of the library or server."""
    details = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
    words = [str(details.get(key, "")) for key in ("desc", "info")] if details else [str(error)]
    if isinstance(error, ldap.CONNECT_ERROR):
        words.append("check its certificate and ca_file")
    text = f"{directory.server_url}{f' ({about})' if about else ''}: {'; '.join(filter(None, words))}"
    return DirectoryAway(" ".join(text.split())[:500])


def _texts(attributes: Attributes, name: str) -> list[str]:
    """The values of the attribute; its name is compared without regard to case."""
    values = next((each for key, each in attributes.items() if key.casefold() == name.casefold()), [])
    return [value.decode("utf-8", "replace") for value in values]


def _text(attributes: Attributes, name: str) -> str:
    return next(iter(_texts(attributes, name)), "")


def _subject(name: str, attributes: Attributes) -> str:
    if name in BINARY:
        value = next(iter(attributes.get(name, [])), b"")
        return str(uuid.UUID(bytes_le=value)) if len(value) == 16 else ""
    return _text(attributes, name)


def _group_name(group_name: str, dn: str) -> str:
    """The name of the group with this DN: the DN's first value or, if `group_name` is DN, the whole."""
    if group_name == DN:
        return dn
    try:
        return str(ldap.dn.explode_dn(dn, notypes=True)[0])
    except (ldap.DECODING_ERROR, IndexError):
        return dn
