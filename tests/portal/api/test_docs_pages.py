"""The API's pages: the guide first, then every operation with complete calls to copy."""

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


def test_guide_and_reference_are_in_the_readers_language() -> None:
    """Whichever language was requested first: both are requested in turn."""
    english, chinese = Client(headers={"Accept-Language": "en"}), Client(headers={"Accept-Language": "zh-hans"})
    for _turn in range(2):
        page = chinese.get("/api/v1/docs/").content.decode()
        assert '<li><a href="#from-a-pipeline">在流水线中使用</a></li>' in page
        assert '<li><a href="#reference">参考</a></li>' in page
        assert ">配额申请</a></h3>" in page
        assert "<span>提交任务</span>" in page
        page = chinese.get("/api/v1/docs/workloads/").content.decode()
        assert "一个预设，或类型、资源池、数量、镜像和命令。" in page
        assert "查询 · 布尔值" in page
        assert "说明会发生什么，但不作任何修改。" in page
        assert 'lang="en"' not in page[page.index("<main") : page.index("</main>")]
        assert "<span>Submit a workload</span>" in english.get("/api/v1/docs/").content.decode()
        page = english.get("/api/v1/docs/workloads/").content.decode()
        assert "query · boolean" in page
        assert "Say what would happen; change nothing." in page


def test_schema_is_always_in_english() -> None:
    schema = Client(headers={"Accept-Language": "zh-hans"}).get("/api/v1/schema/").content.decode()
    assert "Submit a workload" in schema
    assert "提交任务" not in schema


def test_each_group_page_shows_its_operations_with_calls_to_copy() -> None:
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


def test_calls_to_copy_are_valid_programs() -> None:
    count = 0
    for rows in operations().values():
        for each in rows:
            by_name = {sample.name: sample.text for sample in each.samples}
            ast.parse(by_name["Python"])
            words = shlex.split(by_name["curl"].replace("\\\n", " "))
            assert words[0] == "curl"
            assert words[-1].startswith("$GPUQ_URL/api/v1/")
            assert "{" not in words[-1]
            count += 1
    assert count > 100
