"""The environment variables of each rank for each template, as the corresponding operators set them."""

from __future__ import annotations

import json

import pytest

from workloads.runtime.rank_environment import Gang, Template, environment, faults, hostfile, portal_names, role, split

HOSTS = tuple(f"w-7-1-{rank}.w-7-1" for rank in range(4))


def gang(template: str, **changes: object) -> Gang:
    fields: dict[str, object] = {"hosts": HOSTS, "ports": (29500,) * 4, "cards": 2} | changes
    return Gang(Template(template), **fields)  # type: ignore[arg-type]


def test_torch_ranks_get_the_variables_of_the_master_and_of_torchrun() -> None:
    variables = environment(gang("torch"), 3)
    assert {name: variables[name] for name in variables if not name.startswith("PORTAL_")} == {
        "MASTER_ADDR": "w-7-1-0.w-7-1", "MASTER_PORT": "29500", "WORLD_SIZE": "8", "RANK": "3",
        "PET_NNODES": "4", "PET_NODE_RANK": "3", "PET_NPROC_PER_NODE": "2",
        "PET_MASTER_ADDR": "w-7-1-0.w-7-1", "PET_MASTER_PORT": "29500",
    }  # fmt: skip


def test_world_size_of_the_generic_template_counts_pods_not_cards() -> None:
    variables = environment(gang("generic"), 0)
    assert (variables["WORLD_SIZE"], variables["RANK"], variables["PORTAL_RANKS"]) == ("4", "0", "4")
    assert variables["PORTAL_HOSTS"].split(",") == [f"{host}:29500" for host in HOSTS]


CLUSTER = {
    "tensorflow": {"chief": [0], "worker": [1, 2, 3]},
    "tensorflow-ps": {"chief": [0], "ps": [1], "worker": [2, 3]},
}
TASKS = {
    "tensorflow": [("chief", 0), ("worker", 0), ("worker", 1), ("worker", 2)],
    "tensorflow-ps": [("chief", 0), ("ps", 0), ("worker", 0), ("worker", 1)],
}


@pytest.mark.parametrize("template", CLUSTER)
@pytest.mark.parametrize("rank", range(4))
def test_tf_config_has_the_same_cluster_and_a_different_task_for_each_rank(template: str, rank: int) -> None:
    tf_config = json.loads(environment(gang(template, ports=(2222,) * 4, parameter_servers=1), rank)["TF_CONFIG"])
    cluster = {kind: [f"{HOSTS[each]}:2222" for each in ranks] for kind, ranks in CLUSTER[template].items()}
    kind, index = TASKS[template][rank]
    assert tf_config == {"cluster": cluster, "task": {"type": kind, "index": index}, "environment": "cloud"}


def test_mpi_has_one_launcher_and_a_hostfile_with_a_slot_for_each_card() -> None:
    whole = gang("mpi", hostfile="/run/portal/hostfile")
    assert [environment(whole, rank)["K_MPI_JOB_ROLE"] for rank in range(4)] == ["launcher", *["worker"] * 3]
    assert environment(whole, 0)["OMPI_MCA_orte_default_hostfile"] == "/run/portal/hostfile"
    assert hostfile(whole).splitlines()[1] == "w-7-1-1.w-7-1 slots=2"


@pytest.mark.parametrize("template", list(Template))
def test_common_and_own_variables_together_are_the_whole_environment(template: str) -> None:
    whole = gang(template, parameter_servers=1, hostfile="/hosts")
    common, own = split(whole)
    assert [common | own_part for own_part in own] == [environment(whole, rank) for rank in range(4)]
    assert "PORTAL_HOSTS" in common
    assert all("PORTAL_RANK" in own_part for own_part in own)


@pytest.mark.parametrize("template", list(Template))
@pytest.mark.parametrize("rank", range(4))
def test_every_variable_that_a_rank_gets_is_reserved_for_the_portal(template: str, rank: int) -> None:
    whole = gang(template, parameter_servers=1, hostfile="/hosts/hostfile")
    assert set(environment(whole, rank)) == portal_names(template)


@pytest.mark.parametrize("template", list(Template))
def test_every_rank_has_a_different_role(template: str) -> None:
    assert len({str(role(template, rank, 1)) for rank in range(5)}) == 5


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("torch", 2, 0), {}),
        (("torch", 1, 0), {"pods": "few_pods"}),
        (("horovod", 2, 0), {"template": "no_such_template"}),
        (("tensorflow-ps", 3, 1), {}),
        (("tensorflow-ps", 3, 0), {"parameter_servers": "few_parameter_servers"}),
        (("tensorflow-ps", 3, 2), {"pods": "no_worker"}),
    ],
)
def test_faults_of_an_impossible_gang_are_named_by_field(
    arguments: tuple[str, int, int], expected: dict[str, str]
) -> None:
    assert faults(*arguments) == expected
