"""What a step is given of a program: loops, blocks and buffers by name, and index maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from tensorc_dsl.ir.expr import Expr
from tensorc_dsl.ir.node import node
from tensorc_dsl.ir.program import Program


@node
class LoopRef:
    """A loop, by the name of its variable, which is unique in the program."""

    name: str


@node
class BlockRef:
    """A block, by name."""

    name: str


@node
class BufferRef:
    """A buffer, by name. In the language, a block is accepted for the buffer that it writes."""

    name: str


class IntrinsicRef(str):
    """An instruction by the name of its item: a string, which can be asked about the instruction."""

    __slots__ = ()


class LoopPattern(str):
    """The text of a pattern of loops (`patterns`)."""

    __slots__ = ()


class BlockPattern(str):
    """The text of a pattern of blocks."""

    __slots__ = ()


@node
class IndexMap:
    """`(i, j) -> (i / 4, j, i % 4)`: the results are index expressions over the parameters."""

    params: tuple[str, ...]
    results: tuple[Expr, ...]


Ref = LoopRef | BlockRef | BufferRef


# The result of a step.


Result = LoopRef | BlockRef | tuple[LoopRef, ...] | tuple[BlockRef, ...] | None
R_co = TypeVar("R_co", bound=Result, covariant=True)


@dataclass(frozen=True, slots=True)
class Rewrite(Generic[R_co]):
    """The new program, and the loops or blocks that a step returns (a tuple if there can be several)."""

    program: Program
    results: R_co
