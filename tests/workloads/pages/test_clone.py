"""A clone submitted unchanged makes the same request again, whatever its command and variables contain."""

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
    """The fields that a browser would send from a page's forms if the user changed nothing."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.sent: dict[str, str] = {}
        self.area = self.select = ""
        self.fresh = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        name = attributes.get("name", "")
        if tag == "textarea":
            self.area, self.fresh = name, True
            self.sent[name] = ""
        elif tag == "select":
            self.select = name
        elif tag == "option" and ("selected" in attributes or self.select not in self.sent):
            self.sent[self.select] = attributes.get("value", "")
        elif tag == "input" and name:
            is_box = attributes.get("type") in ("radio", "checkbox")
            if not is_box or "checked" in attributes:
                self.sent[name] = attributes.get("value", "on" if is_box else "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            text = self.sent[self.area].removeprefix("\n")
            self.sent[self.area] = text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")
            self.area = ""

    def handle_data(self, data: str) -> None:
        if self.area:
            self.sent[self.area] += data


def submit_clone(client: Client, world: World, origin: Workload, **changes: str) -> Any:
    page = client.get(new(world.vision) + f"?from={origin.public_id}").content.decode()
    sent = Fields(page).sent
    return client.post(new(world.vision), {**sent, **changes})


@pytest.mark.parametrize("command", ODD)
def test_unchanged_clone_makes_the_same_request(command: list[str]) -> None:
    world = World()
    env = {"A": " x ", "KEY": "-----BEGIN\nabc==\nEND\n", "CRLF": "a\r\nb\rc", "EMPTY": "", "S": "$'q'", "LAST": "end "}
    request = WorkloadRequest(
        kind="job", name="odd", pool=world.pool, image=world.image, command=tuple(command), env=env, priority=-5,
        units_per_pod=2, max_runtime=3661, own_only=True,
    )  # fmt: skip
    origin = actions.submit(actor=Actor(world.alice), department=world.vision, request=request)
    response = submit_clone(as_(world.alice), world, origin)
    assert response.status_code == 302, response.context["form"].errors
    clone = Workload.objects.order_by("-pk")[0]
    assert clone.pk != origin.pk
    for name in ("command", "env", "priority", "units_per_pod", "max_runtime", "own_only", "cpu_milli", "memory_mib"):
        assert getattr(clone, name) == getattr(origin, name), name


def test_clone_names_the_secrets_to_enter_again_and_refuses_empty_ones() -> None:
    world = World()
    client = as_(world.alice)
    client.post(new(world.vision), world.form(secret_env="HF_TOKEN=hunter2\nPEM<<END\na\nb\nEND"))
    origin = Workload.objects.get()
    assert orjson.loads(decrypt(origin.secret_env)) == {"HF_TOKEN": "hunter2", "PEM": "a\nb"}
    page = client.get(new(world.vision) + f"?from={origin.public_id}").content.decode()
    assert "enter them again (HF_TOKEN, PEM)" in page
    assert "hunter2" not in page
    assert Fields(page).sent["secret_env"] == "HF_TOKEN=\r\nPEM="
    refused = submit_clone(client, world, origin)
    assert refused.status_code == 422
    assert "HF_TOKEN, PEM: the value is missing" in refused.content.decode()
    filled = submit_clone(client, world, origin, secret_env="HF_TOKEN=other\r\nPEM=x")
    assert filled.status_code == 302


def test_characters_that_no_process_can_receive_are_refused_with_their_field() -> None:
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
        response = client.post(address, text, content_type="application/json", headers={"Idempotency-Key": changes})
        assert response.status_code == status, (changes, response.content)
    for field, text in (("command", r"python $'\0'"), ("env", r"A=$'\ud800'"), ("secret_env", r"A=$'\0'")):
        refused = client.post(new(world.vision), world.form(**{field: text}))
        assert refused.status_code == 422
        assert "NUL or an incomplete character" in str(refused.context["form"].errors[field])
