"""Detection of the machine's own cards, with a library built for the test in place of NVIDIA's NVML; no GPU is involved."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clusters.realcluster import cannot
from tests.workloads.embedded_bed import cluster, ended, log, spec, up
from workloads.embedded import nvml
from workloads.runtime.base import PodPlacement, Unreachable

A100 = "NVIDIA-A100-SXM4-80GB"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        cannot("there is no C compiler to build the replacement of NVML")
    built = tmp_path_factory.mktemp("nvml") / "libfake-nvml.so"
    source = Path(__file__).with_name("nvml_fake.c")
    subprocess.run([str(compiler), "-shared", "-fPIC", "-o", built, source], check=True)
    return str(built)


def test_without_the_library_there_are_no_cards() -> None:
    assert nvml.machine("libnvidia-ml-of-nobody.so.1") == ()


def test_with_a_failing_driver_there_are_no_cards(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML_BROKEN", "1")
    assert nvml.machine(library) == ()


def test_each_product_is_a_node_with_its_cards_memory_and_driver(library: str) -> None:
    a100, t4 = nvml.machine(library)
    assert (a100.product, t4.product) == (A100, "Tesla-T4")
    assert (a100.sharing, a100.unit, a100.units_per_card) == ("whole", "card", 1)
    assert a100.name != t4.name
    assert a100.labels["nvidia.com/gpu.memory"] == "81920"
    assert a100.labels["nvidia.com/cuda.driver-version.major"] == "580"
    assert [(card.index, card.uuid[:12]) for card in t4.cards] == [(3, "GPU-00000003")]


def test_mig_cards_and_cards_off_the_bus_are_unhealthy(library: str) -> None:
    a100, _t4 = nvml.machine(library)
    assert [(card.index, card.healthy) for card in a100.cards] == [(0, True), (1, False), (2, False)]


def test_run_sees_exactly_its_card_by_uuid(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml.machine, "__defaults__", (library,))
    driver = cluster(tmp_path)
    node = driver.nodes()[-1]
    place = (PodPlacement(0, node.name, (3,)),)
    driver.ensure(spec("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])", placement=place))
    ended(driver)
    assert log(driver).strip() == "GPU-00000003-aaaa-bbbb-cccc-dddddddddddd"
    assert json.loads((driver.root / "runs/w-one-1/spec.json").read_text())["alone_on"] == [[node.name, 3]]


def test_card_belongs_to_one_run_until_that_run_has_ended(tmp_path: Path) -> None:
    driver = cluster(tmp_path)
    driver.ensure(spec("import time\nprint('up', flush=True)\ntime.sleep(600)"))
    up(driver)
    second = spec("print('mine')", "w-two-1", placement=(PodPlacement(0, "n1", (5,)),))
    with pytest.raises(Unreachable, match="card 5 of n1 still belongs to w-one-1"):
        driver.ensure(second)
    driver.ensure(spec("print('beside')", "w-three-1", placement=(PodPlacement(0, "n1", (6,)),)))
    driver.stop(spec().ref, 0)
    ended(driver)
    driver.ensure(second)
    ended(driver, "w-two-1")
    driver.shutdown(grace=0)


def test_memory_shares_of_a_card_can_run_together(tmp_path: Path) -> None:
    driver = cluster(tmp_path)
    for name in ("w-one-1", "w-two-1"):
        driver.ensure(spec("import time; time.sleep(600)", name, sharing="memory"))
    assert len(driver.observe()) == 2
    driver.shutdown(grace=0)


def test_usage_is_reported_as_far_as_the_driver_provides_it(library: str) -> None:
    """A MIG card gives no usage of its instances, one off the bus none at all, and one does not give its activity."""
    assert nvml.usage(library) == {0: nvml.CardUse(None, 0.0, 65.5), 3: nvml.CardUse(0.4, 512.0, 65.5)}
    assert nvml.usage("libnvidia-ml-of-nobody.so.1") == {}
