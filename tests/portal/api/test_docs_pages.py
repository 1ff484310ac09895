"""The API's pages: guide first, then every operation with calls to copy that are whole programs."""

from __future__ import annotations

import ast
import shlex

import pytest
from django.test import Client
from django.urls import reverse

from portal.views.api_docs import operations

pytestmark = pytest.mark.django_db


def test_the_guide_comes_first_and_every_operation_is_listed() -> None:
    page = Client().get("/api/v1/docs/").content.decode()
    assert page.index('id="from-a-pipeline"') < page.index('id="reference"')
    for tag, rows in operations().items():
        for each in rows:
            assert f"{reverse('api:docs-group', args=[tag])}#{each.name}" in page


def test_readers_of_chinese_have_the_guide_in_it_and_are_told_that_the_reference_is_not() -> None:
    page = Client(headers={"Accept-Language": "zh-hans"}).get("/api/v1/docs/").content.decode()
    assert '<li><a href="#from-a-pipeline">在流水线中使用</a></li>' in page
    assert '<li><a href="#reference">参考</a></li>' in page
    assert "以下参考为英文。" in page
    english = Client(headers={"Accept-Language": "en"}).get("/api/v1/docs/").content.decode()
    assert "The reference is in English." not in english


def test_each_part_shows_its_operations_with_calls_to_copy() -> None:
    for tag, rows in operations().items():
        answer = Client().get(reverse("api:docs-group", args=[tag]))
        page = answer.content.decode()
        assert "<script>" not in page
        for each in rows:
            assert f'id="{each.name}"' in page
            assert f'data-copy="{each.name}-curl"' in page
            assert f'data-copy="{each.name}-python"' in page
    assert 'data-copy="workloads_submit-gpuq"' in Client().get("/api/v1/docs/workloads/").content.decode()
    assert Client().get("/api/v1/docs/nothing/").status_code == 404


def test_what_is_copied_can_be_run() -> None:
    seen = 0
    for rows in operations().values():
        for each in rows:
            by_name = {sample.name: sample.text for sample in each.samples}
            ast.parse(by_name["Python"])
            words = shlex.split(by_name["curl"].replace("\\\n", " "))
            assert words[0] == "curl"
            assert words[-1].startswith("$GPUQ_URL/api/v1/")
            assert "{" not in words[-1]
            seen += 1
    assert seen > 100
