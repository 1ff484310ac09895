import time

from portal.ids import ALPHABET, new_id


def test_ids_are_26_letters_that_sort_by_time() -> None:
    first = new_id()
    time.sleep(0.002)
    second = new_id()
    assert len(first) == 26
    assert set(first) <= set(ALPHABET)
    assert first < second
