"""The shape of a real GPU cluster and of the work on it: Alibaba's cluster-trace-gpu-v2023 ("openb").

The 1,213 nodes are those of its openb_node_list_gpu_node.csv, counted by kind; the shares of a card are the commonest of
its pod lists. Whole and several cards are rarer here than there, so that 10,000 pods find room on the 6,212 cards.
"""

from quotas.engine.types import Card, Node

CARD = 1000
"""Units of a card: thousandths."""

NODES = (
    (549, 8, 96_000, 393_216), (387, 2, 104_000, 524_288), (107, 2, 16_000, 122_880), (39, 8, 128_000, 786_432),
    (28, 4, 32_000, 131_072), (22, 2, 64_000, 262_144), (21, 8, 96_000, 786_432), (19, 1, 8_000, 32_768),
    (17, 4, 96_000, 393_216), (9, 4, 48_000, 376_832), (7, 8, 64_000, 262_144), (3, 1, 8_000, 61_440),
    (2, 2, 8_000, 61_440), (2, 1, 128_000, 1_048_576), (1, 8, 82_000, 344_064),
)  # fmt: skip
"""(how many, cards, CPU in milli, memory in MiB)"""

SHARES = {1000: 22, 810: 11, 470: 25, 320: 11, 650: 8, 230: 15, 160: 7, 2000: 1}
"""{units a pod asks: how often}"""


def nodes() -> tuple[Node, ...]:
    kinds = [kind for count, *kind in NODES for _ in range(count)]
    return tuple(
        Node(f"n{index:04}", (Card(CARD),) * cards, cpu_milli=cpu, memory_mib=memory)
        for index, (cards, cpu, memory) in enumerate(kinds)
    )


def machine_of(units: int) -> dict[str, int]:
    """The CPU and memory that a pod of this many units asks for: eight cores and 24 GiB a card."""
    return {"cpu_milli": 8 * units, "memory_mib": 24 * units}
