"""The unsuccessful results of a validation: facts that refute equality, or a reason why it is not decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorc_dsl.base.diagnostic import Diagnostic
from tensorc_dsl.ir.expr import Expr
from tensorc_dsl.proof.equivalence.code import Code, Statement
from tensorc_dsl.proof.equivalence.digits import Counted
from tensorc_dsl.proof.sets import isl


class Refuted(Exception):
    """The programs differ, or the scheduled one breaks a rule; the diagnostic has the facts."""

    def __init__(self, diagnostic: Diagnostic, sizes: ExampleSizes | None) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic
        self.sizes = sizes
        """The open dimensions of the example; None if no run could show more than the text does."""


class Undecided(Exception):
    """Integer sets cannot decide the question. The message is the reason."""


class TooMany(Undecided):
    """A proof that is allowed little effort would take more."""


@dataclass(frozen=True, slots=True)
class ExampleSizes:
    """Open dimensions with their sizes; in messages ` with M=3`."""

    values: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        told = ", ".join(f"{name}={value}" for name, value in self.values)
        return f" with {told}" if told else ""


def example(found: isl.Set, sizes: Sequence[int]) -> tuple[tuple[tuple[int, ...], ...], ExampleSizes]:
    """A point of a nonempty set, cut into vectors of the given lengths, and the open dimensions of the point."""
    point = found.flatten().sample_point()
    n = point.get_space().dim(isl.dim_type.set)
    values = [point.get_coordinate_val(isl.dim_type.set, k).to_python() for k in range(n)]
    out: list[tuple[int, ...]] = []
    for size in sizes:
        out.append(tuple(values[:size]))
        values = values[size:]
    space = point.get_space()
    params = range(space.dim(isl.dim_type.param))
    names = [str(space.get_dim_name(isl.dim_type.param, k)) for k in params]
    numbers = [point.get_coordinate_val(isl.dim_type.param, k).to_python() for k in params]
    return tuple(out), ExampleSizes(tuple(zip(names, numbers, strict=True)))


def at(s: Statement, values: Sequence[int]) -> str:
    """An instance as text: `block C at i=3, j=4`."""
    numbers: dict[tuple[Counted, ...], int] = {}
    for d, v in zip(s.digits, values, strict=False):
        numbers[d.loops] = numbers.get(d.loops, 0) + d.unit * v
    told = ", ".join(
        f"{c.loop}={(n if c.upto is None else n % c.upto) // c.unit}" for loops, n in numbers.items() for c in loops
    )
    return f"{s} at {told}" if told else str(s)


def element(buffer: str, values: Sequence[int]) -> str:
    return f"`{buffer}[{', '.join(map(str, values))}]`"


def point(values: Sequence[int]) -> isl.Set:
    """The set with one point."""
    return isl.Set(f"{{ [{', '.join(map(str, values))}] }}")


def element_at(
    code: Code, s: Statement, values: Sequence[int], buffer: str, indices: tuple[Expr, ...]
) -> tuple[int, ...]:
    """The element that an instance accesses; the values of the loops to which its buffer is private come first."""
    image = point(values).apply(code.touched(s, buffer, indices))
    (whole,), _ = example(image, [image.dim(isl.dim_type.set)])
    return whole


def written_by(code: Code, s: Statement, values: Sequence[int]) -> str:
    """The element that an instance writes, as text."""
    whole = element_at(code, s, values, s.store.buffer, s.store.indices)
    return element(s.store.buffer, whole[len(code.homes[s.store.buffer]) :])
