"""The placement of a workload as its page shows it."""

import pytest
from django.utils import translation

from workloads.status.status_line import place_text

NAMES = [f"GPU-{n:08x}-1111-2222-3333-444444444444" for n in (0xB, 0xA)]


@pytest.mark.parametrize(
    ("cards", "text"),
    [
        ([], "n3"),
        ([4], "n3, card 4"),
        ([10, 2], "n3, cards 10, 2"),
        (NAMES[:1], f"n3, card {NAMES[0]}"),
        (NAMES, "n3, cards GPU-0000000a, GPU-0000000b"),
        ([NAMES[0], "gpu-7"], f"n3, cards {NAMES[0]}, gpu-7"),
        ([NAMES[0], NAMES[0][:-1] + "5"], f"n3, cards {NAMES[0]}, {NAMES[0][:-1]}5"),
    ],
)
def test_several_uuids_are_shortened_as_far_as_they_stay_distinct(cards: list[object], text: str) -> None:
    with translation.override("en"):
        assert place_text("n3", cards) == text
