"""Calls and queries in an expansion: primitives, modules, functions, methods, attributes."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.check.kinds import ModuleOf, misfit, of_module, of_type, solved, solved_parameter
from tensorc_dsl.interp import problems
from tensorc_dsl.interp.arguments import (
    Bound,
    Builtins,
    argument_spans,
    bind,
    bind_primitive,
    convert,
    describe,
    elements,
    method,
    of_known_rank,
    splat,
    unfit,
)
from tensorc_dsl.interp.evaluate import (
    MAX_LOOPS,
    REFUSAL_STEPS,
    Budget,
    Drawn,
    Env,
    ModuleRef,
    OpenFactor,
    ProgramRef,
    Value,
    bare,
    draws_of,
    evaluate,
    kind_of,
    truth,
)
from tensorc_dsl.interp.problems import ARGUMENT_KIND, STEP_ARGUMENTS, fail
from tensorc_dsl.interp.record import Attempt, Recorder, false_conditions
from tensorc_dsl.interp.record import shown_attempts as value_shown
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.program import Block, Program, walk
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.nests import the_loop
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.primitives import ALL_STEPS
from tensorc_dsl.schedule.queries import QUERIES
from tensorc_dsl.schedule.query import Query
from tensorc_dsl.schedule.step import (
    BlockRef,
    BufferRef,
    IntrinsicRef,
    LoopRef,
    NodeRef,
    Refusal,
    ScheduleRefusal,
)
from tensorc_dsl.schedule.trace.distribution import DrawKind, Offer
from tensorc_dsl.schedule.trace.draws import DRAWS
from tensorc_dsl.schedule.trace.trace import shown
from tensorc_dsl.syntax import tree

# A step as it was written: finds the argument that a refusal is about, and the draws in the arguments.


@frozen
class Step:
    """A call of a primitive, a query or a draw with the values of its arguments."""

    call: tree.CallExpr
    signature: inspect.Signature
    args: Sequence[Value]
    kwargs: Mapping[str, Value]

    def culprit(self, refusal: ScheduleRefusal) -> Span:
        """The place of the argument at fault; that of the call if the refusal is not about an argument."""
        at = refusal.refusal.at
        own = argument_spans(self.signature, self.call).get(at)
        name = refusal.facts.get(at)
        named = [span for ref, span in self._refs() if ref.name == name]
        if named and own not in named:
            return named[-1]
        return own or self.call.span

    def _refs(self) -> Iterator[tuple[LoopRef | BlockRef | BufferRef | NodeRef, Span]]:
        written = list(zip(self.args, self.call.args, strict=True))
        written += [(self.kwargs[key], a) for key, a in self.call.kwargs]
        while written:
            value, at = written.pop(0)
            match bare(value):
                case LoopRef() | BlockRef() | BufferRef() | NodeRef() as ref:
                    yield ref, at.span
                case tuple() as items:
                    # Elements of a list literal have places of their own.
                    places = at.items if isinstance(at, tree.ListExpr) else (at,) * len(items)
                    written[:0] = zip(items, places, strict=True)
                case _:
                    pass

    def in_its_words(self, repair: str) -> str:
        """A repair whose calls name what this call names as it does, so that they can be copied: loops have other names in a
        program than in the text of a schedule."""
        if not (calls := len(_CALLS.findall(repair))):
            return repair
        found = list(self._refs())
        places = Counter(span for _, span in found)
        written = {ref.name: span.text for ref, span in found if places[span] == 1 and span != self.call.span}
        if calls > 1:  # after the first one, an expression may stand for another loop
            written = {name: text for name, text in written.items() if text.isidentifier()}
        if all(name == text for name, text in written.items()):
            return repair
        names = re.compile(rf"\b({'|'.join(map(re.escape, written))})\b")
        return _CALLS.sub(lambda call: names.sub(lambda name: written[name[0]], call[0]), repair)

    def draws(self) -> frozenset[str]:
        """The names of the draws that the arguments depend on."""
        return draws_of(*self.args, *self.kwargs.values())


_CALLS = re.compile(r"`\w+\([^`]*`")
"""The calls in a repair."""


# Steps that stand for several: a trace has those that they are made of.


Do = Callable[[str, list[Value], dict[str, Value]], Value]
"""Applies a primitive to arguments; what it gives."""

Compound = Callable[[list[Value], dict[str, Value], Span, Do], Value]

_USAGE = "`tile(i, j, [4, 16])`: a size for each loop, or the factors of a `split`"


_SPLIT = re.compile(r"`split\([^`]*partial=true\)`")


def _tile(args: list[Value], kwargs: dict[str, Value], at: Span, do: Do) -> Value:
    """Splits each loop and puts all outer parts around all inner ones."""
    *given, last = args or [None]
    loops, sizes = [x for a in given for x in splat(a)], elements(last)
    for l in loops:
        if not isinstance(bare(l), LoopRef):
            raise fail(ARGUMENT_KIND, at, name="tile", parameter="loops", wanted="loops", found=kind_of(l))
    if sizes is None:
        raise fail(ARGUMENT_KIND, at, name="tile", parameter="sizes", wanted="a list", found=kind_of(last))
    if not loops or len(sizes) != len(loops):
        reason = f"there are {len(loops)} loops and {len(sizes)} sizes"
        raise fail(STEP_ARGUMENTS, at, name="tile", reason=reason, usage=_USAGE)
    factors = [(OpenFactor(), size) if elements(size) is None else size for size in sizes]
    counts = [len(elements(f) or ()) for f in factors]
    if len({*counts}) > 1:
        reason = f"the loops are cut into {', '.join(map(str, counts))} parts, and not all into as many"
        raise fail(STEP_ARGUMENTS, at, name="tile", reason=reason, usage=_USAGE)
    try:
        parts = [elements(do("split", [l, f], kwargs)) or () for l, f in zip(loops, factors, strict=True)]
    except ScheduleRefusal as e:
        whole = " ".join(at.text.split())
        if not kwargs and whole.endswith(")"):
            e.help = _SPLIT.sub(lambda _: f"`{whole[:-1]}, partial=true)`", e.help)
        raise
    order = tuple(part for level in zip(*parts, strict=True) for part in level)
    if len(loops) > 1:
        do("reorder", [order], {})
    return order


COMPOUNDS: Mapping[str, Compound] = {"tile": _tile}
"""What each does; `check.vocabulary` has their signatures."""


PARAM_TYPES: Mapping[str, type] = {
    "Block": BlockRef, "Loop": LoopRef, "Buffer": BufferRef, "Program": ProgramRef, "Target": Target, "int": int,
    "float": float, "bool": bool, "str": str, "list": list, "Instruction": IntrinsicRef, "Module": ModuleRef,
    "Node": NodeRef,
}  # fmt: skip
"""The Python types for the types of a module's parameters."""


