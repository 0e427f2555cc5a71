"""From a schedule to machine code; where there is none, an error that says why."""

from __future__ import annotations

from tensorc_dsl.codegen.llvm.compile import Compiled, CompileError, compile_kernel
from tensorc_dsl.diagnostic import Diagnostic, Problem, TschedError
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import Kernel as FlatKernel
from tensorc_dsl.lower.flat import LowerError
from tensorc_dsl.lower.lower import lower
from tensorc_dsl.measure.processors import require_known

NO_CODE = Problem(
    "E0910",
    "no code can be made for targets of kind `{kind}`, so `{task}` cannot be compiled, run or measured for this one",
    help="look at what its space draws: `show --stage ir --scheduled`, `sample`, `verify`; or take a target of kind `llvm`",
)


def require_llvm(target: Target, task: str) -> None:
    """Raises TschedError (E0910) where the target is of a kind that no code can be made for."""
    if target.kind != "llvm":
        raise TschedError(NO_CODE(None, kind=target.kind, task=task))


def require_code(target: Target, task: str) -> None:
    """Raises TschedError (E0910, E0915, E0916) where no code can be made for the target."""
    require_llvm(target, task)
    require_known(target)


def failed(how: str, why: str) -> TschedError:
    """A schedule that was asked for by name and came to nothing."""
    return TschedError(Diagnostic("E0908", f"the schedule {how}: {why}", None))


def lowered(program: Program) -> FlatKernel:
    """The flat loops of a scheduled program. Raises TschedError (E0908) where the lowering does not take it."""
    try:
        return lower(program)
    except LowerError as e:
        raise failed("cannot be lowered", str(e)) from e


def compiled(program: Program, target: Target, threads: int) -> Compiled:
    """A scheduled program in machine code. Raises TschedError (E0908) where there is none."""
    try:
        return compile_kernel(lowered(program), target, threads)
    except CompileError as e:
        raise failed("does not compile", str(e)) from e
