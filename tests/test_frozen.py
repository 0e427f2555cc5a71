"""`frozen`: as `dataclass(frozen=True, slots=True)`, with methods that are made when one is first called."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from copy import copy
from dataclasses import FrozenInstanceError, asdict, field, fields
from dataclasses import replace as replaced
from typing import Any

import pytest

from tensorc_dsl.base.frozen import frozen, replace


@frozen
class Base:
    x: int
    y: list[int] = field(default_factory=list, compare=False, repr=False)


@frozen
class Derived(Base):
    z: str = "z"
    w: int = field(default=3, kw_only=True)
    made: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "made", self.x + self.w)


@frozen
class Own:
    x: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own)

    def __hash__(self) -> int:
        return 7

    def __repr__(self) -> str:
        return "own"

    def __reduce__(self) -> tuple[type[Own], tuple[int]]:
        return Own, (self.x + 1,)


@frozen(eq=False)
class Itself:
    x: int


@frozen(kw_only=True)
class Named:
    x: int
    y: int = 2


def test_fields_of_all_kinds() -> None:
    one, other = Derived(1), Derived(1, [5], "z", w=3)
    assert one == other and hash(one) == hash(other)  # `y` is not compared
    assert (one.y, other.y, one.made) == ([], [5], 4) and one.y is not Derived(1).y
    assert repr(other) == "Derived(x=1, z='z', w=3, made=4)"
    assert [f.name for f in fields(one)] == ["x", "y", "z", "w", "made"]
    assert replace(one, w=9).made == replaced(one, w=9).made == 10
    assert asdict(one) == {"x": 1, "y": [], "z": "z", "w": 3, "made": 4}
    assert Derived(1) != Base(1) and Base(1) != Derived(1) and Base(1) == Base(1)
    match other:
        case Derived(x, [y]):
            assert (x, y) == (1, 5)
        case _:
            raise AssertionError
    with pytest.raises(TypeError, match="positional"):
        Derived(1, [], "z", 4)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_nothing_is_set_or_deleted() -> None:
    for one, name in ((Base(1), "x"), (Derived(1), "other"), (Own(1), "x"), (Itself(1), "x")):
        with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(one, name, 2)
        with pytest.raises(FrozenInstanceError, match=f"cannot delete field '{name}'"):
            delattr(one, name)
    assert not hasattr(Base(1), "__dict__")


def test_methods_of_its_own_stay() -> None:
    assert Own(1) == Own(2) and hash(Own(1)) == 7 and repr(Own(1)) == "own"
    assert pickle.loads(pickle.dumps(Own(1))).x == 2


def test_an_inherited_text_stays_where_it_is_asked_for() -> None:
    @frozen(repr=False)
    class More(Own):
        y: int = 0

    assert repr(More(1)) == "own" and More(1).y == 0


def test_equality_may_be_identity() -> None:
    one = Itself(1)
    assert one == one and one != Itself(1) and len({one, Itself(1)}) == 2


def test_fields_may_be_given_by_name_alone() -> None:
    assert Named(x=1) == Named(y=2, x=1) == replace(Named(x=5), x=1)
    with pytest.raises(TypeError, match="positional"):
        Named(1)  # type: ignore[misc]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="missing"):
        Named()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def fresh() -> Any:
    @frozen
    class Fresh:
        x: int
        y: int = 2

    return Fresh


def unborn(cls: Any) -> Any:
    """An instance as a pickle makes it: no `__init__` was called."""
    one = cls.__new__(cls)
    one.__setstate__((1, 2))
    return one


@pytest.mark.parametrize(
    "first",
    [
        lambda cls: cls(1),
        unborn,
        lambda cls: unborn(cls) == unborn(cls),
        lambda cls: hash(unborn(cls)),
        lambda cls: copy(cls(1)),
        lambda cls: replace(cls(0), x=1),
        lambda cls: repr(cls(1)),
    ],
    ids=["init", "state", "equality", "hash", "copy", "replace", "repr"],
)
def test_any_method_may_be_the_first(first: Callable[[Any], object]) -> None:
    cls = fresh()
    for _ in range(2):
        first(cls)
        assert unborn(cls) == cls(1) == copy(cls(1, 2)) and {cls(1): 3}[unborn(cls)] == 3
        assert cls(1) != cls(2) and cls(1).__eq__(3) is NotImplemented
    assert cls.__init__.__qualname__.endswith("Fresh.__init__")


def test_threads_may_make_methods_at_once() -> None:
    for _ in range(50):
        cls, made = fresh(), list[object]()
        starts = threading.Barrier(4)

        def make(cls: Any = cls, made: list[object] = made, starts: threading.Barrier = starts) -> None:
            starts.wait()
            made.append(cls(1))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert made == [cls(1)] * 4


def test_a_class_without_a_text_about_it_has_its_name() -> None:
    assert Base.__doc__ == "Base"