@by_identity(1024)
def _annotation(p: tree.ParamType | None) -> object:
    """The Python type for a type, with those of the elements of lists; None where any value will do."""
    match p:
        case tree.ParamType(name="list", parts=(part,)):
            inner: Any = _annotation(part)
            return list if inner is None else tuple[inner, ...]
        case tree.ParamType(name=name):
            return PARAM_TYPES.get(name)
        case None:
            return None


class _At:
    """The context manager of `Calls.at`: a class, since every step enters one, and a generator takes thrice as long."""

    __slots__ = ("_calls", "_span", "_step")

    def __init__(self, calls: Calls, span: Span, step: Step | None) -> None:
        self._calls, self._span, self._step = calls, span, step

    def __enter__(self) -> None: ...

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, ScheduleRefusal):
            raise self._calls.placed(error, self._span, self._step) from None
        if isinstance(error, TschedError):
            raise TschedError(*(d if d.span else replace(d, span=self._span) for d in error.diagnostics)) from None


class Calls(ABC):
    """The calls of an expansion. `program` is the current program; only primitives change it."""

    def __init__(self, program: Program, target: Target, modules: Mapping[str, tree.ModuleDef]) -> None:
        self.program = program
        self.target = target
        self.modules = modules
        self.budget = Budget()
        self.recorder = Recorder()
        self.recorder.start(program)
        named = ((str(i.name), IntrinsicRef(str(i.name))) for i in program.intrinsics)
        self._given: Env = dict((("target", target), ("root", ProgramRef()), *named))
        self._yields: list[list[Value]] = []
        self._builtins = Builtins(self.budget, self._yields)
        self._stack: list[tuple[str, tuple[tuple[str, ModuleRef], ...]]] = []
        """The modules that are under way: the name of each, and the modules that it was given."""
        self._steps: list[int] = []
        """The number of steps of each module on the stack, without those of modules that it called."""
        self.attempts: list[Attempt] = []
        """Each module that was tried, in order, with its reasons if `explaining`."""
        self.applied: dict[str, None] = {}
        """The names of the modules that were applied, each once, in order."""
        self.explaining = False
        self.asked: list[Attempt] = []
        """The attempts of the modules on the stack."""
        self._known = program, _answers(program)
        """The answers about the program that was asked about last."""

    @abstractmethod
    def run(self, body: tuple[tree.Stmt, ...], env: Env) -> None: ...

    @abstractmethod
    def for_list(self, loop: tree.ForList, env: Env) -> Value: ...

    def given(self) -> Env:
        """The names that every body has."""
        return dict(self._given)

    def placed(self, refusal: ScheduleRefusal, span: Span, step: Step | None = None) -> ScheduleRefusal:
        """The refusal with its place in the text and the steps before it filled in."""
        if refusal.span is None:
            refusal.span = span if step is None else step.culprit(refusal)
            refusal.help = refusal.help if step is None else step.in_its_words(refusal.help)
            refusal.steps = tuple(self.recorder.lines)
            refusal.origin = self._origin(frozenset() if step is None else step.draws())
        return refusal

    def _origin(self, names: frozenset[str]) -> str:
        """The position of the step, as text: `step 4 of std.cpu.tiling, where `factors` drew [4, 8]`."""
        drawn = [f"`{d.name}` drew {shown(d.decision)}" for d in self.recorder.draws if d.name in names]
        here = [f"step {self._steps[-1] + 1} of {self._stack[-1][0]}"] if self._stack else []
        return ", ".join([*here, f"{'where ' * bool(here)}{' and '.join(drawn)}"] if drawn else here)

    def at(self, span: Span, step: Step | None = None) -> _At:
        """Context manager: a refusal or finding raised inside gets the place `at`."""
        return _At(self, span, step)

    # --- queries -----------------------------------------------------------------------------------------------------

    def _query(self, value: Value, name: str) -> Query | None:
        subject = Program if isinstance(value, ProgramRef) else type(value)
        return QUERIES.get(subject, {}).get(name)

    def _answer(self, query: Query, value: Value, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Value:
        if query.subject is Target:
            result: Value = query.function(value, *args, **kwargs)
        elif query.subject is not Program:
            machine = (self.target,) if query.of_target else ()
            result = query.function(self.program, value, *machine, *args, **kwargs)
        else:
            found = query.function(self.program, *args, **kwargs)
            result = ProgramRef() if isinstance(found, Program) else found
        return _plain_names(result)

    def attribute(self, base: Value, at: tree.Attribute) -> Value:
        """`b.name`: a query on the current program. Raises ScheduleRefusal if the block or loop no longer exists."""
        value = bare(base)
        known, key = _NONE_KNOWN, None
        if isinstance(value, _OF_PROGRAM):
            if self._known[0] is not self.program:
                self._known = self.program, _answers(self.program)
            known, key = self._known[1], (type(value), value.name, at.name)
            if found := known.get(key):
                return found[0]
        query = self._query(value, at.name)
        if query is None or query.is_method:
            raise fail(problems.NO_ATTRIBUTE, at.span, kind=kind_of(value), name=at.name)
        try:
            answer = self._answer(query, value, (), {})
            if key is not None and not query.of_target:
                known[key] = (answer,)
            return answer
        except (ScheduleRefusal, TschedError) as e:
            with self.at(at.span):  # entered only here, since most queries succeed
                raise e

    def _method(self, function: tree.Attribute, call: tree.CallExpr, env: Env) -> Value:
        base = evaluate(function.base, env, self)
        args, kwargs = self._arguments(call, env)
        if function.name in _ASKING and isinstance(loop := bare(base), LoopRef):
            with self.at(call.span):
                the_loop(self.program, loop)
                return self._accepts(_ASKING[function.name], [base, *args], kwargs, call)
        query = self._query(bare(base), function.name)
        if query is None or not query.is_method:
            return method(base, function.name, args, kwargs, call, self.budget)
        with self.at(call.span, Step(call, query.signature, args, kwargs)):
            if query.step:
                (_, *args), kwargs = of_known_rank([base, *args], kwargs, ALL_STEPS[query.step].signature, self.program)
            found = bind(function.name, query.signature, args, kwargs, self.program, call, problems.STEP_ARGUMENTS)
            return self._answer(query, bare(base), found.args, found.kwargs)

    # --- calls -------------------------------------------------------------------------------------------------------

    def _arguments(self, call: tree.CallExpr, env: Env) -> tuple[list[Value], dict[str, Value]]:
        args = [evaluate(a, env, self) for a in call.args]
        kwargs: dict[str, Value] = {}
        for key, a in call.kwargs:
            if key in kwargs:
                raise fail(problems.TWICE, a.span, name=call.function.span.text, parameter=key)
            kwargs[key] = evaluate(a, env, self)
        for value in (*args, *kwargs.values()):
            self.budget.use(value, call.span)
        return args, kwargs

    def named(self, e: tree.Name) -> Value:
        """The value of a name that the body does not bind: that of a module."""
        if e.id not in self.modules:
            raise fail(problems.UNKNOWN_NAME, e.span, name=e.id)
        return ModuleRef(e.id)

    def call(self, call: tree.CallExpr, env: Env, is_statement: bool = False) -> Value:
        """The value of a call, after its effect on the program.

        A call of a module that lacks arguments, and is no statement, is the module with the options that it has.
        """
        if isinstance(call.function, tree.Attribute):
            return self._method(call.function, call, env)
        if not isinstance(call.function, tree.Name):
            raise fail(problems.NOT_CALLABLE, call.function.span)
        name = call.function.id
        if name in ALL_STEPS:
            return self._primitive(name, call, env)
        if name in self._builtins.functions and not call.kwargs:
            args = [evaluate(a, env, self) for a in call.args]
            try:
                return self._builtins.call(name, args, self.program, call)
            except (ScheduleRefusal, TschedError) as e:
                with self.at(call.span):  # entered only here, as above
                    raise e
        if name in self.modules:
            return self._apply(ModuleRef(name), call, env, is_statement)
        if (compound := COMPOUNDS.get(name.removeprefix("std."))) is not None:
            return compound(*self._arguments(call, env), call.span, partial(self._part, call))
        match bare(env[name]) if name in env else None:
            case None:
                pass
            case ModuleRef() as module:
                return self._apply(module, call, env, is_statement)
            case value:
                raise fail(problems.NOT_A_MODULE, call.function.span, name=name, kind=kind_of(value))
        if name in DRAWS:
            raise fail(problems.DRAWN, call.span, name=name)
        raise fail(problems.UNKNOWN_CALL, call.function.span, name=name)

    def _primitive(self, name: str, call: tree.CallExpr, env: Env) -> Value:
        args, kwargs = self._arguments(call, env)
        return self._step(name, args, kwargs, call)

    def _part(self, call: tree.CallExpr, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Apply a primitive that a call stands for."""
        return self._step(name, args, kwargs, _standing_for(call, args, kwargs))

    def _accepts(self, compound: Compound, args: list[Value], kwargs: dict[str, Value], call: tree.CallExpr) -> bool:
        """Whether all steps of a compound would be accepted, one after another."""
        program = self.program

        def do(name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
            nonlocal program
            bound = bind_primitive(name, args, kwargs, program, _standing_for(call, args, kwargs))
            rewrite: Any = apply(program, name, *bound.args, **bound.kwargs)
            program = rewrite.program
            return rewrite.results

        try:
            compound(args, kwargs, call.span, do)
        except ScheduleRefusal:
            return False
        return True

    def _step(self, name: str, args: list[Value], kwargs: dict[str, Value], call: tree.CallExpr) -> Value:
        """Apply a primitive, as in the recorded call."""
        before = self.program
        with self.at(call.span, Step(call, ALL_STEPS[name].signature, args, kwargs)):
            args, kwargs = of_known_rank(args, kwargs, ALL_STEPS[name].signature, before)
            bound = bind_primitive(name, args, kwargs, before, call)
            rewrite: Any = apply(before, name, *bound.args, **bound.kwargs)
        text = self._code(name, bound, call)
        self.recorder.step(text, rewrite.results, call.span)
        self.recorder.forget_loops(rewrite.program)
        if self._steps:
            self._steps[-1] += 1
        self.program = rewrite.program
        for around, s in walk(self.program.body):
            if isinstance(s, Block) and len(around) > MAX_LOOPS:
                raise fail(problems.DEEP_LOOPS, call.span, block=s.name, count=len(around), most=MAX_LOOPS)
        return rewrite.results

    def _code(self, name: str, bound: Bound, call: tree.CallExpr) -> str:
        return self.recorder.call_code(name, bound.code_args, bound.code_kwargs, self.program, call.span)

    def offer(self, kind: DrawKind, call: tree.CallExpr, env: Env) -> tuple[Offer, str]:
        """The offer of a draw, and its call as the trace has it."""
        args, kwargs = self._arguments(call, env)
        with self.at(call.span, Step(call, kind.signature, args, kwargs)):
            bound = bind(kind.name, kind.signature, args, kwargs, self.program, call, problems.DRAW_ARGUMENTS)
            offer = kind.function(self.program, *bound.args, **bound.kwargs)
        return offer, self._code(kind.name, bound, call)

    # --- modules -----------------------------------------------------------------------------------------------------

    def _apply(self, ref: ModuleRef, call: tree.CallExpr, env: Env, is_statement: bool) -> Value:
        """Apply a module that a name stands for, or give it the options of the call, if it lacks others."""
        module, given = self.modules[ref.name], {name for name, _ in ref.options} | {key for key, _ in call.kwargs}
        lacks = any(p.default is None and p.name not in given for p in module.params)
        if is_statement or call.args or not call.kwargs or not lacks:
            return self.module(module, call, [], env, ref.options)
        names = [p.name for p in module.params if p.name not in dict(ref.options)]
        options = dict(ref.options)
        for key, argument in call.kwargs:
            if key not in names or key in options:
                reason = f"has no parameter `{key}` left to give"
                raise fail(
                    problems.MODULE_ARGUMENTS, argument.span, name=module.name, reason=reason, usage=_usage(module)
                )
            options[key] = evaluate(argument, env, self)
        made = ModuleRef(ref.name, tuple(options.items()))
        self.budget.use(made, call.span)
        return made

    def module(
        self,
        module: tree.ModuleDef,
        call: tree.CallExpr,
        subject: list[Value],
        env: Env,
        options: Sequence[tuple[str, Value]] = (),
    ) -> None:
        """Apply a module; if its `when` is false, nothing changes.

        `subject` are its first arguments, before those of the call; `options` were given by name where it was passed on.
        """
        scope = self._scope(module, call, subject, env, options)
        # A module that is applied by modules that were passed to it is no recursion: each time, it has others.
        given = [(p.name, bare(scope[p.name])) for p in module.params]
        passed = tuple([(name, v) for name, v in given if isinstance(v, ModuleRef)])
        if (module.name, passed) in self._stack:
            chain = " > ".join((*(name for name, _ in self._stack), module.name))
            raise fail(problems.RECURSION, call.span, name=module.name, chain=chain)
        self._stack.append((module.name, passed))
        self._steps.append(0)
        on = next((value_shown(v) for _, v in given if not isinstance(v, ModuleRef)), "")
        depth = self._inside()
        told = module.name if depth else call.span.text
        self.asked.append(Attempt(told, on, depth, owner=module.name.rpartition(".")[2]))
        self.attempts.append(self.asked[-1])
        if module.when is None or truth(evaluate(module.when, scope, self), module.when):
            self.applied.setdefault(str(module.name))
            self.run(module.body, scope)
        elif self.explaining:
            self.asked[-1].reasons = false_conditions(module.when, lambda e: evaluate(e, scope, self))
        self.asked.pop()
        self._stack.pop()
        self._steps.pop()

    def _inside(self) -> int:
        """The number of modules and parts of `try` that are under way; a schedule is none."""
        around = self.asked[-1:]
        return around[0].depth + 1 if around and (around[0].owner or around[0].line) else 0

    def attempt(self, act: Callable[[], None], passing: Sequence[Refusal[...]]) -> ScheduleRefusal | None:
        """Do it. If one of its steps is refused, all that it did is undone, and the reason is returned.

        Refusals in `passing` are raised, and so is every other error. The first of the attempts that it adds stands for all.
        Its draws stay decided, under their names: with the same decisions, the same steps are refused.
        """
        program, mark, applied, depth = self.program, self.recorder.mark(), dict(self.applied), self.budget.depth
        asked, stack, steps, tried = len(self.asked), len(self._stack), list(self._steps), len(self.attempts)
        yields = [len(y) for y in self._yields]
        try:
            act()
        except ScheduleRefusal as refusal:
            if refusal.refusal in passing or len(self.attempts) == tried:
                raise
            self.program, self.applied, self.budget.depth = program, applied, depth
            self.recorder.back_to(mark)
            self.budget.steps += REFUSAL_STEPS
            del self.asked[asked:], self._stack[stack:], self._yields[len(yields) :]
            self._steps[:] = steps
            for values, count in zip(self._yields, yields, strict=True):
                del values[count:]
            whole, *inside = self.attempts[tried:]
            whole.draws += [d for a in inside for d in a.draws]
            whole.refusal = str(refusal)
            del self.attempts[tried + 1 :]
            return refusal
        return None

    def _scope(
        self,
        module: tree.ModuleDef,
        call: tree.CallExpr,
        subject: list[Value],
        env: Env,
        options: Sequence[tuple[str, Value]] = (),
    ) -> Env:
        """The names in a module's body: its parameters, each of its declared type."""
        given = dict(options)
        parameters = [p for p in module.params if p.name not in given] if given else module.params
        args = [*subject, *[evaluate(a, env, self) for a in call.args]]
        if len(args) > len(parameters):
            reason = f"takes {len(parameters)} arguments; given: {len(args)}"
            raise fail(problems.MODULE_ARGUMENTS, call.span, name=module.name, reason=reason, usage=_usage(module))
        for p, a in zip(parameters, args, strict=False):
            given[p.name] = a
        spans = {p.name: a.span for p, a in zip(parameters[len(subject) :], call.args, strict=False)}
        for key, argument in call.kwargs:
            if all(p.name != key for p in parameters) or key in given:
                reason = f"has no parameter `{key}` left to give"
                raise fail(
                    problems.MODULE_ARGUMENTS, argument.span, name=module.name, reason=reason, usage=_usage(module)
                )
            given[key] = evaluate(argument, env, self)
            spans[key] = argument.span
        scope = self.given()
        for p in module.params:
            if p.name in given:
                value, span = given[p.name], spans.get(p.name, call.span)
            elif p.default is not None:
                value, span = evaluate(p.default, scope, self), p.default.span
            else:
                raise fail(problems.MISSING, call.span, name=module.name, parameter=p.name, usage=_usage(module))
            scope[p.name] = self._typed(module, p, value, span)
        return scope

    def _typed(self, module: tree.ModuleDef, p: tree.Param, value: Value, span: Span) -> Value:
        """The value converted to the parameter's type; a block stands for the buffer that it writes, and a name for an
        instruction.
        """
        wanted = _annotation(p.type)
        if wanted is None or (type(value) in (wanted,) and wanted is not ModuleRef):
            return value
        try:
            converted = convert(value, wanted, self.program)
        except (ScheduleRefusal, TschedError) as e:
            with self.at(span):  # entered only here, as above
                raise e
        if unfit(converted):
            raise fail(
                problems.ARGUMENT_KIND,
                span,
                name=module.name,
                wanted=describe(wanted),
                parameter=p.name,
                found=kind_of(value),
            )
        if isinstance(converted, ModuleRef):
            self._require_fit(module, p, converted, span)
        if isinstance(converted, IntrinsicRef) and isinstance(value, Drawn):
            return replace(value, value=converted)
        return converted if isinstance(converted, BlockRef | BufferRef | IntrinsicRef) else value

    def _require_fit(self, module: tree.ModuleDef, p: tree.Param, ref: ModuleRef, span: Span) -> None:
        """Raises TschedError if a module that is passed cannot be applied as its parameter declares."""
        given, passed = {name for name, _ in ref.options}, of_module(self.modules[ref.name])
        left = tuple(solved_parameter(q, {}) for q in passed.params if q.name not in given)
        wanted = solved(of_type(p.type), {})  # what letters stand for, the checker compares
        if isinstance(wanted, ModuleOf) and (reason := misfit(ModuleOf(left), wanted)):
            raise fail(problems.MISFIT, span, module=ref.name, name=module.name, parameter=p.name, reason=reason)


def _usage(module: tree.ModuleDef) -> str:
    return f"module {module.name}({', '.join(p.name for p in module.params)})"


def _standing_for(call: tree.CallExpr, args: list[Value], kwargs: dict[str, Value]) -> tree.CallExpr:
    """The call of a primitive that a call stands for: what is wrong with it is wrong with that call."""
    written = tuple(tree.Wildcard(call.span) for _ in args)
    return replace(call, args=written, kwargs=call.kwargs if kwargs else ())


_ASKING = {f"can_{name}": compound for name, compound in COMPOUNDS.items()}

_OF_PROGRAM = (BlockRef, LoopRef, BufferRef, NodeRef)


_Answers = dict[tuple[type, str, str], tuple[Value]]
"""Answers by the kind and the name of what was asked about, and the name of the query."""

_NONE_KNOWN: _Answers = {}


@by_identity(64)
def _answers(_program: Program) -> _Answers:
    """The answers of attributes that depend on the program alone: modules ask again what the one before them asked."""
    return {}


def _plain_names(answer: Value) -> Value:
    """The answer of a query with names as plain strings, without places in a text."""
    match answer:
        case str():
            return str(answer)
        case tuple():
            return tuple(_plain_names(a) for a in answer)
        case _:
            return answer
