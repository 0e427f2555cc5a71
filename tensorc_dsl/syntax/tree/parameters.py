"""Parameters: tensors of computes and programs, values of computes and modules."""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.base.source import Span
from tensorc_dsl.syntax.tree.expressions import Expr
from tensorc_dsl.syntax.tree.span import span_field
from tensorc_dsl.syntax.tree.word import Word


@dataclass(frozen=True, slots=True)
class TensorType:
    """`f32[M, K]`; `dtype` is a type name or a dtype attribute of the compute. No shape means a scalar parameter."""

    dtype: Word
    shape: tuple[Expr, ...]
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class TensorParam:
    """`W: const f32[K, N]`; without `const` the tensor may differ in each call.

    `strides [1, S]` are the distances of neighbours in elements; none are those of a dense array.
    """

    name: Word
    type: TensorType
    constant: bool
    strides: tuple[Expr, ...]
    updates: Word | None
    """The input in whose memory this output is."""
    span: Span = span_field()


@dataclass(frozen=True, slots=True)
class ParamType:
    """`Module(Block, Loop)`; without parentheses, `parts` is None."""

    name: Word
    parts: tuple[ParamType, ...] | None
    span: Span = span_field()

    def __str__(self) -> str:
        return self.name if self.parts is None else f"{self.name}({', '.join(map(str, self.parts))})"


@dataclass(frozen=True, slots=True)
class Param:
    """`structure: str = "SSRSRS"`; both the type and the default may be missing."""

    name: Word
    type: ParamType | None
    default: Expr | None
    span: Span = span_field()
