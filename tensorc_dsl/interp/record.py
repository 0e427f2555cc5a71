"""Records an expansion: the lines of the trace, and the names of loops, blocks and draws in its text.

A trace names loops and blocks as the program does, so text and program can be read side by side. A loop that no line has
named yet is introduced by a query (`let [_, j] = C.loops`) before the line that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.interp.evaluate import (
    MAX_LINES,
    AnyRankMap,
    Drawn,
    ModuleRef,
    OpenFactor,
    ProgramRef,
    Scalar,
    Value,
    Weights,
    bare,
    kind_of,
    plain,
)
from tensorc_dsl.interp.problems import NO_TEXT, TAKEN_NAME, TOO_MANY_LINES, fail
from tensorc_dsl.ir.graph import Graph
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Block, Program, blocks, find_block, find_loop, fresh, used_names, walk
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.motion import is_param
from tensorc_dsl.schedule.step import BlockRef, BufferRef, IndexMap, LoopRef, NodeRef, Ref, Result
from tensorc_dsl.schedule.trace.distribution import Interval, literal
from tensorc_dsl.schedule.trace.draws.choices import Branch
from tensorc_dsl.schedule.trace.trace import Draw, shown
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.format import expression_text

GIVEN = ("root", "target")
"""Names that every schedule has; no loop or block gets one of them."""


def map_code(m: IndexMap) -> str:
    return f"({', '.join(m.params)}) -> ({', '.join(map(format_expr, m.results))})"


def _is_written_first(ref: BufferRef, block: str, program: Program) -> bool:
    """Whether the block's name, where a buffer is asked for, stands for that buffer."""
    return any(b.name == block and b.body[0].buffer == ref.name for b in blocks(program))


@frozen
class Mark:
    """A state of the recorder: the numbers of lines and draws, the named things, and the names that are taken."""

    lines: int
    draws: int
    bound: dict[Ref, str]
    taken: set[str]


