"""Caches by identity: one computation per object, no mix-ups, bounded size."""

from dataclasses import dataclass

from tensorc_dsl.ir.identity import by_first, by_identity


@dataclass(frozen=True)
class Box:
    number: int


def test_asks_once_per_object_and_again_for_an_equal_one() -> None:
    asked: list[Box] = []

    @by_identity(8)
    def number(box: Box) -> int:
        """Doc."""
        asked.append(box)
        return box.number

    first, equal = Box(1), Box(1)
    assert [number(first), number(first), number(equal), number(first)] == [1, 1, 1, 1]
    assert len(asked) == 2
    assert number.__name__ == "number"


def test_a_new_object_at_the_place_of_an_old_one_is_not_taken_for_it() -> None:
    @by_identity(4)
    def number(box: Box) -> int:
        return box.number

    # Each box is freed at once without a reference, and the next is then made at its address.
    assert [number(Box(i)) for i in range(1000)] == list(range(1000))


def test_the_last_objects_are_remembered_and_older_ones_are_not() -> None:
    asked: list[Box] = []

    @by_identity(6)
    def number(box: Box) -> int:
        asked.append(box)
        return box.number

    some = [Box(n) for n in range(20)]
    assert [number(x) for x in some] == list(range(20)) and len(asked) == 20
    assert [number(x) for x in some[17:]] == [17, 18, 19] and len(asked) == 20
    assert number(some[0]) == 0 and len(asked) == 21


def test_what_is_asked_often_stays() -> None:
    asked: list[Box] = []

    @by_identity(6)
    def number(box: Box) -> int:
        asked.append(box)
        return box.number

    kept = Box(100)
    for n in range(20):
        number(kept)
        number(Box(n))
    assert len([x for x in asked if x is kept]) == 1


def test_other_arguments_are_told_apart_by_what_they_are() -> None:
    asked: list[tuple[Box, Box]] = []

    @by_first(8)
    def total(box: Box, other: Box) -> int:
        asked.append((box, other))
        return box.number + other.number

    first, equal = Box(1), Box(1)
    assert [total(first, Box(2)), total(first, Box(2)), total(first, Box(3)), total(equal, Box(2))] == [3, 3, 4, 3]
    assert [(a is first, b.number) for a, b in asked] == [(True, 2), (True, 3), (False, 2)]
