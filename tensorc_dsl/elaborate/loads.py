"""The loads of a stage, with the conditions under which they happen."""

from __future__ import annotations

from dataclasses import dataclass

from tensorc_dsl.ir import expr as ir
from tensorc_dsl.source import Span


@dataclass(frozen=True, slots=True)
class GuardedLoad:
    """A load with the conditions around it, for the proof that it stays in bounds."""

    load: ir.Load
    conditions: tuple[ir.Expr, ...]
    spans: tuple[Span, ...]
