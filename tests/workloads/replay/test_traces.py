"""Traces: columns are recognised by name, errors name line and column, and demand is cut to a period."""

from __future__ import annotations

import pytest

from bench import _openb
from bench._openb import read_pods
from quotas.engine.types import DepartmentId
from workloads.replay.traces import TraceError, demand_of, in_proportion, pool_of, read_guarantees, read_trace

PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
1970-01-01 01:00:00,7200.0,1,7200.0,6214e9
1970-01-01 00:30:00,600.4,16,9600.0,11cb48
"""
OWN = "submitted_at,runtime,units,department,priority,max_runtime,checkpoint_every\n60,30,2,nlp,-3,40,\n"


def test_columns_are_recognised_by_name() -> None:
    first, second = read_trace(PHILLY.splitlines())
    assert (first.submitted_at, first.runtime, first.units, first.department) == (1800, 600, 16, "11cb48")
    assert (second.submitted_at, second.runtime, second.units) == (3600, 7200, 1)
    [row] = read_trace(OWN.splitlines())
    assert (row.priority, row.max_runtime, row.checkpoint_every) == (-3, 40, None)


PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p1,4000,1024,8,1000,,LS,Running,30,1060,60
p2,3000,1024,1,460,,BE,Failed,10,15,10
p3,4000,1024,0,0,,BE,Running,0,900,0
p4,4000,1024,1,1000,,BE,Pending,5,,
"""


def test_pods_that_ran_on_cards_become_jobs_of_their_application(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(row.submitted_at, row.runtime, row.units, row.department) for row in read_pods(PODS.splitlines())]
    assert rows == [(10, 5, 1, "BE-3000"), (30, 1000, 8, "LS-4000")]
    monkeypatch.setattr(_openb, "TENANTS", 1)
    assert [row.department for row in read_pods(PODS.splitlines())] == ["BE-rest", "LS-4000"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("7200.0,1", "soon,1", "line 2, duration: expected a number, not 'soon'"),
        ("7200.0,1", "-5,1", "line 2, duration: expected at least 0, not -5"),
        ("7200.0,1", "nan,1", "line 2, duration: expected a number, not 'nan'"),
        ("600.4,16", "600.4,0", "line 3, num_gpus: expected at least 1, not 0"),
        ("600.4,16", "600.4,", "line 3, num_gpus: expected a number, not ''"),
        ("1970-01-01 00:30:00", "yesterday", "line 3, timestamp: expected a time such as 2017-10-02 13:05:00"),
        (",6214e9", ",", "line 2, cluster: is empty"),
        ("num_gpus", "cards", "line 1, units: no such column; expected units or num_gpus or gpus"),
    ],
)
def test_trace_errors_name_line_and_column(old: str, new: str, problem: str) -> None:
    with pytest.raises(TraceError) as error:
        read_trace(PHILLY.replace(old, new).splitlines())
    assert str(error.value).startswith(problem)


def test_demand_of_a_period_has_the_jobs_running_in_it_and_gangs_of_equal_pods() -> None:
    rows = read_trace(PHILLY.splitlines())
    demand = demand_of(rows, 2000, 4000, on_a_node=8)
    gang, one = demand.jobs
    assert (gang.request.submitted_at, gang.work, gang.request.pods, gang.request.units_per_pod) == (2000, 400, 2, 8)
    assert (one.request.submitted_at, one.work) == (3600, 7200)
    assert demand.units_in_use() == {"11cb48": 16 * 400 / 2000, "6214e9": 400 / 2000}
    assert [job.request.units for job in demand_of(rows, 2500, 4000).jobs] == [1]


def test_guarantees_in_proportion_are_whole_numbers_that_use_all_cards() -> None:
    weights = {DepartmentId("a"): 1.0, DepartmentId("b"): 1.0, DepartmentId("c"): 5.0}
    assert in_proportion(weights, 10) == {"a": 2, "b": 1, "c": 7}
    assert read_guarantees(["department,guaranteed", "nlp,4", "vision,0"]) == {"nlp": 4, "vision": 0}
    for lines, problem in (
        ("nlp,-1", "line 2, guaranteed"),
        ("nlp,4\nnlp,5", "line 3, department"),
        (",3", "line 2, department"),
    ):
        with pytest.raises(TraceError, match=problem):
            read_guarantees(["department,guaranteed", *lines.split("\n")])


def test_last_node_of_a_pool_has_the_remaining_cards() -> None:
    assert [len(node.cards) for node in pool_of(10, 4).nodes or ()] == [4, 4, 2]
    assert pool_of(10, 0).capacity == 10