@dataclass(slots=True)
class Recorder:
    """The growing trace. `bound` maps loops, blocks and buffers to their names in the text.

    `undone` are the draws of parts that were undone, which are in no line.
    """

    lines: list[str] = field(default_factory=list[str])
    draws: list[Draw] = field(default_factory=list[Draw])
    undone: list[Draw] = field(default_factory=list[Draw])
    _made: int = 0
    """The number of lines, with those that were undone."""
    bound: dict[Ref, str] = field(default_factory=dict[Ref, str])
    _taken: set[str] = field(default_factory=lambda: set(GIVEN))
    _drawn: set[str] = field(default_factory=set[str])
    _pad: str = ""
    """The indentation of lines, which stand in cases."""
    _numbers: dict[str, int] = field(default_factory=dict[str, int])

    def mark(self) -> Mark:
        """The current state, for `back_to`."""
        return Mark(len(self.lines), len(self.draws), dict(self.bound), set(self._taken))

    def back_to(self, mark: Mark) -> None:
        """Restore the text and the draws of the mark. Later draws are undone; each decision keeps a name of its own."""
        self.undone += self.draws[mark.draws :]
        del self.lines[mark.lines :], self.draws[mark.draws :]
        self.bound, self._taken = mark.bound, mark.taken

    @contextmanager
    def braces(self, head: str, span: Span) -> Generator[None]:
        """A context whose lines stand in braces behind `head`. What is named in them has no name below."""
        self._line(f"{head} {{", span)
        bound, taken, pad = dict(self.bound), set(self._taken), self._pad
        self._pad = f"{pad}    "
        yield
        self.bound, self._taken, self._pad = bound, taken, pad
        self._line("}", span)

    def start(self, program: Program) -> None:
        """Bring the compute's buffers and blocks, or the nodes of a graph, into scope under their own names."""
        if isinstance(program, Graph):  # whose values may have any names, since few schedules name them
            for n in program.nodes:
                for c in n.calls:
                    self._bind(NodeRef(c.name))
            return
        named: list[tuple[str, Ref]] = [("a buffer", BufferRef(b.name)) for b in (*program.params, *program.buffers)]
        named += [("a block", BlockRef(s.name)) for _, s in walk(program.body) if isinstance(s, Block)]
        for what, ref in named:
            if ref.name in GIVEN:
                raise fail(TAKEN_NAME, None, name=ref.name, what=what)
            self._bind(ref)

    def _bind(self, ref: Ref) -> str:
        """A name for `ref`: its own, unless a draw or a word of the language has that name."""
        free = ref.name not in self._drawn and ref.name not in GIVEN
        self.bound[ref] = ref.name if free else fresh(ref.name, self._taken | self._drawn)
        self._taken.add(self.bound[ref])
        return self.bound[ref]

    def _line(self, text: str, span: Span) -> None:
        if self._made == MAX_LINES:
            raise fail(TOO_MANY_LINES, span, most=MAX_LINES)
        self._made += 1
        self.lines.append(self._pad + text)

    def draw_name(self, base: str, program: Program) -> str:
        """A name for a draw that does not occur in the trace or the program."""
        used = used_names(program)
        name, n = base, self._numbers.get(base, 0)
        while name in self._taken or name in used or name in self._drawn:
            n += 1
            name = f"{base}_{n}"
        self._numbers[base] = n
        return name

    def _loop(self, ref: LoopRef, program: Program, span: Span) -> str:
        if ref not in self.bound:
            below = next(s for _, s in walk(find_loop(program, ref.name)[1].body) if isinstance(s, Block))
            block = self._block(BlockRef(below.name), program, span)
            names: list[str] = []
            for loop in find_block(program, below.name)[0]:
                known = LoopRef(loop.var) in self.bound
                names.append("_" if known else self._bind(LoopRef(loop.var)))
            self._line(f"let [{', '.join(names)}] = {block}.loops", span)
        return self.bound[ref]

    def _block(self, ref: BlockRef, program: Program, span: Span) -> str:
        """A block's name; a block that no step returned, such as the tail of a cut loop, is introduced by a query."""
        if ref not in self.bound:
            known = [x for x in find_block(program, ref.name)[0] if LoopRef(x.var) in self.bound]
            inside = find_loop(program, known[-1].var)[1].body if known else program.body
            all_of = self.bound[LoopRef(known[-1].var)] if known else "root"
            found = [BlockRef(s.name) for _, s in walk(inside) if isinstance(s, Block)]
            names = [self._bind(b) if b == ref else "_" for b in found]
            self._line(f"let [{', '.join(names)}] = {all_of}.blocks", span)
        return self.bound[ref]

    def _buffer(self, ref: BufferRef, program: Program, span: Span) -> str:
        """A buffer's name: that of a tensor, or of the block that writes it first. Others are referred to by a block that
        writes them, such as those of several values of a reducer, and one with the name of a block that now writes another.
        """
        own = self.bound.get(ref)
        unlike = self.bound.get(BlockRef(ref.name)) != own and is_param(program, ref.name)
        if own is not None and (unlike or _is_written_first(ref, ref.name, program)):
            return own
        writers = [s for s in blocks(program) if any(x.buffer == ref.name for x in s.body)]
        first = next((w for w in writers if _is_written_first(ref, w.name, program)), writers[0])
        name = self._block(BlockRef(first.name), program, span)
        number = list(dict.fromkeys(x.buffer for x in first.body)).index(ref.name)
        return f"{name}.writes[{number}]" if number else name

    def code(self, value: Value, program: Program, span: Span) -> str:
        """The value as straight-line code. May first add a query that names a loop."""
        match value:
            case Drawn(code=code) | AnyRankMap(code=code):
                return code
            case LoopRef():
                return self._loop(value, program, span)
            case BlockRef():
                return self._block(value, program, span)
            case BufferRef():
                return self._buffer(value, program, span)
            case NodeRef():
                return self.bound[value]
            case ProgramRef():
                return "root"
            case OpenFactor():
                return "_"
            case IndexMap():
                return map_code(value)
            case Interval(low=low, high=high):
                return f"{low}..{high}"
            case Weights(items=items):
                entries = (f"{self.code(k, program, span)}: {self.code(w, program, span)}" for k, w in items)
                return f"{{{', '.join(entries)}}}"
            case tuple():
                return f"[{', '.join([self.code(v, program, span) for v in value])}]"
            case bool() | int() | float() | str():
                return literal(value)
            case Target() | ModuleRef():
                raise fail(NO_TEXT, span, kind=kind_of(value))
            case None:
                raise AssertionError("nothing cannot be an argument")

    def call_code(
        self, name: str, args: tuple[Value, ...], kwargs: dict[str, Value], program: Program, span: Span
    ) -> str:
        """The call as straight-line code."""
        parts = [self.code(a, program, span) for a in args]
        parts += [f"{k}={self.code(v, program, span)}" for k, v in kwargs.items()]
        return f"{name}({', '.join(parts)})"

    def step(self, text: str, results: Result, span: Span) -> None:
        """Record a step, with names for its results."""
        match results:
            case None:
                self._line(text, span)
            case tuple():
                self._line(f"let [{', '.join(self._bind(r) for r in results)}] = {text}", span)
            case _ if results in self.bound:
                self._line(text, span)  # the step returned only what it was given
            case _:
                self._line(f"let {self._bind(results)} = {text}", span)

    def forget_loops(self, program: Program) -> None:
        """Loops that are gone have no name in the text: a later loop that a step calls so is another one, and it would be
        called otherwise in a program that is equal up to names."""
        left = used_names(program)
        if any(isinstance(ref, LoopRef) and ref.name not in left for ref in self.bound):
            self.bound = {r: n for r, n in self.bound.items() if not isinstance(r, LoopRef) or r.name in left}

    def draw(self, draw: Draw, text: str, value: Scalar | tuple[Value, ...], program: Program, span: Span) -> Drawn:
        """Record a draw from the call `text`, and return its value with its provenance."""
        pin = self.code(value, program, span) if isinstance(value, LoopRef) else shown(draw.decision)
        self._line(f"let {draw.name} ~ {text} := {pin}", span)
        self.draws.append(draw)
        self._drawn.add(draw.name)
        return Drawn(value, draw.name, frozenset((draw.name,)))


