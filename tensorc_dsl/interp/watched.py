"""An expansion that keeps the program after each statement, and where in the text each draw stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tensorc_dsl.base.diagnostic import TschedError, render
from tensorc_dsl.base.source import Span
from tensorc_dsl.interp.evaluate import Env
from tensorc_dsl.interp.expand import Expansion
from tensorc_dsl.interp.values import Value
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.refusal import Refusal, ScheduleRefusal
from tensorc_dsl.schedule.render import refusal_diagnostic
from tensorc_dsl.syntax import tree
from tensorc_dsl.trace.declare import Offer
from tensorc_dsl.trace.distribution import Decision
from tensorc_dsl.trace.draw import Draw
from tensorc_dsl.trace.model import Decider
from tensorc_dsl.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class Stand:
    """The program as it stood after the statement at `span`."""

    span: Span
    program: Program


class Late(Exception):
    """An expansion takes longer than it may."""


class Watched(Expansion):
    """`start` is the program before all steps, and `stands` are in the order of time; `failure` ended the expansion early.

    `trace` is that of one that was not. `is_late` is called before each statement and call; if it is true, Late is raised.
    """

    def __init__(
        self,
        program: Program,
        target: Target,
        modules: Mapping[str, tree.ModuleDef],
        decide: Decider,
        is_late: Callable[[], bool],
    ) -> None:
        super().__init__(program, target, modules, decide)
        self._is_late = is_late
        self.start = program
        self.stands: list[Stand] = []
        self.places: list[tuple[Span, Draw]] = []
        self.failure: ScheduleRefusal | TschedError | None = None
        self.trace: Trace | None = None

    @property
    def problem(self) -> str:
        """Why the expansion ended early, as the command line prints it; empty if it did not."""
        match self.failure:
            case None:
                return ""
            case TschedError(diagnostics=diagnostics):
                return "\n".join(map(render, diagnostics))
            case refusal:
                return render(refusal_diagnostic(refusal))

    def run(self, body: tuple[tree.Stmt, ...], env: Env) -> None:
        for s in body:
            self._hurry()
            super().run((s,), env)
            self.stands.append(Stand(s.span, self.program))

    def call(self, call: tree.CallExpr, env: Env, is_statement: bool = False) -> Value:
        self._hurry()
        return super().call(call, env, is_statement)

    def _hurry(self) -> None:
        if self._is_late():
            raise Late

    def attempt(self, act: Callable[[], None], passing: Sequence[Refusal[...]]) -> ScheduleRefusal | None:
        """As in every expansion; what is undone is not kept, either."""
        stands, places = len(self.stands), len(self.places)
        refusal = super().attempt(act, passing)
        if refusal is not None:
            del self.stands[stands:], self.places[places:]
        return refusal

    def _decide(
        self, base: str, offer: Offer, pin: Decision | None, code: str, at: tree.DrawStmt | tree.Either | tree.Maybe
    ) -> Value:
        value = super()._decide(base, offer, pin, code, at)
        self.places.append((at.span, self.recorder.draws[-1]))
        return value
