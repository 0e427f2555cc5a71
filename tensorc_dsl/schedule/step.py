"""A schedule step: what it takes, loops, blocks and buffers by name, and index maps; what it returns; why it is refused.

A `ScheduleRefusal` means *inapplicable*. It is neither a failed candidate nor a bug: the search goes on, and a hand-written
schedule reports it with the program as it stood. Its reasons are values, declared beside the primitive that raises them."""

from __future__ import annotations

import inspect
import re
from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Generic, ParamSpec, TypeVar, get_args

from tensorc_dsl.base.diagnostic import Diagnostic, Note, help_note, repair_of
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.ir.expr import Expr
from tensorc_dsl.ir.print import format_program
from tensorc_dsl.ir.program import Program


@frozen
class LoopRef:
    """A loop, by the name of its variable, which is unique in the program."""

    name: str


@frozen
class BlockRef:
    """A block, by name."""

    name: str


@frozen
class BufferRef:
    """A buffer, by name. In the language, a block is accepted for the buffer that it writes."""

    name: str


@frozen
class NodeRef:
    """A node of the graph of a model, by the name of one of its calls: it stands for the node that has the call now."""

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


@frozen
class IndexMap:
    """`(i, j) -> (i / 4, j, i % 4)`: the results are index expressions over the parameters."""

    params: tuple[str, ...]
    results: tuple[Expr, ...]


Ref = LoopRef | BlockRef | BufferRef | NodeRef


# The result of a step.


Result = LoopRef | BlockRef | NodeRef | tuple[LoopRef, ...] | tuple[BlockRef, ...] | None
R_co = TypeVar("R_co", bound=Result, covariant=True)


@frozen
class Rewrite(Generic[R_co]):
    """The new program, and the loops or blocks that a step returns (a tuple if there can be several)."""

    program: Program
    results: R_co


# Refusals: reasons why a schedule step does not apply, declared as values beside the primitive that raises them.
#
# A `ScheduleRefusal` means *inapplicable*. It is neither a failed candidate nor a bug: the search goes on, and a hand-written
# schedule reports it with the program as it stood.


Facts = ParamSpec("Facts")


@frozen
class Refusal(Generic[Facts]):
    """A declared reason: `message`, `help` and `label` are format strings over the facts given when it is raised."""

    code: str
    message: str
    help: str
    at: str
    label: str

    def __call__(self, program: Program, *focus: Facts.args, **facts: Facts.kwargs) -> ScheduleRefusal:
        """The exception to raise; `focus` names the loops and blocks of `program` that the message marks."""
        named = tuple(str(name) for name in focus)
        return ScheduleRefusal(self, self.message.format(**facts), self.help.format(**facts), program, named, facts)


def refusal(
    code: str, message: str, help: str = "", at: str = "", label: str = ""
) -> Callable[[Callable[Facts, None]], Refusal[Facts]]:
    """Declare a reason above a function with its facts as parameters, `def NOT_SERIAL(*focus: str, loop: str) -> None: ...`.

    `at` selects the argument to underline: the loop, block or buffer that the fact of this name names, else the argument
    of the parameter of this name. Without either, the whole call is underlined. `label` stands beside the underline, if it
    adds to the message. Facts are checked as those of `diagnostic.problem` are.
    """

    def declare(facts: Callable[Facts, None]) -> Refusal[Facts]:
        return Refusal(code, message, help or repair_of(facts), at, label)

    return declare


class ScheduleRefusal(Exception):
    """A primitive would change what the program computes, or its arguments do not fit the program."""

    def __init__(
        self,
        refusal: Refusal[...],
        message: str,
        help: str,
        program: Program,
        focus: tuple[str, ...],
        facts: dict[str, object],
    ) -> None:
        super().__init__(f"{refusal.code}: {message}")
        self.refusal = refusal
        self.message = message
        self.help = help
        self.program = program
        self.focus = focus
        self.facts = facts
        self.span: Span | None = None
        """The place of the argument at fault, or of the step, set by the interpreter."""
        self.origin = ""
        """The step of a module that failed, and the draws in its arguments; empty in a schedule without draws."""
        self.steps: tuple[str, ...] = ()
        """The lines of the trace before the step."""

    def __reduce__(self) -> tuple[object, ...]:
        """A trace with a refused rule comes from another process; `Exception` would be made of the text alone."""
        made_of = (self.refusal, self.message, self.help, self.program, self.focus, self.facts)
        return type(self), made_of, self.__dict__


