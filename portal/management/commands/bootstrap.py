"""Creates the first operator of an installation. Everybody else is invited on the pages, or comes through a provider.

Operators created here can log in by password even with PASSWORD_SIGN_IN=false: who can run this already has full access.
"""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from portal import audit, names
from portal.access import SYSTEM
from portal.errors import Invalid
from portal.infra.locks import durable
from portal.models import User


class Command(BaseCommand):
    help = "Makes the first operator. Refuses where there is one already."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--email", default="")
        parser.add_argument(
            "--again", action="store_true", help="one more such operator, or a new password for this one: locked out"
        )
        parser.add_argument("--password-file", help="read the password from this file (- for standard input)")

    def handle(
        self, *args: Any, username: str, email: str, password_file: str | None, again: bool = False, **options: Any
    ) -> None:
        password = self.password(password_file)
        try:
            username = names.login(username)
        except Invalid as error:
            raise CommandError(str(error)) from None
        user = User(username=username, email=email, is_operator=True, is_staff=True, is_superuser=True)
        try:
            user.clean_fields(exclude=["password"])
            validate_password(password, user)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from None
        user.set_password(password)
        with durable():
            first = User.objects.filter(is_operator=True).order_by("pk").first()
            if first is not None and not again:
                raise CommandError(
                    f"{first.username} is operator already, and can make others on the operator's pages. "
                    "If nobody can log in any more: --again."
                )
            there = User.objects.select_for_update(no_key=True).filter(username__iexact=username).first()
            if there is not None and not (again and there.is_operator):
                raise CommandError(f"There is a user {username} already.")
            if there is not None:
                there.password, there.is_superuser, there.is_active = user.password, True, True
                user = there
            user.save()
            audit.record(SYSTEM, "operator.made", username)
        self.stdout.write(f"{username} is operator. Log in at {settings.BASE_URL}/login/ and add a cluster first.")

    def password(self, file: str | None) -> str:
        if file == "-":
            return sys.stdin.readline().rstrip("\n")
        if file:
            return Path(file).read_text().strip()
        if not sys.stdin.isatty():
            raise CommandError("Give --password-file, or run this at a terminal.")
        first = getpass.getpass("Password: ")
        if first != getpass.getpass("Again: "):
            raise CommandError("The two differ.")
        return first
