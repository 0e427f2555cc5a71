"""The sizes at which an open task is checked: from the least to one whose reference is soon there."""

import pytest

from tensorc_dsl.elaborate.bindings import OpenRange
from tensorc_dsl.ir.bind import check_sizes
from tensorc_dsl.reference.open_sizes import Sizing, sizing
from tests.compute.texts import made, std


def of(name: str, **sizes: int | OpenRange) -> Sizing:
    program = made(std(name), None, **sizes)
    found = sizing(program)
    for some in (*found.checked, *found.timed):
        check_sizes(program.dims, some)
    assert sum(found.weights) == pytest.approx(1)
    return found


def test_both_ends_and_primes_between_are_checked() -> None:
    found = of("matmul", M=OpenRange(1, 100), N=8, K=8)
    assert [x["M"] for x in found.checked] == [1, 3, 11, 37, 100]
    assert [x["M"] for x in found.timed] == [5, 22, 100]


def test_what_is_large_in_memory_is_checked_at_smaller_sizes() -> None:
    """2^14 rows and columns of a product of 4 are few operations, but their reference took half a minute."""
    found = of("matmul", M=OpenRange(1, 1 << 20), N=OpenRange(1, 1 << 20), K=4)
    assert max(x["M"] * x["N"] for x in (*found.checked, *found.timed)) <= 1 << 23


def test_few_sizes_are_checked_once_each() -> None:
    found = of("matmul", M=OpenRange(7, 8), N=8, K=8)
    assert [x["M"] for x in found.checked] == [7, 8]
    assert [x["M"] for x in found.timed] == [7, 8]
