"""The forms of pages, as a browser would send them."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser

from tests.architecture.doors import World, all_doors


class Forms(HTMLParser):
    """The POST forms of a page: their action, and the fields that they would send unchanged."""

    def __init__(self, page: str, path: str) -> None:
        super().__init__()
        self.path, self.found = path, list[tuple[str, dict[str, str]]]()
        self.inside, self.select = False, ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.inside = given.get("method", "").lower() == "post" or "hx-post" in given
            if self.inside:
                self.found.append((given.get("hx-post") or given.get("action") or self.path, {}))
        elif self.inside and tag in ("input", "button", "textarea") and given.get("name"):
            if given.get("type") in ("checkbox", "radio") and "checked" not in given:
                return
            self.found[-1][1].setdefault(given["name"], given.get("value", ""))
        elif self.inside and tag == "select":
            self.select = given.get("name", "")
        elif self.inside and tag == "option" and ("selected" in given or self.select not in self.found[-1][1]):
            self.found[-1][1][self.select] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self.inside = False


def forms_of(world: World, person: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """(page, action, fields) of every form on every page that this person can open."""
    client = world.client(person)
    for door in all_doors(world):
        if door.is_api or door.name in {"events", "portal:events", "account_logout", "account_login"}:
            continue
        answer = client.get(door.path)
        if answer.status_code == 200 and not answer.streaming and "html" in answer.headers.get("Content-Type", ""):
            for action, fields in Forms(answer.content.decode(), door.path).found:
                yield door.path, action.split("?")[0], fields
