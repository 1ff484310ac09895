"""`gpuq apply` and `gpuq export` against the real API, as a pipeline calls them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from portal.models import AuditEntry, Department, Role
from quotas.models import Pool, Quota
from tests import builders as make
from tests.clients import ALL, token_of
from tests.gpuq.test_live import Site, bed, site  # noqa: F401 (fixtures)

pytestmark = [
    pytest.mark.skipif(not os.environ["DATABASE_URL"].startswith("postgres"), reason="needs PostgreSQL"),
    pytest.mark.timeout(180),
]


def test_pipeline_can_export_preview_and_apply(site: Site, tmp_path: Path) -> None:  # noqa: F811
    assert site.run("export")[0] == 2  # not an operator
    vision, pool = Department.objects.get(slug="vision"), Pool.objects.get()
    oscar = make.member(vision, Role.OWNER, "oscar", is_operator=True)
    token = token_of(oscar, None, ALL)[1]  # type: ignore[arg-type]
    make.holding(vision, pool, own=2, name="runs")

    def run(*words: str) -> tuple[int, str, str]:
        return site.run(*words, GPUQ_TOKEN=token)

    code, text, err = run("export")
    assert (code, err) == (0, "")
    file = tmp_path / "gpu.yaml"
    file.write_text(text)
    assert run("apply", str(file), "--dry-run")[:2] == (0, "")
    file.write_text(text.replace("guaranteed: 2 cards", "guaranteed: 1 card"))
    code, out, err = run("apply", str(file), "--dry-run")
    assert (code, out.splitlines()[0]) == (1, f"~ departments.nlp.quotas.{pool.slug}.guaranteed: 2 cards → 1 card")
    mark = err.split("--confirm ")[1].strip()
    code, out, err = run("apply", str(file))
    assert (code, Quota.objects.filter(guaranteed=2).count()) == (2, 2)
    assert "could be recalled" in err
    assert run("apply", str(file), "--confirm", "0" * 16)[0] == 2
    assert run("apply", str(file), "--confirm", mark, "--source", "repo@1")[0] == 0
    assert (Quota.objects.filter(guaranteed=1).count(), AuditEntry.objects.first().source) == (2, "repo@1")  # type: ignore[union-attr]
    file.write_text(text.replace("guaranteed: 2 cards", "guaranteed: 0"))
    assert run("apply", str(file), "--yes")[0] == 0
    file.write_text(text.replace("guaranteed: 2 cards", "guaranteed: 99 cards"))
    code, out, err = run("apply", str(file))
    assert (code, out) == (2, "")
    assert f"gpu.yaml:12: departments.nlp.quotas.{pool.slug}.guaranteed: The guarantees" in err
    assert run("apply", str(tmp_path / "nowhere.yaml"))[0] == 2
