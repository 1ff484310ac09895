"""From the responses of a Prometheus to the use of each rank: everything else is dropped, and missing values are None."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.measurement.series import (
    EXPORTERS,
    SELECTOR,
    NotPrometheus,
    QueryRefused,
    Run,
    Sample,
    Use,
    attribute,
    node_of,
    parse,
    queries_of,
)

NAME = "w-01jxk2m4n6p8q0r2s4t6v8w0y2-1"
RUN = Run(7, "gqp-vision", 1, "job", "whole", dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
GANG, SERVICE = replace(RUN, pods=4, kind="distributed"), replace(RUN, kind="service")


def card(value: float, pod: str = NAME, uuid: str = "GPU-1", **labels: str) -> Sample:
    return Sample({"pod": pod, "namespace": "gqp-vision", "UUID": uuid, "gpu": uuid[-1], **labels}, value)


def one(run: Run = RUN, rank: int = 0, **answers: list[Sample]) -> Use:
    return attribute(answers, {NAME: run})[run.attempt, rank]


def body(*values: Any) -> bytes:
    rows = [{"metric": {"pod": "p"}, "value": [1, value]} for value in values]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}}).encode()


def test_activity_is_preferred_to_utilization_card_by_card() -> None:
    use = one(activity=[card(0.5)], utilization=[card(90), card(20, uuid="GPU-2")])
    assert use.gpu == pytest.approx((0.5 + 0.2) / 2)
    assert use.cards == 2


def test_memory_and_power_of_several_cards_are_summed() -> None:
    use = one(gpu_memory=[card(1000), card(3000, uuid="GPU-2")], power=[card(250), card(50, uuid="GPU-2")])
    assert (use.gpu_mib, use.watts, use.gpu) == (4000, 300, None)


def test_a_card_that_is_scraped_twice_counts_once() -> None:
    twice = [card(1000, job="a"), card(1000, job="b")]
    assert one(gpu_memory=twice).gpu_mib == 1000
    assert one(activity=[card(0.4, job="a"), card(0.6, job="b")]).gpu == pytest.approx(0.5)


def test_renamed_labels_of_an_exporter_are_recognised() -> None:
    labels = {"pod": "nvidia-dcgm-exporter-x", "namespace": "gpu-operator"}
    sample = card(0.5, **labels, exported_pod=NAME, exported_namespace="gqp-vision")
    assert one(activity=[sample]).gpu == 0.5


@pytest.mark.parametrize(
    "labels",
    [
        {"namespace": "other"},
        {"pod": "w-01jxk2m4n6p8q0r2s4t6v8w0y2-2"},  # another attempt, which is not on this cluster
        {"pod": f"{NAME}-0-abcde"},  # a job has one pod, which has its name
        {"pod": "nvidia-dcgm-exporter-x"},
        {"pod": ""},
    ],
)
def test_series_of_other_pods_are_dropped(labels: dict[str, str]) -> None:
    assert attribute({"activity": [card(0.5, **labels)], "cpu": [card(1, **labels)]}, {NAME: RUN}) == {}


def test_ranks_of_a_gang_are_distinguished() -> None:
    samples = [card(0.1 * rank, f"{NAME}-{rank}-x{rank}yz") for rank in range(6)]
    found = attribute({"activity": samples}, {NAME: GANG})
    assert {rank: use.gpu for (_attempt, rank), use in found.items()} == pytest.approx({0: 0, 1: 0.1, 2: 0.2, 3: 0.3})


def test_service_is_recognised_with_any_suffix_of_its_pod_name() -> None:
    assert one(SERVICE, activity=[card(0.3, f"{NAME}-5d9c8-k2x9z")]).gpu == 0.3


def test_mig_instances_are_attributed_and_values_of_the_whole_card_are_not() -> None:
    instance, other = {"GPU_I_ID": "7", "GPU_I_PROFILE": "1g.10gb"}, {"GPU_I_ID": "8", "GPU_I_PROFILE": "1g.10gb"}
    use = one(
        replace(RUN, cards="instance"),
        activity=[card(0.8, **instance), card(0.2, **other)],
        utilization=[card(0, **instance), card(77)],
        gpu_memory=[card(500, **instance)],
        power=[card(300, **instance)],
    )
    assert (use.gpu, use.gpu_mib, use.watts, use.cards) == (0.5, 500, None, 2)


def test_use_of_part_of_a_card_is_read_from_hami_not_dcgm() -> None:
    part = replace(RUN, cards="part", cores=0.5)
    assert attribute({"activity": [card(0.9)], "gpu_memory": [card(9000)], "power": [card(1)]}, {NAME: part}) == {}
    old = {"podname": NAME, "podnamespace": "gqp-vision", "deviceuuid": "GPU-1", "ctrname": "main"}
    new = {"pod": NAME, "namespace": "gqp-vision", "device_uuid": "GPU-1", "container": "main"}
    for labels in (old, new):
        use = one(part, part_activity=[Sample(labels, 25.0)], part_memory=[Sample(labels, 2**30)])
        assert (use.gpu, use.gpu_mib, use.cards) == (0.5, 1024, 1)
    both = one(part, part_memory=[Sample(old, 2**30), Sample(new, 2**30)])
    assert both.gpu_mib == 1024


def test_a_whole_card_has_no_mig_instance() -> None:
    assert attribute({"activity": [card(0.9, GPU_I_ID="1")]}, {NAME: RUN}) == {}


@pytest.mark.parametrize("value", [-1.0, 3.0, 1e300])
def test_value_that_is_not_a_share_of_time_is_not_measured(value: float) -> None:
    assert attribute({"activity": [card(value)]}, {NAME: RUN}) == {}


def test_cpu_and_memory_are_in_millicores_and_mib() -> None:
    use = one(cpu=[card(1.5)], memory=[card(2**31)])
    assert (use.cpu_milli, use.memory_mib, use.gpu) == (1500, 2048, None)


def test_value_too_large_for_its_column_is_not_measured() -> None:
    assert attribute({"memory": [card(1e30)]}, {NAME: RUN}) == {}


def test_series_without_a_number_are_left_out() -> None:
    assert [sample.value for sample in parse(body("1.5", "NaN", "+Inf", "-Inf", "x", None, "0"))] == [1.5, 0.0]


@pytest.mark.parametrize(
    "text",
    [b"", b"<html>", b"[]", b'{"status":"success"}', b'{"status":"success","data":{"resultType":"matrix","result":[]}}',
     b'{"status":"success","data":{"resultType":"vector","result":[1]}}', b"[" * 100_000],
)  # fmt: skip
def test_response_that_is_not_from_prometheus_is_rejected(text: bytes) -> None:
    with pytest.raises(NotPrometheus):
        parse(text)


def test_error_of_prometheus_is_passed_on() -> None:
    with pytest.raises(QueryRefused, match="too many samples"):
        parse(b'{"status":"error","errorType":"execution","error":"too many samples"}')


PARTS = ["status", "data", "result", "metric", "value", "resultType"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(PARTS), inner),
    max_leaves=12,
)  # fmt: skip


@given(JSON)
def test_any_json_is_either_a_response_or_rejected(value: Any) -> None:
    try:
        parse(json.dumps(value).encode())
    except (NotPrometheus, QueryRefused):
        return


LABEL = st.sampled_from(
    [NAME, f"{NAME}-0-ab", f"{NAME}-3-ab", f"{NAME}-9-ab", "w-x", "", "GPU-1", "GPU-2", "7", "gqp-vision", "b"]
)
NAMES = ["pod", "namespace", "exported_pod", "exported_namespace", "podname", "UUID", "GPU_I_ID", "gpu", "container"]
SAMPLES = st.lists(
    st.builds(
        Sample,
        st.dictionaries(st.sampled_from(NAMES), LABEL),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    max_size=8,
)  # fmt: skip
KEYS = st.dictionaries(st.sampled_from([query.key for query in queries_of(EXPORTERS)]), SAMPLES)


@given(KEYS, st.sampled_from(["whole", "instance", "part"]), st.sampled_from(["job", "distributed", "service"]))
def test_each_value_is_possible_or_missing_for_any_samples(answers: Any, cards: str, kind: str) -> None:
    run = replace(RUN, cards=cards, kind=kind, pods=4)
    for (attempt, rank), use in attribute(answers, {NAME: run}).items():
        assert attempt == 7
        assert 0 <= rank < 4
        assert use.gpu is None or 0 <= use.gpu <= 1
        assert all(v is None or 0 <= v < 2**31 for v in (use.gpu_mib, use.watts, use.cpu_milli, use.memory_mib))
        assert not use.is_empty


@given(KEYS)
def test_the_order_of_series_does_not_matter(answers: Any) -> None:
    turned = {key: samples[::-1] for key, samples in reversed(answers.items())}
    first, second = attribute(answers, {NAME: GANG}), attribute(turned, {NAME: GANG})
    assert first.keys() == second.keys()
    for place, use in first.items():
        assert use.cards == second[place].cards
        for name in ("gpu", "gpu_mib", "watts", "cpu_milli", "memory_mib"):
            one_way, other_way = getattr(use, name), getattr(second[place], name)
            assert (one_way is None) == (other_way is None)
            assert one_way is None or one_way == pytest.approx(other_way, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("text", ['cluster="a"', 'cluster="a",zone=~"eu-.*"', 'a!="b", c!~"d\\"e"'])
def test_label_matchers_are_accepted(text: str) -> None:
    assert SELECTOR.fullmatch(text)


@pytest.mark.parametrize("text", ["cluster", 'cluster="a"}', 'a="b"} or up{c="d"', "{}", 'a="b', 'a=="b"'])
def test_text_that_would_leave_the_braces_is_not_accepted(text: str) -> None:
    assert not SELECTOR.fullmatch(text)


@pytest.mark.parametrize(
    ("labels", "node"),
    [({"Hostname": "n1", "instance": "10.0.0.1:9400"}, "n1"), ({"instance": "n2:9400"}, "n2"), ({}, "")],
)
def test_the_node_of_a_series_is_its_host(labels: dict[str, str], node: str) -> None:
    assert node_of(labels) == node
