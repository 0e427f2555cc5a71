"""Expansion: runs a schedule or a space on a program and records a trace.

Expansion is a function of (program, target, decisions): equal decisions give equal traces, byte for byte. It always
ends: lists are finite, loops run over lists, a module cannot reach itself, and `limits` bounds everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import assert_never, cast

from tensorc_dsl.base.diagnostic import TschedError, render
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.check.spaces import subject_of
from tensorc_dsl.check.vocabulary import FUNCTIONS
from tensorc_dsl.interp import problems
from tensorc_dsl.interp.arguments import elements
from tensorc_dsl.interp.calls import Calls
from tensorc_dsl.interp.evaluate import (
    MAX_STEPS,
    Drawn,
    Env,
    ProgramRef,
    Scalar,
    Value,
    bare,
    evaluate,
    kind_of,
    plain,
    truth,
)
from tensorc_dsl.interp.problems import fail
from tensorc_dsl.interp.record import Attempt, recorded_branch
from tensorc_dsl.ir.cases import box_of, common, divided, hull, narrowed, no_case, occurs, whole, without
from tensorc_dsl.ir.graph import Graph
from tensorc_dsl.ir.identity import by_first, by_identity
from tensorc_dsl.ir.program import Block, Case, Program, blocks, has_block, walk
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.copies import require_kernels_apart
from tensorc_dsl.schedule.primitives import ALL_STEPS
from tensorc_dsl.schedule.step import (
    BlockRef,
    BufferRef,
    LoopRef,
    NodeRef,
    Refusal,
    ScheduleRefusal,
    refusal_diagnostic,
)
from tensorc_dsl.schedule.trace.distribution import Decision, Offer, Weights
from tensorc_dsl.schedule.trace.draws import DRAWS
from tensorc_dsl.schedule.trace.draws.choices import Branch
from tensorc_dsl.schedule.trace.trace import Decider, Draw, Refused, Site, Trace, Undecided, shown
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.format import case_head
from tensorc_dsl.syntax.traversal import walk as walk_tree

_OF_DECISIONS = (problems.ILLEGAL, problems.NOT_WITHIN)
"""Refusals of a decision, not of a step: outside of its draw's support, or not `within` the limits of a rule."""


