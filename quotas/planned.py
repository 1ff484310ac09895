"""A plan, and what a change would do to it, for whoever runs the installation: names, amounts and times of the clock."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cached_property

from portal.models import Department
from portal.text.words import amount, cores, memory
from quotas.engine import types as e
from quotas.engine.explain import Reader, decision_sentence, difference_sentences, sentence
from quotas.engine.what_if import Difference, Standing
from quotas.models import Claim, Pool
from quotas.telling import clock


class Words:
    """For the claims of some snapshots of one pool group. Two queries, and one for the names of departments."""

    def __init__(self, *snapshots: e.Snapshot) -> None:
        self.claims = {claim.id: claim for snapshot in snapshots for claim in snapshot.claims}
        self.units = {pool.id: pool.unit for snapshot in snapshots for pool in snapshot.pools}

    @cached_property
    def departments(self) -> dict[str, str]:
        return dict(Department.objects.values_list("slug", "name"))

    @cached_property
    def pools(self) -> dict[str, str]:
        return dict(Pool.objects.filter(slug__in=self.units).values_list("slug", "name"))

    @cached_property
    def names(self) -> dict[str, str]:
        """Of the workloads; a claim that nobody has asked goes by its id."""
        return dict(Claim.objects.filter(public_id__in=self.claims).values_list("public_id", "name"))

    def claim(self, id: str) -> str:
        """Its name, whose it is, and how much."""
        claim = self.claims.get(e.ClaimId(id))
        if claim is None:
            return id
        department = self.departments.get(claim.department, claim.department)
        return f"{self.names.get(id) or id} ({department}, {amount(claim.units, self.units[claim.pool])})"

    def reader(self, pool: str) -> Reader:
        unit = self.units.get(e.PoolId(pool), "")
        return Reader(
            time=clock,
            units=lambda units: amount(units, unit),
            cpu=cores,
            memory=memory,
            claim=self.claim,
            department=lambda slug: self.departments.get(slug, slug),
            pool=lambda slug: self.pools.get(slug, slug),
        )

    def of_plan(self, plan: e.Plan) -> Iterator[str]:
        """A line for each answer."""
        for decision in plan.decisions:
            reader = self.reader(self.claims[decision.claim].pool)
            said = [sentence(reason, reader=reader) for reason in decision.reasons]
            yield " ".join([f"{self.claim(decision.claim)}:", decision_sentence(decision, reader=reader), *said])
        for claim in plan.withdrawn:
            yield f"{self.claim(claim)}: Stays after all."
        if not plan.decisions and not plan.withdrawn:
            yield "Nobody waits."

    def of_difference(self, difference: Difference, standing: Standing) -> list[str]:
        """`standing`: who is on the nodes that the change drains."""
        told = [*self._of_nodes(standing)]
        for pool in self.units:
            here = self._in(difference, pool)
            if here.changes or here.told or here.spared or here.recallable:
                told += difference_sentences(here, reader=self.reader(pool))
        return told or difference_sentences(difference)

    def _of_nodes(self, standing: Standing) -> Iterator[str]:
        for node, claims in standing.items():
            for claim in claims:
                going = self.claims[claim].state is e.ClaimState.LEAVING
                then = (
                    "is leaving it already" if going else "stays until it ends, and has to leave if the node is emptied"
                )
                yield f"On {node}: {self.claim(claim)} {then}."
            yield f"Nothing new would start on {node}{'' if claims else ', where nobody is'}."

    def _in(self, difference: Difference, pool: e.PoolId) -> Difference:
        def here(claims: Collection[e.ClaimId]) -> tuple[e.ClaimId, ...]:
            return tuple(claim for claim in claims if self.claims[claim].pool == pool)

        return replace(
            difference,
            changes=tuple(change for change in difference.changes if self.claims[change.claim].pool == pool),
            told=here(difference.told),
            spared=here(difference.spared),
            recallable={key: units for key, units in difference.recallable.items() if key[1] == pool},
        )
