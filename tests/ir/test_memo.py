"""Caches by identity: one computation per object, no mix-ups, bounded size."""

from dataclasses import dataclass

from tensorc_dsl.ir.memo import by_identity


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

    # Each box dies at once if nobody keeps it, and the next is then made at its address.
    assert [number(Box(i)) for i in range(1000)] == list(range(1000))
