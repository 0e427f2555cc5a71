"""What the toy declares of its targets: a block has limits, and instructions have code of one form."""

from __future__ import annotations

from collections.abc import Iterator

from tensorc_dsl.base.diagnostic import Diagnostic, problem
from tensorc_dsl.base.source import Span
from tensorc_dsl.ir.program import Intrinsic
from tensorc_dsl.ir.target import TargetKind


@problem("TOY3", "`{name}` is no operation of the toy", help="write `toy.` before it")
def NO_OPERATION(*, name: str) -> None: ...


def _faults(i: Intrinsic, code: str, span: Span) -> Iterator[Diagnostic]:
    if not code.startswith("toy."):
        yield NO_OPERATION(span, name=code)


KIND = TargetKind(forms=("asm",), facts=("threads", "shared_memory", "registers"), faults=_faults)
