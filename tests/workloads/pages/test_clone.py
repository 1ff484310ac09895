"""A clone submitted unchanged asks for the same again, whatever stands in its command and variables."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import orjson
import pytest
from django.test import Client
from django.urls import reverse

from portal.access import Actor
from portal.infra.crypt import decrypt
from tests.workloads.pages.test_workloads import World, as_, new
from workloads import actions
from workloads.models import Workload
from workloads.requests.request import WorkloadRequest

pytestmark = pytest.mark.django_db(transaction=True)
ODD = [
    ["python", "-c", "import time\nprint('a\"b')\n", "--name", "two  words", "", "$HOME", "$$", "$(date)", "中 文"],
    ["exec", "x"],
    ["A=1", "python"],
    ["sh", "-ec", "python train.py"],
    ["sh", "-ec", "\n  set -x\n\tpython train.py  \n"],
    ["sh", "-c", "echo 'it'\"'\"'s' > \\out"],
    ["a\rb\r\nc\n", "<b>&amp;</textarea>"],
]


class Fields(HTMLParser):
    """What a browser would send back of a page's forms when nothing is touched."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.sent: dict[str, str] = {}
        self.area = self.select = ""
        self.fresh = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        name = given.get("name", "")
        if tag == "textarea":
            self.area, self.fresh = name, True
            self.sent[name] = ""
        elif tag == "select":
            self.select = name
        elif tag == "option" and ("selected" in given or self.select not in self.sent):
            self.sent[self.select] = given.get("value", "")
        elif tag == "input" and name:
            boxed = given.get("type") in ("radio", "checkbox")
            if not boxed or "checked" in given:
                self.sent[name] = given.get("value", "on" if boxed else "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            text = self.sent[self.area].removeprefix("\n")
            self.sent[self.area] = text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")
            self.area = ""

    def handle_data(self, data: str) -> None:
        if self.area:
            self.sent[self.area] += data


def cloned(client: Client, world: World, origin: Workload, **changes: str) -> Any:
    page = client.get(new(world.vision) + f"?from={origin.public_id}").content.decode()
    sent = Fields(page).sent
    return client.post(new(world.vision), {**sent, **changes})


@pytest.mark.parametrize("command", ODD)
def test_a_clone_asks_for_the_same_again(command: list[str]) -> None:
    world = World()
    env = {"A": " x ", "KEY": "-----BEGIN\nabc==\nEND\n", "CRLF": "a\r\nb\rc", "EMPTY": "", "S": "$'q'", "LAST": "end "}
    request = WorkloadRequest(
        kind="job", name="odd", pool=world.pool, image=world.image, command=tuple(command), env=env, priority=-5,
        units_per_pod=2, max_runtime=3661, own_only=True,
    )  # fmt: skip
    origin = actions.submit(actor=Actor(world.alice), department=world.vision, request=request)
    answer = cloned(as_(world.alice), world, origin)
    assert answer.status_code == 302, answer.context["form"].errors
    made = Workload.objects.order_by("-pk")[0]
    assert made.pk != origin.pk
    for name in ("command", "env", "priority", "units_per_pod", "max_runtime", "own_only", "cpu_milli", "memory_mib"):
        assert getattr(made, name) == getattr(origin, name), name


def test_a_clone_names_the_secrets_to_be_filled_in_again_and_takes_no_empty_ones() -> None:
    world = World()
    client = as_(world.alice)
    client.post(new(world.vision), world.form(secret_env="HF_TOKEN=hunter2\nPEM<<END\na\nb\nEND"))
    origin = Workload.objects.get()
    assert orjson.loads(decrypt(origin.secret_env)) == {"HF_TOKEN": "hunter2", "PEM": "a\nb"}
    page = client.get(new(world.vision) + f"?from={origin.public_id}").content.decode()
    assert "enter them again (HF_TOKEN, PEM)" in page
    assert "hunter2" not in page
    assert Fields(page).sent["secret_env"] == "HF_TOKEN=\r\nPEM="
    refused = cloned(client, world, origin)
    assert refused.status_code == 422
    assert "HF_TOKEN, PEM: the value is missing" in refused.content.decode()
    filled = cloned(client, world, origin, secret_env="HF_TOKEN=other\r\nPEM=x")
    assert filled.status_code == 302


def test_what_no_process_can_be_given_is_named_and_never_an_error_of_the_portal() -> None:
    world = World()
    client = as_(world.alice)
    address = reverse("api:department-workloads", args=["vision"])
    body = {"name": "x", "pool": "a100", "image": "python:3.11", "command": ["python"], "units_per_pod": 1}
    for changes, status in (
        ('{"command": ["a\\ud800"]}', 400),
        ('{"env": {"A": "\\udc00"}}', 400),
        ('{"env": {"A": "\\u0000"}}', 422),
        ('{"command": ["a\\u0000b"]}', 422),
    ):
        text = orjson.dumps(body).decode()[:-1] + "," + changes[1:]
        answer = client.post(address, text, content_type="application/json", headers={"Idempotency-Key": changes})
        assert answer.status_code == status, (changes, answer.content)
    for field, text in (("command", r"python $'\0'"), ("env", r"A=$'\ud800'"), ("secret_env", r"A=$'\0'")):
        refused = client.post(new(world.vision), world.form(**{field: text}))
        assert refused.status_code == 422
        assert "NUL or an incomplete character" in str(refused.context["form"].errors[field])
