"""The demo's logins: random passwords that stay the same at every start, in a file that only the account of the demo can read.

They are needed because other people may have accounts on the same machine, and the demo runs commands as its account.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from django.conf import settings

from portal.ids import ALPHABET
from portal.models import User
from workloads.demo.seed import PEOPLE


class SharedFolder(Exception):
    """The folder belongs to another account, or is shared, and cannot be made private."""


def make_private(folder: Path) -> None:
    """Creates the data folder or restricts its permissions. Raises SharedFolder."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.stat()
    if facts.st_uid != os.getuid() or facts.st_mode & stat.S_ISVTX:
        raise SharedFolder(f"{folder} is shared with other accounts of this machine. Name one of your own: DATA_DIR=…")
    folder.chmod(0o700)


def logins_file() -> Path:
    return Path(settings.DATA_DIR) / "logins"


def new_password() -> str:
    """Sixty random bits in letters that are easily typed from a screen."""
    return "-".join("".join(secrets.choice(ALPHABET) for _letter in range(4)) for _group in range(3))


def stored_logins() -> dict[str, str]:
    """username → password from the file; {} if it does not exist or does not name everybody."""
    try:
        lines = logins_file().read_text().splitlines()
    except OSError:
        return {}
    logins = {words[0]: words[1] for words in map(str.split, lines) if len(words) == 2}
    return logins if logins.keys() >= {person.username for person in PEOPLE} else {}


def login_lines(logins: dict[str, str]) -> list[str]:
    """Lines for the terminal: user names, passwords, and what to try as each person."""
    lines = []
    for person in PEOPLE:
        if person.what:
            still = User.objects.get(username=person.username).check_password(logins[person.username])
            password = logins[person.username] if still else "(was changed)"
            lines.append(f"  {person.username:<8} {password:<14}  {person.what}")
    return lines


def ensure_logins() -> dict[str, str]:
    """username → password. If there is no file, sets new passwords; the file is written last, so that an interrupted start is
    repeated."""
    logins = stored_logins()
    if logins:
        return logins
    made = {person.username: new_password() for person in PEOPLE}
    for user in User.objects.filter(username__in=made):
        user.set_password(made[user.username])
        user.save(update_fields=["password"])
    partial = logins_file().with_name(".logins")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.writelines(f"{name:<8} {password}\n" for name, password in made.items())
    partial.replace(logins_file())
    return made
