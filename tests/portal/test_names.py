"""Invisible characters and names that look like others are refused in every single-line text field."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from django import forms
from django.apps import apps
from django.core import mail
from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st
from rest_framework import serializers

import portal
import quotas
import workloads
from portal import names
from portal.access import Actor
from portal.accounts import departments, members, tokens, users
from portal.api.base import FreeText, Strict
from portal.errors import Invalid
from portal.models import Department, InboxItem, Role, User
from portal.notify import outbox
from tests import builders as make
from tests.clients import person

HIDDEN = [
    "\x00", "\x07", "\x1b[31m", "\n", "\r", "\r\n", "\t", "\x7f", "\x85", "\u2028", "\u2029",  # control characters, line breaks
    "\u200e", "\u200f", "\u061c", "\u202a", "\u202e", "\u2066", "\u2069",  # writing directions
    "\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u034f", "\u3164", "\u2800", "\U000e0041",  # invisible
    "\ud800", "\udfff", "\ufffd", "\ue000", "\ufe0f", "\U000e0100",  # surrogates, private use, variation selectors
]  # fmt: skip
VALID = ["train", "训练任务-1", "A 组（视觉）", "Zoë Ångström", "Yılmaz Işık", "λ=0.1", "βVAE", "Иван Петров", "Nguyễn Văn A",
        "東京タワー", "서울", "❤️", "1️⃣", "α", "Müller & Söhne", "résumé", "محمد", "ประเทศ", "GPU一号"]  # fmt: skip
LOOKALIKES = ["раураl", "оlivia", "vіsion", "Αlpha", "сорру", "ｖіsion", "tоken-ci"]  # Cyrillic о, і, с…, Greek Α


def import_all_modules() -> None:
    for package in (portal, quotas, workloads):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".migrations" not in found.name and ".management" not in found.name and "asgi" not in found.name:
                importlib.import_module(found.name)


def subclasses(kind: type) -> Iterator[Any]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


def ours(kind: type) -> list[Any]:
    import_all_modules()
    found = {each for each in subclasses(kind) if each.__module__.split(".")[0] in {"portal", "quotas", "workloads"}}
    return sorted(found, key=lambda each: f"{each.__module__}.{each.__qualname__}")


@pytest.mark.parametrize("sign", HIDDEN, ids=ascii)
def test_invisible_character_is_refused_with_its_position(sign: str) -> None:
    with pytest.raises(ValidationError) as error:
        names.line(f"ab{sign}cd")
    assert "3" in error.value.messages[0]


@pytest.mark.parametrize("text", VALID)
def test_names_in_many_languages_are_accepted(text: str) -> None:
    assert names.checked(text) == names.tidy(text)


@pytest.mark.parametrize("text", LOOKALIKES, ids=ascii)
def test_word_that_looks_like_a_latin_one_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as error:
        names.checked(text)
    assert (error.value.code, error.value.field) == ("look_alike", "name")


def test_full_width_letters_are_normalised() -> None:
    assert names.checked("\u3000ＧＰＵ１\u00a0 组 ") == "GPU1 组"


@given(st.text(max_size=60))
def test_any_text_is_either_refused_or_one_visible_line(text: str) -> None:
    try:
        kept = names.checked(text)
    except Invalid:
        return
    assert len(kept.splitlines()) <= 1
    assert names.checked(kept) == kept
    kept.encode()


# Every field ---------------------------------------------------------------------------------------------------------

LINES = {forms.TextInput, forms.HiddenInput, forms.Select}
WITH_OWN_RULES = (forms.EmailField, forms.URLField, forms.SlugField, forms.JSONField, forms.RegexField)


IN_A_LINK = {"uidb36", "key"}  # parts of a mailed link, which nobody types: an invalid one opens nothing


def test_every_single_line_form_field_refuses_hidden_characters() -> None:
    accepted, count = [], 0
    for form in ours(forms.BaseForm):
        for name, field in getattr(form, "base_fields", {}).items():
            if not isinstance(field, forms.CharField) or isinstance(field, WITH_OWN_RULES) or name in IN_A_LINK:
                continue
            if isinstance(field.widget, forms.Textarea | forms.PasswordInput):
                continue
            count += 1
            for sign in HIDDEN:
                try:
                    field.clean(f"ab{sign}cd"[: field.max_length])
                except ValidationError:
                    continue
                accepted.append(f"{form.__qualname__}.{name} {sign!a}")
    assert accepted == []
    assert count > 20


def test_every_text_field_of_the_api_refuses_hidden_characters() -> None:
    accepted, count = [], 0
    for shape in ours(Strict):
        for name, field in shape().fields.items():
            text = getattr(field, "child", field)
            if not isinstance(text, serializers.CharField) or isinstance(text, FreeText) or field.read_only:
                continue
            count += 1
            for sign in HIDDEN:
                try:
                    text.run_validation(f"ab{sign}cd")
                except serializers.ValidationError:
                    continue
                accepted.append(f"{shape.__qualname__}.{name} {sign!a}")
    assert accepted == []
    assert count > 20


MACHINES = {  # columns that no person types: ids, codes, what clusters tell, and the audit's copies
    "audit": {"actor_name", "token_name", "action", "target", "request_id", "source"},
    "codes": {"kind", "job", "public_id", "workload", "decision", "reason", "why", "outcome", "stage", "method", "path", "key",
              "lane", "basis"},
    "addresses": {"query"},
    "digests": {"digest", "prefix", "body_digest", "token_digest", "holder"},
    "clusters": {"product", "sharing", "unit", "mig", "because", "held_back", "domain", "uuid", "node", "namespace",
                 "run_name", "submission_id", "message", "error", "profile", "uid", "owner_kind", "lane",
                 "sign"},
    "copies": {"person", "set_by"},  # of a login name
    "choices": {"tour", "tour_step", "changes_read", "language", "time_zone", "zone", "username", "password"},
}  # fmt: skip
NAMED_BY_MACHINES = {"OutsidePod.name", "Pool.name", "Node.name", "Claim.name", "Heartbeat.name", "AnswerCount.status"}
NAMED_BY_MACHINES |= {
    f"ExternalWork.{name}" for name in ("name", "pod", "pod_uid", "submitted_by", "submitted_with", "status", "api")
}
# in the settings, and by an identity provider
NAMED_ELSEWHERE = {"GroupRule.provider", "GroupRule.pattern", "DirectoryReading.provider", "MissingProvider.provider"}


def test_every_column_for_a_name_is_a_line_field() -> None:
    known = set().union(*MACHINES.values())
    without = [
        f"{model.__name__}.{field.name}"
        for model in apps.get_models()
        if model._meta.app_label in {"portal", "quotas", "workloads"}
        for field in model._meta.get_fields()
        if isinstance(field, models.CharField) and not isinstance(field, models.SlugField | models.EmailField)
        and not isinstance(field, models.URLField | names.LineField) and not field.choices and field.name not in known
    ]  # fmt: skip
    assert set(without) == NAMED_BY_MACHINES | NAMED_ELSEWHERE


# Where names are entered ---------------------------------------------------------------------------------------------


@pytest.fixture
def oscar(db: None) -> User:
    return make.user("oscar", is_operator=True)


def refused(field: str, act: Any, *args: Any, **values: Any) -> Invalid:
    with pytest.raises(Invalid) as error:
        act(*args, **values)
    assert error.value.field == field
    return error.value


@pytest.mark.django_db(transaction=True)
def test_login_names_are_compared_in_normalised_form(oscar: User) -> None:
    actor = Actor(oscar)
    created, _password = users.create_user(actor=actor, username="ｂｏｂ")
    assert created.username == "bob"
    for taken in ("bob", "BOB", "ｂｏｂ", "\u212cob"):  # script capital B
        refused("username", users.create_user, actor=actor, username=taken)
    for odd in (".", "..", "...", "@", "-_-", "bo\u200bb", "bo\nb", "bоb", "\u0131an"):
        refused("username", users.create_user, actor=actor, username=odd)
    users.create_user(actor=actor, username="工藤")
    assert "工藤" in str(refused("username", users.create_user, actor=actor, username="エ藤"))


@pytest.mark.django_db(transaction=True)
def test_person_who_joins_by_a_link_cannot_imitate_another_user(oscar: User) -> None:
    make.user("olivia")
    _row, secret = members.invite(actor=Actor(oscar), department=make.department("vision"), role="member")
    for name in ("Olivia", "ｏｌｉｖｉａ", "оlivia", ".."):
        refused("username", members.accept_as_new, secret=secret, username=name, password="correct horse battery")
    refused(
        "full_name", members.accept_as_new, secret=secret, username="nina", password="correct horse battery",
        full_name="Nina\u202eiL",
    )  # fmt: skip
    assert not User.objects.filter(username="nina").exists()


@pytest.mark.django_db(transaction=True)
def test_reserved_department_ids_are_refused(oscar: User) -> None:
    for slug in ("x-unrestricted", "vision-unrestricted", "kube-system", "default", "-", "a" * 41, "Ｖ", "vіsion"):
        refused("slug", departments.create_department, actor=Actor(oscar), slug=slug, name="X")
    answer = person(oscar).post("/api/v1/departments/", {"id": "x-unrestricted", "name": "X"}, format="json")
    assert (answer.status_code, answer.json()["errors"][0]["attr"]) == (422, "id")
    assert not Department.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_department_cannot_imitate_the_name_of_another(oscar: User) -> None:
    actor = Actor(oscar)
    departments.create_department(actor=actor, slug="robots", name="人工智能")
    assert "人工智能" in str(refused("name", departments.create_department, actor=actor, slug="other", name="人エ智能"))
    other = departments.create_department(actor=actor, slug="other", name="Other")
    values = {"actor": actor, "department": other, "weight": 1, "parent": None, "expected_version": 1}
    refused("name", departments.change_department, name="人エ智能", **values)
    refused("name", departments.change_department, name="Visiоn", **values)


@pytest.mark.django_db(transaction=True)
def test_service_account_cannot_have_a_reserved_or_malformed_name(oscar: User) -> None:
    vision = make.department("vision")
    for name in ("..", "CI", "a.b", "c\ni", "", "x" * 41):
        refused("name", tokens.create_service_account, actor=Actor(oscar), department=vision, name=name)


# Mail ----------------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_mail_that_cannot_be_sent_does_not_hold_up_others(mailoutbox: list[mail.EmailMessage]) -> None:
    """A name with a line break, stored before the rule existed; facts that do not fit the sentence; an invalid address."""
    vision, now = make.department("vision"), timezone.now()
    reader = make.member(vision, Role.MEMBER, "mia")
    User.objects.filter(pk=reader.pk).update(email="mia@example.org")
    lost = make.member(vision, Role.MEMBER, "lost")
    User.objects.filter(pk=lost.pk).update(email="lost@example.org\nBcc: all@example.org")
    rows = [
        (reader, "workload.failed", {"name": "a\nBcc: all@example.org", "reason": "Error"}),
        (reader, "workload.failed", {}),
        (reader, "no.such.kind", {}),
        (reader, "quota.changed", {"guaranteed": "many", "unit": "card"}),
        (lost, "workload.failed", {"name": "b", "reason": "Error"}),
        (reader, "workload.failed", {"name": "train", "reason": "Error"}),
    ]
    for user, kind, data in rows:
        InboxItem.objects.create(user=user, kind=kind, data=data, mail_due_at=now, department=vision)
    assert outbox.send_due(now=now) == 4
    subjects = [letter.subject.split(" failed")[0] for letter in mailoutbox]
    assert subjects == ["a Bcc: all@example.org", "–", "no.such.kind", "train"]
    assert all("Bcc" not in letter.message() for letter in mailoutbox)
    assert not InboxItem.objects.filter(mail_due_at__lte=now).exists()  # the others wait for their next try
