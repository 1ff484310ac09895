"""Digests of the plans that the engine makes today, so that no change of the engine alters a plan unnoticed.

    python -m tests.engine.golden            compares all of them; lists what changed, with the scores before and after
    python -m tests.engine.golden --write    stores the current plans

Stored are the recorded cases, the cases from the field, a crowd of each kind that `bench/` measures, and 1,000 generated
towns with the plan of the next pass. `test_golden.py` compares a tenth of the towns and all the rest in each run.
"""

import gzip
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench._snapshots import a_snapshot
from quotas.engine.planning_pass import decide
from quotas.engine.snapshot_json import parse_snapshot, plan_to_json
from quotas.engine.types import DecisionKind, Plan, Snapshot
from quotas.engine.units import lost_work
from tests.engine.builders import carried_out
from tests.engine.towns import a_town, with_checkpoints

CASES = Path(__file__).parent / "cases"
STORED = CASES / "golden.txt"
TOWNS = 1000
CROWDS = [{}, {"fair": True}, {"with_nodes": True}]


@dataclass(frozen=True)
class Score:
    """What a plan costs and achieves. `lost` is work in unit-seconds."""

    served: int
    promised: int
    preempted: int
    withdrawn: int
    lost: int

    @classmethod
    def of(cls, snapshot: Snapshot, plan: Plan) -> "Score":
        claims = {claim.id: claim for claim in snapshot.claims}
        kinds = [decision.decision for decision in plan.decisions]
        victims = {victim for decision in plan.decisions for victim in decision.victims}
        lost = sum(
            lost_work(claims[victim], snapshot.pool(claims[victim].pool), snapshot.settings, snapshot.now)
            for victim in victims
        )
        served, promised = kinds.count(DecisionKind.ADMIT), kinds.count(DecisionKind.RECLAIM)
        return cls(served, promised, len(victims), len(plan.withdrawn), lost)

    def __str__(self) -> str:
        return f"{self.served} {self.promised} {self.preempted} {self.withdrawn} {self.lost}"


def recorded() -> Iterator[tuple[str, Snapshot]]:
    """Name and snapshot of every recorded case and crowd."""
    for path in sorted([*CASES.glob("*.jsonl*"), *(CASES / "field").glob("*.jsonl")]):
        text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
        for line in text.splitlines():
            data: dict[str, Any] = json.loads(line)
            snapshot = parse_snapshot(data.get("snapshot", data))
            yield f"{path.name.split('.')[0]}/{snapshot.id}", snapshot
    for crowd in CROWDS:
        yield f"crowd/{'-'.join(crowd) or 'counted'}", a_snapshot(20, 200, 200, **crowd)


def towns(every: int = 1) -> Iterator[tuple[str, Snapshot]]:
    """Every so many of the generated towns; in the later half of them claims save checkpoints."""
    for seed in range(0, TOWNS, every):
        town = a_town(seed)
        yield f"town/{seed}", town if seed < TOWNS // 2 else with_checkpoints(town)


def digest(plan: Plan) -> str:
    text = json.dumps(plan_to_json(plan), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def planned(name: str, snapshot: Snapshot) -> tuple[str, Score]:
    """The digest of its plan, for towns also of the plan of the next pass; and the score of the first one."""
    plan = decide(snapshot)
    plan_digest = digest(plan)
    if name.startswith("town/"):
        plan_digest = f"{plan_digest}-{digest(decide(carried_out(snapshot, plan)))}"
    return plan_digest, Score.of(snapshot, plan)


def stored() -> dict[str, tuple[str, str]]:
    """Name → digest and score, as stored."""
    lines = (line.split("\t") for line in STORED.read_text().splitlines())
    return {name: (plan_digest, score) for name, plan_digest, score in lines}


def main(write: bool) -> int:
    now = {name: planned(name, snapshot) for part in (recorded(), towns()) for name, snapshot in part}
    if write:
        STORED.write_text("".join(f"{name}\t{found}\t{score}\n" for name, (found, score) in now.items()))
        print(f"{len(now)} plans are stored")
        return 0
    before = stored()
    changed = [name for name, (found, _score) in now.items() if before.get(name, ("", ""))[0] != found]
    for name in changed:
        print(f"{name}: {before.get(name, ('', 'new'))[1]} → {now[name][1]}")
    sums = [[sum(int(part) for part in column) for column in zip(*(score.split() for score in scores), strict=True)]
            for scores in ([score for _, score in before.values()], [str(score) for _, score in now.values()])]  # fmt: skip
    print(f"{len(changed)} of {len(now)} plans changed (served, promised, preempted, withdrawn, lost unit-seconds)")
    print(f"before {sums[0]}\nnow    {sums[1]}")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main("--write" in sys.argv[1:]))