class Expansion(Calls):
    """One run. `program` is the current program; only primitives change it."""

    def __init__(
        self, program: Program, target: Target, modules: Mapping[str, tree.ModuleDef], decide: Decider
    ) -> None:
        super().__init__(program, target, modules)
        self.decide = decide
        self.refused: list[Refused] = []
        self._lists = program, _lists(program, target)
        """The lists of the program that one was last computed for."""
        self.weights: Mapping[str, Weights] = {}
        """Other weights for values of draws, by the names of these."""

    # --- entry points ------------------------------------------------------------------------------------------------

    def schedule(self, definition: tree.ScheduleDef) -> Trace:
        """Run a schedule: the compute's blocks and parameters, or the nodes of a model, are in scope by name."""
        self.asked = [Attempt(definition.name, definition.compute, 0)]
        self.attempts += self.asked
        env = self.given()
        for b in (*self.program.params, *self.program.buffers):
            env[b.name] = BufferRef(b.name)
        env |= {s.name: BlockRef(s.name) for _, s in walk(self.program.body) if isinstance(s, Block)}
        if isinstance(self.program, Graph):
            env = {c.name: NodeRef(c.name) for n in self.program.nodes for c in n.calls} | env
        self.run(definition.body, env)
        return self._trace(definition.name, definition.compute, definition.span)

    def space(self, definition: tree.SpaceDef, compute: str) -> Trace:
        """Apply each rule in order: to each block, consumers first, to each node, producers first, or once to the program."""
        for rule in definition.rules:
            call = rule if isinstance(rule, tree.CallExpr) else tree.CallExpr(rule, (), (), rule.span)
            name = call.function.id if isinstance(call.function, tree.Name) else ""
            module = self.modules.get(name)
            if module is None:
                raise fail(problems.UNKNOWN_RULE, call.span, name=name)
            env = self.given()
            kind = subject_of(module)
            if kind == "Block":
                names = [b.name for b in blocks(self.program)]
                for block in reversed(names):
                    if has_block(self.program, block):
                        self._rule(module, call, [BlockRef(block)], env)
            elif kind == "Node" and isinstance(self.program, Graph):
                for node in [n.name for n in self.program.nodes]:
                    if any(n.name == node for n in self.program.nodes):
                        self._rule(module, call, [NodeRef(node)], env)
            else:
                self._rule(module, call, [ProgramRef()] if kind == "Program" else [], env)
        return self._trace(definition.name, compute, definition.span)

    def _rule(self, module: tree.ModuleDef, call: tree.CallExpr, subject: list[Value], env: Env) -> None:
        """Apply a rule of a space. If one of its steps is refused, the program is restored and the next rule is tried, so
        there always is a schedule. A refused decision refuses the whole trace instead: another draw may be accepted.
        """
        refusal = self.attempt(lambda: self.module(module, call, subject, env), _OF_DECISIONS)
        if refusal is not None:
            rule = self.attempts[-1]
            self.refused.append(Refused(rule.module, rule.subject, refusal))

    def _trace(self, name: str, compute: str, span: Span) -> Trace:
        if self.target.starts_grids:
            with self.at(span):
                require_kernels_apart(self.program)
        r = self.recorder
        made, refused = tuple(self.applied), tuple(self.refused)
        lines, draws, undone = tuple(r.lines), tuple(r.draws), tuple(r.undone)
        return Trace(str(name), str(compute), lines, draws, self.program, refused, made, undone)

    # --- statements --------------------------------------------------------------------------------------------------

    def run(self, body: tuple[tree.Stmt, ...], env: Env) -> None:
        """Run statements in order; the names that they bind are in `env` afterwards."""
        for s in body:
            self.budget.enter(s.span)
            match s:
                case tree.Let(pattern=pattern, value=value):
                    self._bind(pattern, evaluate(value, env, self), env)
                case tree.DrawStmt():
                    self._draw(s, env)
                case tree.ExprStmt(value=tree.CallExpr() as call):
                    self.budget.enter(call.span)
                    self.call(call, env, is_statement=True)
                    self.budget.depth -= 1
                case tree.ExprStmt(value=value):
                    evaluate(value, env, self)
                case tree.Either():
                    self._either(s, env)
                case tree.Maybe():
                    self._maybe(s, env)
                case tree.Try():
                    self._try(s, env)
                case tree.If(cond=cond, then=then, other=other):
                    self.run(then if truth(evaluate(cond, env, self), cond) else other, env)
                case tree.Select():
                    self._select(s, env)
                case tree.Yield(value=value):
                    if not self._yields:
                        raise fail(problems.LONELY_YIELD, s.span)
                    self._yields[-1].append(evaluate(value, env, self))
                case _:
                    assert_never(s)
            self.budget.depth -= 1

    def _try(self, s: tree.Try, env: Env) -> None:
        """Run the body, or the other part if one of its steps is refused. A refused decision refuses the whole trace."""
        by, scope = self.asked[-1], dict(env)
        line, _ = s.span.source.line_column(s.span.start)
        tried = Attempt(by.module, by.subject, self._inside(), owner=by.owner, names=by.names, line=line)

        def body() -> None:
            self.attempts.append(tried)
            self.asked.append(tried)
            self.run(s.body, scope)
            self.asked.pop()

        if self.attempt(body, (problems.ILLEGAL,)) is None:
            env |= scope
        else:
            self.run(s.other, env)

    def _select(self, s: tree.Select, env: Env) -> None:
        """Divide the program: run each case that has sizes of the program on the program for these sizes."""
        program, names = self.program, tuple(map(str, s.names))
        for name in s.names:
            if all(d.name != name for d in program.dims):
                raise fail(problems.NOT_OPEN, name.span, name=name)
        rest = [whole(program.dims, names)]
        cases: list[Case] = []
        with self.recorder.braces(f"select {', '.join(names)}", s.span):
            for case in s.cases:
                box = box_of(case.sizes, names, case.span)
                left = [x for b in rest if (x := common(b, box)) is not None and occurs(program.dims, names, x)]
                if not left:
                    continue  # the task has no such sizes
                rest = without(rest, box)
                sizes = hull(left)
                self.program = narrowed(program, names, sizes)
                with self.recorder.braces(case_head(case.sizes), case.span):
                    self.run(case.body, dict(env))
                cases.append(Case(sizes, self.program))
        for box in rest:
            if occurs(program.dims, names, box):
                raise TschedError(no_case(s, box))
        self.program = divided(program, names, cases)

    def _bind(self, pattern: tree.Pattern, value: Value, env: Env) -> None:
        match pattern:
            case tree.NamePattern(name=name):
                if name != "_":
                    env[name] = value
            case tree.ListPattern(items=items):
                parts = elements(value)
                if parts is None:
                    raise fail(problems.NO_PARTS, pattern.span, found=kind_of(value))
                if len(parts) != len(items):
                    raise fail(problems.OTHER_COUNT, pattern.span, names=len(items), count=len(parts))
                env |= {item.name: part for item, part in zip(items, parts, strict=True) if item.name != "_"}

    def for_list(self, loop: tree.ForList, env: Env) -> Value:
        """The list of the values that the rounds yield.

        That of a loop which only computes is kept with the program: the candidates of a search compute most lists anew, such
        as the tiles that fit the registers, from the same program and the same values.
        """
        names = _inputs(loop)
        if names is None:
            return self.rounds(loop, env)
        if self._lists[0] is not self.program:
            self._lists = self.program, _lists(self.program, self.target)
        kept, budget = self._lists[1], self.budget
        key = (id(loop), budget.depth, *[_exact(env[n]) if n in env else _Absent for n in names])
        found = kept.get(key)
        if found is not None and budget.steps + found.steps <= MAX_STEPS:
            budget.steps += found.steps
            return found.value
        before = budget.steps
        value = self.rounds(loop, env)
        if len(kept) >= MOST_LISTS:
            kept.clear()
        kept[key] = _List(loop, value, budget.steps - before)
        return value

    def rounds(self, loop: tree.ForList, env: Env) -> Value:
        """The values that the rounds of the loop yield."""
        listed = evaluate(loop.source, env, self)
        source = elements(listed)
        if source is None:
            raise fail(problems.NO_LIST, loop.source.span, found=kind_of(listed))
        self._yields.append([])
        for value in source:
            scope = dict(env)
            self._bind(loop.target, value, scope)
            if loop.cond is None or truth(evaluate(loop.cond, scope, self), loop.cond):
                self.run(loop.body, scope)
        made = tuple(self._yields.pop())
        self.budget.use(made, loop.span)
        return made

    # --- draws -------------------------------------------------------------------------------------------------------

    def _draw(self, s: tree.DrawStmt, env: Env) -> None:
        call = s.distribution
        name = call.function.id if isinstance(call.function, tree.Name) else ""
        if name not in DRAWS:
            raise fail(problems.NO_DISTRIBUTION, call.span, name=name or call.function.span.text)
        offer, code = self.offer(DRAWS[name], call, env)
        pin = None if s.pin is None else self._pin(s.pin, offer, env)
        env[s.name.name] = self._decide(s.name.name, offer, pin, code, s)

    def _pin(self, pin: tree.Expr, offer: Offer, env: Env) -> Decision:
        value = evaluate(pin, env, self)
        self.budget.use(value, pin.span)
        match plain(value):
            case bool() | int() | float() | str() as decision:
                return decision
            case LoopRef(name=name):
                return name
            case tuple() as values:
                positions = tuple(v for v in values if isinstance(v, int) and not isinstance(v, bool))
                if len(positions) == len(values):
                    return positions
            case _:
                pass
        raise fail(problems.NO_PIN, pin.span, found=kind_of(value), legal=offer.distribution.describe())

    def _decide(
        self, base: str, offer: Offer, pin: Decision | None, code: str, at: tree.DrawStmt | tree.Either | tree.Maybe
    ) -> Value:
        distribution = offer.distribution
        name = self.recorder.draw_name(base, self.program)
        if name in self.weights:
            distribution = self.weights[name].over(distribution)
        if pin is not None and not distribution.contains(pin):
            place = at.pin.span if isinstance(at, tree.DrawStmt) and at.pin is not None else at.span
            raise fail(problems.ILLEGAL_PIN, place, name=base, value=shown(pin), legal=distribution.describe())
        owner, subject = self._owner(base)
        decision = pin if pin is not None else self._ask(Site(name, distribution, title=owner or name), at.span)
        if not distribution.contains(decision):
            raise AssertionError(f"a handler decided {decision!r} for {name}, outside {distribution}")
        value = cast("Scalar | tuple[Value, ...]", offer.value(decision))  # of the kind that its draw declares
        draw = Draw(name, distribution, decision, pin is not None, owner, subject)
        if self.asked:
            self.asked[-1].draws.append(draw)
        return self.recorder.draw(draw, code, value, self.program, at.span)

    def _owner(self, base: str) -> tuple[str, str]:
        """The module that draws, with the name there and what it was applied to; and the latter. Empty outside of modules."""
        if not self.asked or not self.asked[-1].owner:
            return "", ""
        by = self.asked[-1]
        again = by.names.count(base)
        by.names.append(base)
        owner = f"{by.owner}.{base}{f'[{again}]' if again else ''}{f' of {by.subject}' if by.subject else ''}"
        return owner, by.subject

    def _ask(self, site: Site, span: Span) -> Decision:
        try:
            decision = self.decide(site)
        except Undecided as e:
            decision = e.decision
            if decision is not None:
                legal = site.distribution.describe()
                refusal = problems.ILLEGAL(self.program, name=site.name, value=shown(decision), legal=legal)
                raise self.placed(refusal, span) from None
        if decision is None:
            raise fail(problems.UNDECIDED, span, name=site.name, legal=site.distribution.describe())
        return decision

    def _either(self, s: tree.Either, env: Env) -> None:
        weights: list[float] = []
        for b in s.branches:
            weight = 1.0 if b.weight is None else bare(evaluate(b.weight, env, self))
            if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 <= weight < 1 << 1000:
                found = weight if isinstance(weight, int | float) else kind_of(weight)
                raise fail(problems.BAD_WEIGHT, b.span, found=found)
            weights.append(float(weight))
        if not any(weights):
            raise fail(problems.NO_WEIGHT, s.span)
        names = tuple(str(b.name) for b in s.branches if b.name is not None)
        self.run(s.branches[self._branch(str(s.name or "branch"), Branch(tuple(weights), names), s)].body, env)

    def _maybe(self, s: tree.Maybe, env: Env) -> None:
        chance = 50.0 if s.chance is None else bare(evaluate(s.chance, env, self))
        if not isinstance(chance, int | float) or isinstance(chance, bool) or not 0 <= chance <= 100:
            found = chance if isinstance(chance, int | float) else kind_of(chance)
            raise fail(problems.BAD_CHANCE, s.span if s.chance is None else s.chance.span, found=found)
        if self._branch(str(s.name), Branch((float(chance), 100.0 - chance), (True, False)), s) == 0:
            self.run(s.body, env)

    def _branch(self, name: str, branch: Branch, at: tree.Either | tree.Maybe) -> int:
        """The number of the branch that is drawn."""
        decision = bare(self._decide(name, Offer(branch), None, recorded_branch(branch), at))
        assert isinstance(decision, int | str)
        chosen = branch.position(decision)
        assert chosen is not None
        return chosen


