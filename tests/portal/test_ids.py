import time

from portal.ids import ALPHABET, new_id


def test_ids_are_26_characters_and_sort_by_time() -> None:
    first = new_id()
    time.sleep(0.002)
    second = new_id()
    assert len(first) == 26
    assert set(first) <= set(ALPHABET)
    assert first < second


def test_replacement_id_sorts_in_the_place_of_the_original() -> None:
    first = new_id()
    time.sleep(0.002)
    second = new_id()
    time.sleep(0.002)
    again = new_id(first)
    assert again != first
    assert len(again) == 26
    assert again < second