def recorded_branch(branch: Branch) -> str:
    """The call that stands for the draw of a branch in a trace, which has no `either`."""
    names = [literal(d) for d in branch.names or range(len(branch.weights))]
    if len(set(branch.weights)) == 1:
        return f"sample_categorical([{', '.join(names)}])"
    return (
        f"sample_categorical({{{', '.join(f'{n}: {literal(w)}' for n, w in zip(names, branch.weights, strict=True))}}})"
    )


# The outcome of each rule and each `try` in an expansion: applied, with its draws, or left alone, with the reason.


@dataclass(slots=True)
class Attempt:
    """A module or the first part of a `try`. `depth` counts those around it; `reasons` is empty if it was applied.

    `refusal` is the reason if one of its steps, or of a module that it called, was refused; then all that it did was undone.

    `module` is its name or, if a space or schedule calls it directly, the call as it is written there.
    `owner` is the module's name without its path; empty for the schedule or space itself.
    `draws` are its own draws, without those of modules that it called, and `names` those of all draws of the module.
    A `try` begins in `line`, which is 0 for a module; the others are as in the module around it.
    """

    module: str
    subject: str
    depth: int
    reasons: tuple[str, ...] = ()
    refusal: str = ""
    owner: str = ""
    draws: list[Draw] = field(default_factory=list[Draw])
    names: list[str] = field(default_factory=list[str])
    line: int = 0


def false_conditions(condition: tree.Expr, ask: Callable[[tree.Expr], Value]) -> tuple[str, ...]:
    """The reasons why a condition is false: its false parts, with the values that they refer to.

    For `and` only the first false part counts, since later parts are not evaluated; for `or` all do.
    """
    return tuple(_false(condition, ask))


def _false(e: tree.Expr, ask: Callable[[tree.Expr], Value]) -> Iterator[str]:
    match e:
        case tree.LogicExpr(op="and", lhs=a, rhs=b):
            yield from _false(b if bare(ask(a)) is True else a, ask)
        case tree.LogicExpr(op="or", lhs=a, rhs=b):
            yield from _false(a, ask)
            yield from _false(b, ask)
        case tree.NotExpr(operand=a):
            yield f"`{expression_text(a)}` is true"
        case tree.CompareExpr(operands=operands):
            values = [f"`{expression_text(o)}` is {shown_attempts(ask(o))}" for o in operands if not _is_plain(o)]
            yield f"`{expression_text(e)}` is false" + (f": {', '.join(values)}" if values else "")
        case _:
            yield f"`{expression_text(e)}` is false"


def _is_plain(e: tree.Expr) -> bool:
    return isinstance(e, tree.Number | tree.String | tree.Bool)


def shown_attempts(value: Value) -> str:
    """A value as text for people, with references by their names."""
    match plain(value):
        case BlockRef(name=name) | LoopRef(name=name) | BufferRef(name=name) | NodeRef(name=name):
            return name
        case ProgramRef():
            return "the program"
        case tuple() as items:
            return f"[{', '.join(shown_attempts(v) for v in items)}]"
        case bool() | int() | float() | str() as scalar:
            return literal(scalar)
        case Target(kind=kind):
            return kind
        case ModuleRef(name=name):
            return name
        case other:
            return str(other)
