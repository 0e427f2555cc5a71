"""Expansion: a schedule or a space runs over a program and leaves a trace.

Expansion is a function of (program, target, decisions): the same decisions give the same trace, byte for byte. It always
ends: lists are finite, loops run over lists, a module cannot reach itself, and steps are counted.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, assert_never

from tensorc_dsl.diagnostic import Note
from tensorc_dsl.interp import queries
from tensorc_dsl.interp.arguments import bind_primitive
from tensorc_dsl.interp.draws import DRAWS, DrawError
from tensorc_dsl.interp.evaluate import BUILTINS, Env, builtin, evaluate, method
from tensorc_dsl.interp.record import Recorder
from tensorc_dsl.interp.values import ProgramRef, Value, error, kind_of, plain
from tensorc_dsl.ir.program import Block, Program, walk
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.places import the_block, the_loop
from tensorc_dsl.schedule.primitive import BlockRef, BufferRef, LoopRef
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tensorc_dsl.source import Span
from tensorc_dsl.syntax import tree
from tensorc_dsl.trace.draw import Branch, Decision, Distribution
from tensorc_dsl.trace.handlers import Decider
from tensorc_dsl.trace.trace import Trace

MAX_STEPS = 200_000
"""Statements that one expansion may run."""


class Expansion:
    """One run. `program` is the program as it stands; it changes only by primitives."""

    def __init__(
        self, program: Program, target: Target, modules: Mapping[str, tree.ModuleDef], decide: Decider
    ) -> None:
        self.program = program
        self.target = target
        self.modules = modules
        self.decide = decide
        self.recorder = Recorder()
        self.recorder.start(program)
        self._stack: list[str] = []
        self._yields: list[list[Value]] = []
        self._steps = 0

    # --- entry points ------------------------------------------------------------------------------------------------

    def schedule(self, definition: tree.ScheduleDef) -> Trace:
        """Run a schedule: the compute's blocks and parameters are in scope by name."""
        env: Env = {"target": self.target, "root": ProgramRef()}
        for b in (*self.program.params, *self.program.buffers):
            env[b.name] = BufferRef(b.name)
        for _, s in walk(self.program.body):
            if isinstance(s, Block):
                env[s.name] = BlockRef(s.name)
        self.run(definition.body, env)
        return self._trace(definition.name, definition.compute)

    def space(self, definition: tree.SpaceDef, compute: str) -> Trace:
        """Apply each rule in order, to each block it takes (consumers first) or once to the program."""
        for rule in definition.rules:
            call = rule if isinstance(rule, tree.CallExpr) else tree.CallExpr(rule, (), (), rule.span)
            name = call.function.id if isinstance(call.function, tree.Name) else ""
            module = self.modules.get(name)
            if module is None:
                raise error("E0531", f"there is no module `{name}`", call.span, "a rule of a space is a module")
            if module.params and module.params[0].type == "Block":
                names = [s.name for _, s in walk(self.program.body) if isinstance(s, Block)]
                for block in reversed(names):
                    if any(isinstance(s, Block) and s.name == block for _, s in walk(self.program.body)):
                        self._module(module, call, [BlockRef(block)], {"target": self.target})
            else:
                subject: list[Value] = [ProgramRef()] if module.params and module.params[0].type == "Program" else []
                self._module(module, call, subject, {"target": self.target})
        return self._trace(definition.name, compute)

    def _trace(self, name: str, compute: str) -> Trace:
        return Trace(name, compute, tuple(self.recorder.lines), tuple(self.recorder.draws), self.program)

    # --- statements --------------------------------------------------------------------------------------------------

    def run(self, body: tuple[tree.Stmt, ...], env: Env) -> None:
        for s in body:
            self._steps += 1
            if self._steps > MAX_STEPS:
                raise error("E0532", f"the expansion takes more than {MAX_STEPS} steps", s.span)
            match s:
                case tree.Let(pattern=pattern, value=value):
                    self._bind(pattern, evaluate(value, env, self), env)
                case tree.DrawStmt():
                    self._draw(s, env)
                case tree.ExprStmt(value=value):
                    evaluate(value, env, self)
                case tree.Either():
                    self._either(s, env)
                case tree.If(cond=cond, then=then, other=other):
                    chosen = plain(evaluate(cond, env, self))
                    if not isinstance(chosen, bool):
                        raise error("E0522", f"a condition is true or false; this is {kind_of(chosen)}", cond.span)
                    self.run(then if chosen else other, env)
                case tree.Yield(value=value):
                    if not self._yields:
                        raise error("E0533", "`yield` stands in a `for`", s.span)
                    self._yields[-1].append(evaluate(value, env, self))
                case _:
                    assert_never(s)

    def _bind(self, pattern: tree.Pattern, value: Value, env: Env) -> None:
        match pattern:
            case tree.NamePattern(name=name):
                if name != "_":
                    env[name] = value
            case tree.ListPattern(items=items):
                values = plain(value)
                if not isinstance(value, tuple) and isinstance(values, tuple):
                    # A drawn list is taken apart through its code, so that the parts stay drawn.
                    parts: tuple[Value, ...] = tuple(
                        evaluate(
                            tree.IndexExpr(
                                tree.Name("list", pattern.span), (tree.Number(n, pattern.span),), pattern.span
                            ),
                            {"list": value},
                            self,
                        )
                        for n in range(len(values))
                    )
                elif isinstance(value, tuple):
                    parts = value
                else:
                    raise error("E0534", f"only a list has parts; this is {kind_of(value)}", pattern.span)
                if len(parts) != len(items):
                    message = f"{len(items)} names for a list of {len(parts)}"
                    raise error("E0535", message, pattern.span, f"the list has {len(parts)} elements")
                for item, part in zip(items, parts, strict=True):
                    if item.name != "_":
                        env[item.name] = part

    def _draw(self, s: tree.DrawStmt, env: Env) -> None:
        call = s.distribution
        name = call.function.id if isinstance(call.function, tree.Name) else ""
        kind = DRAWS.get(name)
        if kind is None:
            raise error(
                "E0501", f"`{name}` is no distribution", call.span, help=f"there are {', '.join(sorted(DRAWS))}"
            )
        given: dict[str, Value] = {}
        for parameter, argument in zip(kind.params, call.args, strict=False):
            given[parameter] = evaluate(argument, env, self)
        for key, argument in call.kwargs:
            if key not in kind.params or key in given:
                raise error("E0502", f"`{name}` has no parameter `{key}` left to give", argument.span)
            given[key] = evaluate(argument, env, self)
        if len(call.args) > len(kind.params) or any(p not in given for p in kind.params[: kind.required]):
            raise error("E0502", f"`{name}` takes ({', '.join(kind.params)})", call.span)
        try:
            with self._placed(call.span):
                distribution = kind.build(self.program, given)
        except DrawError as problem:
            raise error("E0503", str(problem), call.span, help=problem.help) from None
        loop = plain(given.get("loop"))
        pin = None if s.pin is None else _decision(plain(evaluate(s.pin, env, self)), s.pin)
        env[s.name.name] = self._decide(s.name.name, distribution, pin, loop if isinstance(loop, LoopRef) else None, s)

    def _decide(
        self,
        base: str,
        distribution: Distribution,
        pin: Decision | None,
        loop: LoopRef | None,
        at: tree.DrawStmt | tree.Either,
    ) -> Value:
        name = self.recorder.draw_name(base, self.program)
        if pin is not None and not distribution.contains(pin):
            assert isinstance(at, tree.DrawStmt)
            assert at.pin is not None
            raise error(
                "E0504", f"`{base}` cannot be pinned to {_shown(pin)}", at.pin.span, "not in the draw's support",
                f"use {distribution.describe()}",
            )  # fmt: skip
        decision = pin if pin is not None else self.decide(name, distribution)
        if not distribution.contains(decision):
            raise AssertionError(f"a handler decided {decision!r} for {name}, outside {distribution}")
        return self.recorder.draw(name, distribution, decision, pin is not None, loop, self.program)

    def _either(self, s: tree.Either, env: Env) -> None:
        weights: list[float] = []
        for b in s.branches:
            weight = 1.0 if b.weight is None else plain(evaluate(b.weight, env, self))
            if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 <= weight < float("inf"):
                raise error("E0503", f"a weight is a finite number from 0; this is {kind_of(weight)}", b.span)
            weights.append(float(weight))
        if not any(weights):
            raise error("E0503", "every branch has weight 0", s.span)
        chosen = plain(self._decide("branch", Branch(tuple(weights)), None, None, s))
        assert isinstance(chosen, int)
        self.run(s.branches[chosen].body, env)

    @contextmanager
    def _placed(self, span: Span) -> Generator[None, None, None]:
        """A refusal from inside learns where it was written and what led to it."""
        try:
            yield
        except ScheduleRefusal as refusal:
            if refusal.span is None:
                refusal.span = span
                refusal.steps = tuple(self.recorder.lines)
            raise

    def attribute(self, base: Value, at: tree.Attribute) -> Value:
        """`base.name`: a query on the program as it stands. A refusal when the block or loop is no longer there."""
        value = plain(base)
        with self._placed(at.span):
            match value:
                case BlockRef() if at.name in queries.BLOCK_QUERIES:
                    the_block(self.program, value)
                    return queries.BLOCK_QUERIES[at.name](self.program, value)
                case LoopRef() if at.name in queries.LOOP_QUERIES:
                    the_loop(self.program, value)
                    return queries.LOOP_QUERIES[at.name](self.program, value)
                case BufferRef() if at.name in queries.BUFFER_QUERIES:
                    return queries.BUFFER_QUERIES[at.name](self.program, value)
                case ProgramRef() if at.name in queries.PROGRAM_QUERIES:
                    return queries.PROGRAM_QUERIES[at.name](self.program, value)
                case Target() if at.name in queries.TARGET_FACTS:
                    return getattr(value, at.name)
                case _:
                    raise error("E0525", f"{kind_of(value)} has no `{at.name}`", at.span, "no such attribute")

    def for_list(self, loop: tree.ForList, env: Env) -> Value:
        source = evaluate(loop.source, env, self)
        if not isinstance(source, tuple):
            inner = plain(source)
            if not isinstance(inner, tuple):
                raise error("E0536", f"`for` runs over a list; this is {kind_of(source)}", loop.source.span)
            source = inner
        self._yields.append([])
        for value in source:
            scope = dict(env)
            self._bind(loop.target, value, scope)
            self.run(loop.body, scope)
        return tuple(self._yields.pop())

    # --- calls -------------------------------------------------------------------------------------------------------

    def call(self, call: tree.CallExpr, env: Env) -> Value:
        if isinstance(call.function, tree.Attribute):
            base = evaluate(call.function.base, env, self)
            return method(base, call.function.name, [evaluate(a, env, self) for a in call.args], call)
        if not isinstance(call.function, tree.Name):
            raise error("E0537", "only names can be called", call.function.span)
        name = call.function.id
        if name in self.modules:
            return self._module(self.modules[name], call, [], env)
        if name in PRIMITIVES:
            return self._primitive(name, call, env)
        if name in BUILTINS and not call.kwargs:
            return builtin(name, [evaluate(a, env, self) for a in call.args], call)
        if name in DRAWS:
            raise error("E0505", f"`{name}` is drawn with `~`", call.span, help=f"let x ~ {name}(…)")
        raise error("E0538", f"there is no primitive, module or function `{name}`", call.function.span)

    def _primitive(self, name: str, call: tree.CallExpr, env: Env) -> Value:
        args = [evaluate(a, env, self) for a in call.args]
        kwargs = {k: evaluate(v, env, self) for k, v in call.kwargs}
        before = self.program
        with self._placed(call.span):
            bound = bind_primitive(name, args, kwargs, before, call)
        with self._placed(call.span):
            rewrite: Any = PRIMITIVES[name].function(before, *bound.args, **bound.kwargs)
        self.recorder.call(name, bound.code_args, bound.code_kwargs, before, rewrite.results)
        self.program = rewrite.program
        return rewrite.results

    def _module(self, module: tree.ModuleDef, call: tree.CallExpr, subject: list[Value], env: Env) -> Value:
        """Apply a module; one whose `when` is false changes nothing."""
        if module.name in self._stack:
            chain = " > ".join((*self._stack, module.name))
            raise error("E0539", f"module `{module.name}` reaches itself: {chain}", call.span, "modules cannot recurse")
        args = subject + [evaluate(a, env, self) for a in call.args]
        scope: Env = {"target": self.target, "root": ProgramRef()}
        if len(args) > len(module.params):
            raise error(
                "E0540", f"`{module.name}` takes {len(module.params)} arguments, {len(args)} are given", call.span
            )
        for parameter, value in zip(module.params, args, strict=False):
            scope[parameter.name] = value
        known = {p.name for p in module.params}
        for key, argument in call.kwargs:
            if key not in known or key in scope:
                raise error("E0540", f"`{module.name}` has no parameter `{key}` left to give", argument.span)
            scope[key] = evaluate(argument, env, self)
        for parameter in module.params:
            if parameter.name not in scope:
                if parameter.default is None:
                    note = Note("note", f"module {module.name}({', '.join(p.name for p in module.params)})")
                    raise error("E0541", f"`{module.name}` needs `{parameter.name}`", call.span, "", "", note)
                scope[parameter.name] = evaluate(parameter.default, scope, self)
        self._stack.append(module.name)
        try:
            if module.when is None or plain(evaluate(module.when, scope, self)) is True:
                self.run(module.body, scope)
        finally:
            self._stack.pop()
        return None


def _decision(value: Value, at: tree.Expr) -> Decision:
    match value:
        case bool() | int() | float() | str():
            return value
        case tuple():
            factors = [v for v in value if isinstance(v, int) and not isinstance(v, bool)]
            if len(factors) == len(value):
                return tuple(factors)
        case _:
            pass
    raise error("E0504", f"a pin is a value or a list of factors; this is {kind_of(value)}", at.span)


def _shown(decision: Decision) -> str:
    return str(list(decision)) if isinstance(decision, tuple) else str(decision)
