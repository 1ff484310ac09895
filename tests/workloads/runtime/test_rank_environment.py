"""What each rank of each template is told: the facts of the operators whose variables they are."""

from __future__ import annotations

import json

import pytest

from workloads.runtime.rank_environment import Gang, Template, environment, faults, hostfile, portal_names, role, split

HOSTS = tuple(f"w-7-1-{rank}.w-7-1" for rank in range(4))


def gang(template: str, **changes: object) -> Gang:
    fields: dict[str, object] = {"hosts": HOSTS, "ports": (29500,) * 4, "cards": 2} | changes
    return Gang(Template(template), **fields)  # type: ignore[arg-type]


def test_torch_ranks_find_their_master_and_torchrun_its_nodes() -> None:
    told = environment(gang("torch"), 3)
    assert {name: told[name] for name in told if not name.startswith("PORTAL_")} == {
        "MASTER_ADDR": "w-7-1-0.w-7-1", "MASTER_PORT": "29500", "WORLD_SIZE": "8", "RANK": "3",
        "PET_NNODES": "4", "PET_NODE_RANK": "3", "PET_NPROC_PER_NODE": "2",
        "PET_MASTER_ADDR": "w-7-1-0.w-7-1", "PET_MASTER_PORT": "29500",
    }  # fmt: skip


def test_a_generic_rank_counts_pods_not_cards() -> None:
    told = environment(gang("generic"), 0)
    assert (told["WORLD_SIZE"], told["RANK"], told["PORTAL_RANKS"]) == ("4", "0", "4")
    assert told["PORTAL_HOSTS"].split(",") == [f"{host}:29500" for host in HOSTS]


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
def test_tf_config_names_everybody_alike_and_each_rank_its_own_task(template: str, rank: int) -> None:
    told = json.loads(environment(gang(template, ports=(2222,) * 4, parameter_servers=1), rank)["TF_CONFIG"])
    named = {kind: [f"{HOSTS[each]}:2222" for each in ranks] for kind, ranks in CLUSTER[template].items()}
    kind, index = TASKS[template][rank]
    assert told == {"cluster": named, "task": {"type": kind, "index": index}, "environment": "cloud"}


def test_mpi_has_one_launcher_and_a_hostfile_with_a_slot_for_each_card() -> None:
    whole = gang("mpi", hostfile="/run/portal/hostfile")
    assert [environment(whole, rank)["K_MPI_JOB_ROLE"] for rank in range(4)] == ["launcher", *["worker"] * 3]
    assert environment(whole, 0)["OMPI_MCA_orte_default_hostfile"] == "/run/portal/hostfile"
    assert hostfile(whole).splitlines()[1] == "w-7-1-1.w-7-1 slots=2"


@pytest.mark.parametrize("template", list(Template))
def test_what_is_told_alike_and_what_each_is_told_make_the_whole(template: str) -> None:
    whole = gang(template, parameter_servers=1, hostfile="/hosts")
    alike, own = split(whole)
    assert [alike | mine for mine in own] == [environment(whole, rank) for rank in range(4)]
    assert "PORTAL_HOSTS" in alike
    assert all("PORTAL_RANK" in mine for mine in own)


@pytest.mark.parametrize("template", list(Template))
@pytest.mark.parametrize("rank", range(4))
def test_what_only_the_portal_may_set_is_all_that_any_rank_is_told(template: str, rank: int) -> None:
    whole = gang(template, parameter_servers=1, hostfile="/hosts/hostfile")
    assert set(environment(whole, rank)) == portal_names(template)


@pytest.mark.parametrize("template", list(Template))
def test_every_rank_has_a_role_and_no_two_the_same(template: str) -> None:
    assert len({str(role(template, rank, 1)) for rank in range(5)}) == 5


@pytest.mark.parametrize(
    ("asked", "wrong"),
    [
        (("torch", 2, 0), {}),
        (("torch", 1, 0), {"pods": "few_pods"}),
        (("horovod", 2, 0), {"template": "no_such_template"}),
        (("tensorflow-ps", 3, 1), {}),
        (("tensorflow-ps", 3, 0), {"parameter_servers": "few_parameter_servers"}),
        (("tensorflow-ps", 3, 2), {"pods": "no_worker"}),
    ],
)
def test_what_cannot_be_a_gang_is_named_by_field(asked: tuple[str, int, int], wrong: dict[str, str]) -> None:
    assert faults(*asked) == wrong