# The declaration of a primitive: a name, a pure function from program to program, and its refusals.
#
# The signature in the language, the line in a trace and the reference page are derived from this
# one declaration. A primitive is one file in `primitives/`; that package imports all of them.


@frozen
class Primitive:
    name: str
    function: Callable[..., Rewrite[Result]]
    refusals: tuple[Refusal[...], ...]
    signature: inspect.Signature
    """The parameters without the leading `program`; annotations are resolved types."""
    result: object
    """The type of the step's value in the language: `Rewrite[result]` is the return type of the function."""
    doc: str


PRIMITIVES: dict[str, Primitive] = {}
"""All primitives by name, filled by importing `tensorc_dsl.schedule.primitives`."""

GRAPH_STEPS: dict[str, Primitive] = {}
"""The primitives of graphs, whose program is a `Graph`."""

ALL_STEPS: Mapping[str, Primitive] = ChainMap(PRIMITIVES, GRAPH_STEPS)
"""All that change what they are applied to: steps of programs, and of graphs."""

F = TypeVar("F", bound=Callable[..., Rewrite[Result]])


def primitive(*refusals: Refusal[...]) -> Callable[[F], F]:
    """Declare a primitive: a function of the program and the arguments in the language that returns `Rewrite[result]`."""
    return _declaring(PRIMITIVES, refusals)


def graph_step(*refusals: Refusal[...]) -> Callable[[F], F]:
    """Declare a primitive of graphs, as `primitive` does."""
    return _declaring(GRAPH_STEPS, refusals)


def _declaring(table: dict[str, Primitive], refusals: tuple[Refusal[...], ...]) -> Callable[[F], F]:
    def register(function: F) -> F:
        signature = inspect.signature(function, eval_str=True)
        params = list(signature.parameters.values())[1:]
        name = function.__name__
        if name in ALL_STEPS:
            raise ValueError(f"primitive {name!r} is declared twice")
        (result,) = get_args(signature.return_annotation)
        table[name] = Primitive(
            name, function, refusals, signature.replace(parameters=params), result, inspect.getdoc(function) or ""
        )
        return function

    return register


# Renders a refused schedule step as a diagnostic: the reason, the program as it stood, and the steps before.


CONTEXT = 2
"""The number of lines shown above and below a marked line."""

STEPS = 3
"""The number of steps before the refused one that are shown; `sample` prints all of them."""


def refusal_diagnostic(refusal: ScheduleRefusal) -> Diagnostic:
    """The diagnostic of a refusal: the program at that step, with the loops and blocks in question marked."""
    notes = [Note("the program at this point", "\n" + _excerpt(refusal))]
    if refusal.steps or refusal.origin:
        last = refusal.steps[-STEPS:]
        hidden = len(refusal.steps) - len(last)
        lines = [f"… {hidden} step{'s' * (hidden != 1)} before"] if hidden else []
        notes.append(Note("trace", "\n".join([refusal.origin, *lines, *last])))
    if refusal.help:
        notes.append(help_note(refusal.help))
    label = refusal.refusal.label.format(**refusal.facts)
    return Diagnostic(refusal.refusal.code, refusal.message, refusal.span, label, tuple(notes))


def _excerpt(refusal: ScheduleRefusal) -> str:
    lines = format_program(refusal.program).rstrip().split("\n")
    marks = {n: what for n, line in enumerate(lines) if (what := _introduces(line, refusal.focus))}
    near = {n + d for n in marks for d in range(-CONTEXT, CONTEXT + 1)}
    # A program without marked lines, or a short one, is shown completely.
    shown = [n for n in range(len(lines)) if n in near] if marks and len(lines) > 24 else list(range(len(lines)))
    width = max((len(lines[n]) for n in marks), default=0)
    out: list[str] = []
    for before, n in zip([-1, *shown], shown, strict=False):
        if n != before + 1:
            out.append("…")
        out.append(f"{lines[n]:<{width}}        <- {marks[n]}" if n in marks else lines[n])
    if shown and shown[-1] != len(lines) - 1:
        out.append("…")
    return "\n".join(out)


def _introduces(line: str, focus: tuple[str, ...]) -> str:
    """The mark for a line on which a focused thing begins: "this loop", "these loops", "this block", …; or ""."""
    words = [re.escape(name) for name in focus]
    loops = [w for w in words if re.search(rf"\bfor\b.*\b{w} in\b", line)]
    if loops:
        return "this loop" if len(loops) == 1 else "these loops"
    for kind in ("block", "buffer", "node"):
        if any(re.match(rf"\s*{kind} {w}\b", line) for w in words):
            return f"this {kind}"
    return ""
