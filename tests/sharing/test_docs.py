"""docs/gpu-sharing.md agrees with the modules of workloads/sharing."""

from __future__ import annotations

import pytest
from django.utils import translation
from django.utils.translation import gettext

from scripts import gpu_sharing
from workloads.sharing import SYSTEMS


def test_the_page_is_up_to_date() -> None:
    assert gpu_sharing.PAGE.read_text() == gpu_sharing.page(), "run `make docs`"


@pytest.mark.parametrize("key", list(SYSTEMS))
def test_every_module_documents_what_operators_need_and_its_unit(key: str) -> None:
    documented = gpu_sharing.table_of(SYSTEMS[key])
    assert set(gpu_sharing.NEEDED) <= set(documented)
    assert documented["unit"].split()[0].strip(",;:") == SYSTEMS[key].ABOUT.unit
    assert all(
        SYSTEMS[key].ABOUT.title and getattr(SYSTEMS[key].ABOUT, word).endswith(".")
        for word in ("gives", "risks", "isolation")
    )


def test_chinese_page_describes_each_system_as_the_request_form_does() -> None:
    page = (gpu_sharing.PAGE.parent / "zh" / gpu_sharing.PAGE.name).read_text()
    with translation.override("zh-hans"):
        about = [gettext(each) for it in SYSTEMS.values() for each in (it.ABOUT.title, it.ABOUT.gives, it.ABOUT.risks)]
    assert [sentence for sentence in about if f"| {sentence} |" not in page and f"| **{sentence}** |" not in page] == []
