"""The sizes at which an open task is checked: from the least to the largest whose reference is fast."""

import pytest

from tensorc_dsl.elaborate.bindings import OpenRange
from tensorc_dsl.ir.sizes import check_sizes
from tensorc_dsl.reference.work import Sizing, describe_all, sizing
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


def test_a_task_may_say_where_it_is_timed() -> None:
    found = of("matmul", M=OpenRange(1, 4096, (1, 16, 128)), N=8, K=8)
    assert [x["M"] for x in found.timed] == [1, 16, 128]
    assert len(found.checked) == 5
    work = [found.weights[n] * (m * 8 * 8 * 2 + 4 * (m * 8 + 64 + m * 8)) for n, m in enumerate((1, 16, 128))]
    assert work == pytest.approx([work[0]] * 3)


def test_sizes_are_timed_together() -> None:
    found = of("matmul", M=OpenRange(1, 64, (3, 50)), N=OpenRange(2, 9, (9, 2)), K=OpenRange(1, 100))
    assert found.timed == ({"M": 3, "N": 9, "K": 10}, {"M": 50, "N": 2, "K": 100})


def test_sizes_in_words() -> None:
    assert describe_all(({},)) == ""
    assert describe_all(({"M": 1}, {"M": 16})) == "M = 1, 16"
    assert describe_all(({"M": 1, "N": 2}, {"M": 16, "N": 3})) == "M = 1, N = 2; M = 16, N = 3"


def test_a_range_holds_what_is_timed() -> None:
    for n in (0, 65, -1):
        with pytest.raises(ValueError, match=f"{n} is no size from 1 to 64"):
            OpenRange(1, 64, (8, n))


def test_what_is_large_in_memory_is_checked_at_smaller_sizes() -> None:
    """2^14 rows and columns of a product of 4 are few operations, but their reference took half a minute."""
    found = of("matmul", M=OpenRange(1, 1 << 20), N=OpenRange(1, 1 << 20), K=4)
    assert max(x["M"] * x["N"] for x in (*found.checked, *found.timed)) <= 1 << 23


def test_few_sizes_are_checked_once_each() -> None:
    found = of("matmul", M=OpenRange(7, 8), N=8, K=8)
    assert [x["M"] for x in found.checked] == [7, 8]
    assert [x["M"] for x in found.timed] == [7, 8]
