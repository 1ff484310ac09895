"""On which nodes stopping a claim has come to cost more or less: it came, went, or its department uses more or less."""

from collections.abc import Mapping

from quotas.engine.quota_tree import Ledger
from quotas.engine.types import Claim, ClaimId, DepartmentId


class Stirs:
    """By node, who stirred there, in turn; `cheaper` has those who may cost less. With fair sharing every unit matters; else
    only those that bring a department below its guarantee."""

    def __init__(self, ledger: Ledger, holding: Mapping[DepartmentId, Mapping[ClaimId, Claim]], fair: bool) -> None:
        self._ledger, self._holding, self._fair = ledger, holding, fair
        self.cheaper: list[tuple[str, ClaimId]] = []
        self._moved = ledger.watch()
        self._seen: dict[DepartmentId, int] = {}
        self._on: dict[str, list[ClaimId]] = {}

    def on(self, node: str) -> list[ClaimId]:
        """Everyone who stirred on the node, the last one last."""
        return self._on.get(node, [])

    def note(self, claim: Claim, cheaper: bool) -> None:
        """The claim came or went."""
        nodes = [placed.node for placed in claim.placement or ()]
        for node in nodes:
            self._on.setdefault(node, []).append(claim.id)
        if cheaper:
            self.cheaper.extend((node, claim.id) for node in nodes)

    def settle(self) -> None:
        """Note whose departments use more, or less, than when this was asked last."""
        for department in self._moved:
            account = self._ledger.accounts[department]
            before, now = self._seen.get(department, account.guaranteed), account.usage
            above = self._fair or max(before, now) > account.guaranteed  # else nothing of it is open, before and now
            spare = min(before, now) - account.guaranteed  # smaller claims leave it at or above its guarantee as before
            for claim in self._holding.get(department, {}).values() if before != now and above else ():
                if claim.units > spare or self._fair:
                    self.note(claim, cheaper=before < now > account.guaranteed)
            self._seen[department] = now
        self._moved.clear()
