"""What a step is given of a program: loops, blocks and buffers by name, and index maps."""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.ir.expr import Expr


@dataclass(frozen=True, slots=True)
class LoopRef:
    """A loop, by the name of its variable, which is unique in the program."""

    name: str


@dataclass(frozen=True, slots=True)
class BlockRef:
    """A block, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class BufferRef:
    """A buffer, by name. In the language, a block is accepted for the buffer that it writes."""

    name: str


class IntrinsicRef(str):
    """An instruction by the name of its item: a string, which can be asked about the instruction."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class IndexMap:
    """`(i, j) -> (i / 4, j, i % 4)`: the results are index expressions over the parameters."""

    params: tuple[str, ...]
    results: tuple[Expr, ...]


Ref = LoopRef | BlockRef | BufferRef
