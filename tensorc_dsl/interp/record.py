"""What an expansion writes down: the trace's lines, and what its text calls each loop, block and draw.

A trace names loops and blocks as the program does, so text and program can be read side by side. A loop that no line has
named yet is introduced by a query (`let [_, j] = C.loops`) before the line that needs it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tensorc_dsl.interp.draws import draw_code, literal
from tensorc_dsl.interp.values import Drawn, OpenFactor, Plain, ProgramRef, Value
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Block, Program, find_block, find_loop, fresh, used_names, walk
from tensorc_dsl.schedule.primitive import BlockRef, BufferRef, IndexMap, LoopRef, Ref
from tensorc_dsl.trace.draw import Decision, Distribution, Draw, PerfectTile


def pin_code(decision: Decision) -> str:
    """A decision as it stands after `:=`."""
    return f"[{', '.join(map(str, decision))}]" if isinstance(decision, tuple) else literal(decision)


def map_code(m: IndexMap) -> str:
    return f"({', '.join(m.params)}) -> ({', '.join(map(format_expr, m.results))})"


@dataclass(slots=True)
class Recorder:
    """The growing trace. `bound` maps what was named to its name in the text."""

    lines: list[str] = field(default_factory=list[str])
    draws: list[Draw] = field(default_factory=list[Draw])
    bound: dict[Ref, str] = field(default_factory=dict[Ref, str])
    taken: set[str] = field(default_factory=set[str])

    def start(self, program: Program) -> None:
        """The compute's buffers and blocks are in scope by their own names."""
        for b in (*program.params, *program.buffers):
            self._bind(BufferRef(b.name))
        for _, s in walk(program.body):
            if isinstance(s, Block):
                self._bind(BlockRef(s.name))

    def _bind(self, ref: Ref) -> str:
        """A name for `ref`: its own, unless a draw took that one."""
        draws = {d.name for d in self.draws}
        self.bound[ref] = ref.name if ref.name not in draws else fresh(ref.name, self.taken | draws)
        self.taken.add(self.bound[ref])
        return self.bound[ref]

    def draw_name(self, base: str, program: Program) -> str:
        """A name for a draw that nothing in the trace or the program has."""
        return fresh(base, self.taken | used_names(program) | {d.name for d in self.draws})

    def _loop(self, ref: LoopRef, program: Program) -> str:
        if ref not in self.bound:
            below = next(s for _, s in walk(find_loop(program, ref.name)[1].body) if isinstance(s, Block))
            names: list[str] = []
            for loop in find_block(program, below.name)[0]:
                known = LoopRef(loop.var) in self.bound
                names.append("_" if known else self._bind(LoopRef(loop.var)))
            self.lines.append(f"let [{', '.join(names)}] = {self.bound[BlockRef(below.name)]}.loops")
        return self.bound[ref]

    def code(self, value: Value, program: Program) -> str:
        """The value as straight-line code; may first add the query that names a loop."""
        match value:
            case Drawn(code=code):
                return code
            case LoopRef():
                return self._loop(value, program)
            case BlockRef() | BufferRef():
                return self.bound.get(value, value.name)
            case ProgramRef():
                return "root"
            case OpenFactor():
                return "_"
            case IndexMap():
                return map_code(value)
            case tuple():
                return f"[{', '.join(self.code(v, program) for v in value)}]"
            case bool() | int() | float() | str():
                return literal(value)
            case _:
                raise AssertionError(f"{value!r} cannot be an argument")

    def call(
        self,
        name: str,
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
        before: Program,
        results: LoopRef | BlockRef | tuple[LoopRef, ...] | None,
    ) -> None:
        """Write down a step that was applied to `before`."""
        parts = [self.code(a, before) for a in args] + [f"{k}={self.code(v, before)}" for k, v in kwargs.items()]
        text = f"{name}({', '.join(parts)})"
        match results:
            case None:
                self.lines.append(text)
            case tuple():
                self.lines.append(f"let [{', '.join(self._bind(r) for r in results)}] = {text}")
            case _ if results in self.bound:
                self.lines.append(text)  # the step changed what it was given and made nothing new
            case _:
                self.lines.append(f"let {self._bind(results)} = {text}")

    def draw(
        self,
        name: str,
        distribution: Distribution,
        decision: Decision,
        pinned: bool,
        loop: LoopRef | None,
        program: Program,
    ) -> Drawn:
        """Write down a draw and return its value, which remembers where it came from."""
        where = self._loop(loop, program) if isinstance(distribution, PerfectTile) and loop else ""
        self.lines.append(f"let {name} ~ {draw_code(distribution, where)} := {pin_code(decision)}")
        self.draws.append(Draw(name, distribution, decision, pinned))
        return Drawn(decision, name)


def combine(op: str, lhs: Value, rhs: Value, value: Plain) -> Value:
    """The result of an operator: drawn when an operand is, so that the trace keeps the formula."""
    if not isinstance(lhs, Drawn) and not isinstance(rhs, Drawn):
        return value

    def side(v: Value) -> str:
        if isinstance(v, Drawn):
            return v.code if v.tight else f"({v.code})"
        assert isinstance(v, bool | int | float | str)
        return literal(v)

    if op in ("min", "max"):
        return Drawn(value, f"{op}({side(lhs)}, {side(rhs)})")
    return Drawn(value, f"{side(lhs)} {op} {side(rhs)}", tight=False)