# Lists that loops compute, which are kept with the program.


MOST_LISTS = 1024
"""Lists that are kept for each of the latest programs."""


@frozen
class _List:
    """What a loop yielded, in so many steps. The loop is kept alive, by whose identity it is found."""

    loop: tree.ForList
    value: Value
    steps: int


@by_first(256)
def _lists(_program: Program, _target: Target) -> dict[Hashable, _List]:
    """The lists by the loop, its depth and its inputs."""
    return {}


class _Absent:
    """Stands for a name without a value."""


@by_identity(1024)
def _inputs(loop: tree.ForList) -> tuple[str, ...] | None:
    """The names that occur in a loop which only computes; None if it may do more, or depend on the loops around it."""
    nodes = [*walk_tree(loop)]
    outside = [*walk_tree(loop.source)]
    if not all(map(_only_computes, nodes)) or any(isinstance(n, tree.Name) and n.id == "so_far" for n in outside):
        return None
    return tuple(dict.fromkeys(str(n.id) for n in nodes if isinstance(n, tree.Name)))


def _only_computes(node: object) -> bool:
    """Whether a node has no effect, and depends on the program, the target and the values of its names alone."""
    match node:
        case tree.DrawStmt() | tree.Either() | tree.Maybe() | tree.Try() | tree.Select() | tree.Lambda():
            return False  # what `...` stands for in a lambda depends on all names that are in scope
        case tree.CallExpr(function=tree.Name(id=name), kwargs=kwargs):
            return name in FUNCTIONS and name not in ALL_STEPS and not kwargs
        case tree.CallExpr(function=function):
            return isinstance(function, tree.Attribute)  # a query, or a method of a value
        case _:
            return True


def _exact(value: Value) -> Hashable:
    """Equal for values with which everything computes the same: true is not 1, and -0.0 not 0.0."""
    kind = type(value)
    if kind is int or kind is str or kind in _NAMED:
        return cast("Hashable", value)
    if isinstance(value, tuple):
        return tuple([_exact(v) for v in value])
    if isinstance(value, Drawn):
        return Drawn, _exact(value.value), value.code, value.draws, value.tight
    return kind, repr(value)


_NAMED = frozenset((LoopRef, BlockRef, BufferRef, NodeRef, ProgramRef, Target))


# An expansion that keeps the program after each statement, and where in the text each draw stands.


@frozen
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

    def for_list(self, loop: tree.ForList, env: Env) -> Value:
        """As in every expansion; each round is run, and seen."""
        return self.rounds(loop, env)

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
