"""The passes of lowering. Each has a name and maps a unit of work to the next one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensorc_dsl.ir.node import node
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program
from tensorc_dsl.lower.flat import Flat, format_body


@node
class Unit:
    """Some nests of a program, on their way to flat loops.

    `whole` is the scheduled program, and `program` these nests of it, with buffers that other nests prepare among its
    parameters. From the pass `erase` on, `flat` has the loops; before, it is None. `carried` is that of `lower.erase.Erased`.
    """

    whole: Program
    program: Program
    flat: tuple[Flat, ...] | None
    carried: dict[str, frozenset[str]]

    @property
    def loops(self) -> tuple[Flat, ...]:
        """The flat loops. Only for passes behind `erase`."""
        assert self.flat is not None
        return self.flat


@dataclass(frozen=True, slots=True)
class Pass:
    name: str
    run: Callable[[Unit], Unit]
    about: str


def format_unit(unit: Unit) -> str:
    """The unit as text: a program until blocks are erased, loops from then on."""
    return format_program(unit.program) if unit.flat is None else format_body(unit.flat)
