"""The demo uses the language of the environment it is started in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import LazySettings

from portal.models import Department
from quotas.models import Pool
from workloads.demo import names, seed
from workloads.models import Image, Preset


@pytest.mark.parametrize(
    ("variables", "language"),
    [
        ({}, "en"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "en_US.UTF-8"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_CN"}, "zh"),
    ],
)
def test_language_is_taken_from_the_locale_variables(
    variables: dict[str, str], language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert names.of_environment() == language


@pytest.mark.django_db(transaction=True)
def test_chinese_demo_has_chinese_names_that_later_starts_keep(settings: LazySettings, tmp_path: Path) -> None:
    settings.DATA_DIR, settings.EMBEDDED, settings.DEBUG = tmp_path, True, True
    seed.seed("zh")
    seed.make_images()  # what each later start does
    texts = [
        *Department.objects.values_list("name", flat=True),
        *Pool.objects.values_list("name", flat=True),
        *Image.objects.values_list("title", flat=True),
        *Preset.objects.values_list("title", flat=True),
        *Preset.objects.values_list("description", flat=True),
    ]
    assert [text for text in texts if not re.search(r"[\u4e00-\u9fff]", text)] == [
        text for text in texts if text in {"A100 80GB MIG", "JupyterLab"}
    ]
    assert len(texts) > 20
