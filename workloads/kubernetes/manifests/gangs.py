"""A gang is one Indexed Job behind gates, and a headless service that names its ranks.

The controller creates all pods from one template, held back by a scheduling gate. Once all of them exist, `pin()` patches
each of them: it sets the variables of its rank and its planned node, and removes the gate; so all start at once, on the
planned nodes. With `backoffLimitPerIndex: 0` and `podReplacementPolicy: Failed` no controller starts a second copy of a
rank, and when one rank fails the portal decides about the others: if the controller deleted them, their logs would be
lost (docs/adr/0017-a-gang-is-an-indexed-job-behind-gates-and-its-ranks-fail-one-by-one.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from workloads.kubernetes.manifests.labels import LEADER, PREFIX, RANKS
from workloads.kubernetes.manifests.options import Options
from workloads.kubernetes.manifests.pods import NOTICES, pod
from workloads.runtime import mpi, rank_environment
from workloads.runtime.base import RunSpec
from workloads.runtime.expansion import escaped
from workloads.runtime.rank_environment import LEADER_DECIDES, PORT, Gang, Template

Json = dict[str, Any]
GATE = f"{PREFIX}/gang"
OWN = f"{PREFIX}/rank."  # prefix of annotations: variables that differ from rank to rank
HOSTFILE, STARTER = f"{PREFIX}/hostfile", f"{PREFIX}/mpi"  # annotations, files in the container


def gang_of(spec: RunSpec) -> Gang:
    """The gang, with the names that the headless service gives to the Job's pods: `<job>-<index>.<service>`."""
    return Gang(
        template=Template(spec.setup.template or Template.GENERIC),
        hosts=tuple(f"{spec.ref.name}-{rank}.{spec.ref.name}" for rank in range(spec.pods)),
        ports=(PORT,) * spec.pods,
        cards=spec.units_per_pod,
        parameter_servers=spec.setup.parameter_servers,
        hostfile=f"{NOTICES}/hostfile",
    )


def job(spec: RunSpec, options: Options) -> Json:
    """The Indexed Job of a gang. Raises Unsupported."""
    gang = gang_of(spec)
    made = pod(replace(spec, placement=()), options)
    meta, body = made["metadata"], made["spec"]
    alike, own = rank_environment.split(gang)
    env: list[Json] = [{"name": name, "value": escaped(value)} for name, value in sorted(alike.items())]
    env += [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{OWN}{name}']"}}}
             for name in sorted(own[0])]  # fmt: skip
    body["containers"][0]["env"] += env
    body |= {"subdomain": spec.ref.name, "schedulingGates": [{"name": GATE}]}
    facts = {RANKS: str(spec.pods), LEADER: str(gang.template in LEADER_DECIDES).lower()}
    if gang.template is Template.MPI:
        facts |= {HOSTFILE: rank_environment.hostfile(gang), STARTER: mpi.SCRIPT}
        items = next(volume for volume in body["volumes"] if volume["name"] == "notices")["downwardAPI"]["items"]
        items.append({"path": "hostfile", "fieldRef": {"fieldPath": f"metadata.annotations['{HOSTFILE}']"}})
        starter = {"fieldPath": f"metadata.annotations['{STARTER}']"}
        items.append({"path": rank_environment.AGENT, "mode": 0o755, "fieldRef": starter})
    annotations = meta["annotations"] | facts
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": spec.ref.name,
            "namespace": spec.ref.namespace,
            "labels": meta["labels"],
            "annotations": annotations,
        },
        "spec": {
            "completions": spec.pods,
            "parallelism": spec.pods,
            "completionMode": "Indexed",
            "backoffLimitPerIndex": 0,
            "podReplacementPolicy": "Failed",
            "template": {
                "metadata": {
                    "labels": meta["labels"],
                    "annotations": annotations,
                    "finalizers": meta["finalizers"],
                },
                "spec": body,
            },
        },
    }


def pin(spec: RunSpec, rank: int, options: Options) -> Json:
    """The patch that makes a gated pod this rank, on its planned node, and lets it start."""
    _alike, own = rank_environment.split(gang_of(spec))
    patch: Json = {
        "metadata": {"annotations": {f"{OWN}{name}": value for name, value in own[rank].items()}},
        "spec": {"schedulingGates": None},
    }
    own_places = tuple(place for place in spec.placement if place.pod == rank)
    if own_places:
        patch["spec"]["affinity"] = pod(replace(spec, placement=own_places), options)["spec"]["affinity"]
    return patch
