"""Checks expressions of the schedule layer: names, calls, kinds.

Kinds are inferred as far as possible; an unknown kind is never an error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from tensorc_dsl.base.diagnostic import Diagnostic, Note, help_note
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.base.source import Span
from tensorc_dsl.check import problems
from tensorc_dsl.check import vocabulary as v
from tensorc_dsl.check.kinds import (
    ANY,
    BOOL,
    FLOAT,
    INT,
    LOOP,
    NOBODY,
    NOTHING,
    OPEN,
    STR,
    Base,
    Kind,
    Listener,
    ListOf,
    MapOf,
    ModuleOf,
    Parameter,
    Signature,
    arguments,
    element,
    fits,
    join,
    join_all,
    misfit,
    of_module,
    show,
    show_all,
    solve,
    solved_parameter,
    usage,
)
from tensorc_dsl.check.problems import (
    GIVEN_TWICE,
    MISFIT,
    MISSING,
    NO_PARAMETER,
    TOO_MANY,
    WRONG_KIND,
    WRONG_KIND_UNNAMED,
)
from tensorc_dsl.schedule.patterns import findings
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax import tree as t
from tensorc_dsl.syntax.names import listed, near

# Checks arguments against signatures, with one rule for primitives, modules, draws, functions, methods and queries.


@frozen
class Arguments:
    """The kinds of a call's arguments, in order; keyword arguments by their names."""

    args: list[Kind]
    kwargs: list[Kind]


def solved(call: tree.CallExpr, s: Signature, kinds: Arguments, given: int = 0) -> Signature:
    """The signature as this call has it: the variables of its kinds are what the arguments are.

    What a module is applied to says more than the module does, which may take anything.
    """
    by_name = {p.name: p for p in s.params}
    pairs = [*zip(kinds.args, s.positional[given:], strict=False)]
    pairs += [(kind, by_name[key]) for (key, _), kind in zip(call.kwargs, kinds.kwargs, strict=True) if key in by_name]
    known: dict[str, Kind] = {}
    for kind, p in sorted(pairs, key=lambda pair: isinstance(pair[0], ModuleOf)):
        for wanted in p.wanted:
            solve(kind, wanted, known)
    return replace(s, params=tuple(solved_parameter(p, known) for p in s.params))


def argument_problems(
    call: tree.CallExpr, name: str, s: Signature, kinds: Arguments, given: int = 0, whole: bool = True
) -> Iterator[Diagnostic]:
    """The findings about the arguments; the first `given` parameters have values that are not in the call.

    Others may lack values if it is not the `whole` of them.
    """
    own = s.positional[given:]
    for a, kind, parameter in zip(call.args, kinds.args, own, strict=False):
        yield from kind_problems(a, kind, parameter, name, s)
    rest = call.args[len(own) :]
    if rest and s.rest is None:
        wanted = arguments(len(own))
        wanted = f"{wanted} without a name" if len(s.positional) < len(s.params) else wanted
        shape = usage(name, s)
        if [p.wanted for p in own] == [(LOOP,)] and kinds.args[1:] == [INT] and isinstance(call.args[0], tree.Name):
            loop = call.args[0].id
            shape = f"split it first: `let [outer, inner] = split({loop}, [_, {rest[0].span.text}])`, `{name}(inner)`"
        yield TOO_MANY(rest[0].span, name=name, wanted=wanted, count=len(call.args), usage=shape)
    elif s.rest is not None:
        for a, kind in zip(rest, kinds.args[len(own) :], strict=True):
            yield from kind_problems(a, kind, s.rest, name, s, spread=True)
    have = {p.name for p in s.positional[: given + len(call.args)]}
    known = {p.name: p for p in s.params if p.named or s.keywords}
    for (key, value), kind in zip(call.kwargs, kinds.kwargs, strict=True):
        if key in have:
            yield GIVEN_TWICE(key.span, name=name, parameter=key, usage=usage(name, s))
        elif key not in known:
            free = [p.name for p in (*own, *s.params) if p.name in known and p.name not in have]
            yield NO_PARAMETER(key.span, notes=near(key, free, "leave it out"), name=name, parameter=key)
        else:
            yield from kind_problems(value, kind, known[key], name, s)
        have.add(key)
    for p in s.params[given:]:
        if whole and p.required and p.name not in have:
            yield MISSING(call.span, name=name, parameter=p.title, usage=usage(name, s))
            return


def kind_problems(
    at: tree.Expr, kind: Kind, p: Parameter, name: str, s: Signature, spread: bool = False
) -> Iterator[Diagnostic]:
    """The finding for an argument of a kind that the parameter does not accept; `spread` accepts lists of the kind."""
    if p.pattern is not None and isinstance(at, tree.String):
        yield from findings(at, p.pattern)
    inner = kind
    while spread and isinstance(inner, ListOf) and not fits(inner, p.wanted):
        inner = inner.element
    if isinstance(inner, ModuleOf) and len(p.wanted) == 1 and isinstance(p.wanted[0], ModuleOf):
        if reason := misfit(inner, p.wanted[0]):
            takes = " and ".join(show_all(q.wanted) for q in p.wanted[0].params) or "nothing"
            repair = f"pass a module that takes {takes}"
            if left := [q.name for q in inner.params[len(p.wanted[0].params) :] if q.required]:
                text = at.span.text
                begun = f"{text[:-1]}, " if isinstance(at, tree.CallExpr) else f"{text}("
                repair += f", or give the rest by name here: `{begun}{', '.join(f'{n}=…' for n in left)})`"
            yield MISFIT(
                at.span, module=at.span.text, name=name, parameter=p.name, takes=takes, reason=reason, repair=repair
            )
    elif not fits(inner, p.wanted):
        wanted, found = show_all(p.wanted), show(kind)
        shape = usage(name, s)
        if kind == NOTHING and isinstance(at, tree.CallExpr) and any(isinstance(w, ModuleOf) for w in p.wanted):
            shape = f"this applies the module: pass it as `{at.function.span.text}`, with options by name if it has any"
        if p.name == "factors" and kind == INT:
            shape = f"write a factor for each loop, `_` for the one that follows from the others: `[_, {at.span.text}]`"
        if p.is_unnamed:
            yield WRONG_KIND_UNNAMED(at.span, name=name, usage=shape, wanted=wanted, found=found)
        else:
            yield WRONG_KIND(at.span, name=name, usage=shape, wanted=wanted, parameter=p.name, found=found)


# What this language writes for names of other schedule languages, TVM's, Halide's, Triton's, and of its version 0.1.0.


_AXIS = 'an iteration of a loop is one block or thread of a GPU by `bind(loop, "block.x")`, `bind(loop, "thread.x")`'
_ROOT = "a stage stays in a nest of its own unless `compute_at` or `compute_inline` moves it"
_INSIDE = "`compute_at(block, loop)` moves a stage into the loop that reads it"

_STEPS_NOW = {
    "can_inline": "can_compute_inline", "can_reverse_inline": "can_reverse_compute_inline",
    "can_roll": "can_rolling_buffer", "can_leave": "can_reorder",
}  # fmt: skip

_WRITTEN = {
    **dict.fromkeys(("length", "size"), "of a list it is `len(…)`, of a loop `l.extent`, of a buffer `x.shape`"),
    "get_loops": "the loops of a block are `C.loops`",
    **dict.fromkeys(("get_block", "get_sblock"), "blocks are in scope by their names; `C` is one"),
    "find": "`find_loop(pattern)` and `find_block(pattern)` give the first one, `find_loops` and `find_blocks` all",
    "get_child_blocks": "the blocks in a loop are `l.blocks`",
    "get_producers": "the producers of a block are `b.producers`",
    "get_consumers": "the consumers of a block are `b.consumers`",
    "get_output_blocks": "the last blocks of a program are `p.outputs`",
    "reorder_block_iter_var": "the step is `reorder_block_iters`",
    "blockize": "`tensorize` matches a nest of loops as it is, so no step comes before it",
    **dict.fromkeys(("program_id", "blockIdx", "threadIdx", "gpu_blocks", "gpu_threads", "gpu_lanes"), _AXIS),
    **dict.fromkeys(("compute_root", "store_root"), _ROOT),
    **dict.fromkeys(("compute_with", "store_at"), _INSIDE),
    "gpu_tile": "`tile` makes the loops, and `bind` gives them to blocks and threads",
    "bound": "extents are those of the task's sizes, and need no step",
    **{old: f"it is `{new}` now, as the step is" for old, new in _STEPS_NOW.items()},
    "can_compute_once_at": "it is `is_computed_once_at` now: it asks for more than that `compute_at` is accepted",
    "estimate": "sizes are those of the task: `task small = f(N=64)`",
}


def elsewhere(name: str) -> tuple[Note, ...]:
    """The repair for a name of another language or version; none for other names."""
    return (help_note(_WRITTEN[name]),) if name in _WRITTEN else ()


@dataclass(slots=True)
class Binding:
    """A name in a body, with the warning that is given if it stays unused."""

    kind: Kind = ANY
    unused: Diagnostic | None = None
    span: Span | None = None
    """The place where it is bound; None for names that every body has."""
    twins: tuple[Binding, ...] = ()
    """The bindings of the same name in each branch that binds it."""
    partly: bool = False
    """Whether only some of the branches before bind it."""
    constant: bool = False
    """Whether it is a `const` of the file, which no other binding may hide."""

    @property
    def places(self) -> tuple[Span, ...]:
        """The places where it is bound; several if branches bind it."""
        if self.twins:
            return tuple(dict.fromkeys(place for twin in self.twins for place in twin.places))
        return () if self.span is None else (self.span,)

    def use(self) -> Kind:
        self.unused = None
        for twin in self.twins:
            twin.use()
        return self.kind


Scope = Mapping[str, Binding]

_NUMBER = (INT, FLOAT)


def _all_of(names: Collection[str], what: str) -> str:
    """What a value has, for the repair of a name that it does not have."""
    return f"there are {listed(sorted(names))}" if names else f"leave it out: it has no {what}"


class Expressions(ABC):
    """Checks expressions; `modules` can be called. Findings are added to `found`, and the listener is told of names."""

    def __init__(
        self, modules: Mapping[str, t.ModuleDef], listener: Listener = NOBODY, binds: frozenset[str] = frozenset()
    ) -> None:
        self.modules = modules
        self.binds = binds
        """The names that the item binds: as values, they never mean modules of these names."""
        self.listener = listener
        self.found: list[Diagnostic] = []

    @abstractmethod
    def for_list(self, e: t.ForList, scope: Scope) -> Kind:
        """Check a `for`. Returns the kind of its list."""

    def expr(self, e: t.Expr, scope: Scope) -> Kind:
        """Check an expression. Returns its kind."""
        match e:
            case t.Number(value=value):
                return INT if isinstance(value, int) else FLOAT
            case t.String():
                return STR
            case t.Bool():
                return BOOL
            case t.Wildcard():
                return OPEN
            case t.Name(id=name):
                return self._name(e, name, scope)
            case t.CallExpr():
                return self._call(e, scope)
            case t.Attribute(base=base, name=name):
                return self._attribute(e, name, self.expr(base, scope))
            case t.IndexExpr():
                return self._index(e, scope)
            case t.SliceExpr():
                return self._slice(e, scope)
            case t.ForList():
                return self.for_list(e, scope)
            case t.ListExpr(items=items):
                return ListOf(join_all([self.expr(i, scope) for i in items]))
            case t.MapExpr(items=items):
                keys = [self.expr(k, scope) for k, _ in items]
                for _, weight in items:
                    self.number(weight, scope)
                return MapOf(join_all(keys))
            case t.Conditional(cond=cond, then=then, other=other):
                self.condition(cond, scope)
                return join(self.expr(then, scope), self.expr(other, scope))
            case t.BinaryExpr(op=op, lhs=lhs, rhs=rhs):
                return self._binary(e, op, self.expr(lhs, scope), self.expr(rhs, scope))
            case t.Negate(operand=operand):
                return self._binary(e, "-", INT, self.expr(operand, scope))
            case t.CompareExpr():
                return self._compare(e, scope)
            case t.LogicExpr(lhs=lhs, rhs=rhs):
                self.condition(lhs, scope)
                self.condition(rhs, scope)
                return BOOL
            case t.NotExpr(operand=operand):
                self.condition(operand, scope)
                return BOOL
            case t.RangeExpr(low=low, high=high):
                kinds = self.expr(low, scope), self.expr(high, scope)
                if not all(fits(k, (INT,)) for k in kinds):
                    self._operands(e, "..", *kinds)
                return Base.RANGE
            case t.Lambda():
                return self._lambda(e, scope)
            case t.Reduce() | t.Scan() | t.TupleExpr():
                what = "a reduction" if isinstance(e, t.Reduce) else "a scan"
                self.found.append(problems.IN_COMPUTE_ONLY(e.span, what=what))
                return ANY
            case _:
                assert_never(e)

    def hides_constant(self, name: str, span: Span, scope: Scope) -> bool:
        """Whether the name, bound at a place, is that of a constant: that is an error."""
        hidden = name in scope and scope[name].constant
        if hidden:
            notes = tuple(problems.where("the constant", place) for place in scope[name].places)
            self.found.append(problems.CONSTANT_AGAIN(span, notes=notes, name=name))
        return hidden

    def condition(self, e: t.Expr, scope: Scope) -> None:
        """Check an expression that must be a condition."""
        kind = self.expr(e, scope)
        if not fits(kind, (BOOL,)):
            self.found.append(problems.NO_CONDITION(e.span, found=show(kind)))

    def number(self, e: t.Expr, scope: Scope) -> None:
        """Check an expression that must be a number, such as a weight."""
        kind = self.expr(e, scope)
        if not fits(kind, _NUMBER):
            self.found.append(problems.NO_WEIGHT(e.span, found=show(kind)))

    # --- names and parts ---------------------------------------------------------------------------------------------

    def _name(self, e: t.Name, name: str, scope: Scope) -> Kind:
        if name not in scope and name in self.modules and name not in self.binds:
            module = self.modules[name]
            kind = ModuleOf(tuple(solved_parameter(p, {}) for p in of_module(module).params))
            self.listener.named(e.span, name, (module.name.span,), kind)
            return kind
        if name not in scope:
            self.listener.unknown(e.span, scope)
            self.found.append(problems.UNKNOWN_NAME(e.span, notes=_instead(name, scope, self.modules), name=name))
            return ANY
        binding = scope[name]
        self.listener.named(e.span, name, binding.places, binding.kind)
        if binding.partly:
            notes = (problems.where("one place that binds it", binding.span),) if binding.span else ()
            self.found.append(problems.PARTLY_BOUND(e.span, notes=notes, name=name))
            binding.use()
            return ANY
        return binding.use()

    def _attribute(self, e: t.Attribute, name: str, kind: Kind) -> Kind:
        self.listener.part(e.name.span, kind)
        tables = v.ATTRIBUTES if kind == ANY else {kind: v.ATTRIBUTES.get(kind, {})}
        answers = [table[name] for table in tables.values() if name in table]
        if answers:
            self.listener.asked(e.name.span, name, answers[0].doc)
            return join_all([answer.kind for answer in answers])
        methods = v.methods_of(kind)
        if name in methods:
            shape = usage(f"….{name}", methods[name][0])
            self.found.append(problems.IS_METHOD(e.span, name=name, kind=show(kind), usage=shape))
            return ANY
        known = {n for table in tables.values() for n in table}
        notes = elsewhere(name) or _of_others(name) or near(name, known, _all_of(known, "attributes"))
        if kind == ANY:
            self.found.append(problems.UNKNOWN_ATTRIBUTE(e.span, notes, name=name))
        else:
            self.found.append(problems.NO_ATTRIBUTE(e.span, notes, kind=show(kind), name=name))
        return ANY

    def _index(self, e: t.IndexExpr, scope: Scope) -> Kind:
        before = len(self.found)
        kind = self.expr(e.base, scope)
        is_known = len(self.found) == before
        indices = [self.expr(i, scope) for i in e.indices]
        listed = isinstance(kind, ListOf) or kind in (STR, ANY)
        if not listed or len(indices) != 1 or not fits(indices[0], (INT,)):
            self.found += [problems.NO_INDEX(e.span, kind=show(kind))] if is_known else []
        return element(kind)

    def _slice(self, e: t.SliceExpr, scope: Scope) -> Kind:
        kind = self.expr(e.base, scope)
        for bound in (e.low, e.high):
            if bound is not None and not fits(found := self.expr(bound, scope), (INT,)):
                self.found.append(problems.NO_BOUND(bound.span, kind=show(found)))
        if isinstance(kind, ListOf) or kind in (STR, ANY):
            return kind
        self.found.append(problems.NO_INDEX(e.span, kind=show(kind)))
        return ANY

    def _lambda(self, e: t.Lambda, scope: Scope) -> Kind:
        names = [p for p in e.params if not isinstance(p, t.Rest)]
        inner = {**scope, **{p: Binding(INT, None, p.span) for p in names}}
        for n, p in enumerate(names):
            self.listener.named(p.span, p, (p.span,), INT)
            self.hides_constant(p, p.span, scope)
            if p in names[:n]:
                self.found.append(problems.SAME_NAMES(e.span, name=p))
        for r in e.results:
            if not isinstance(r, t.Rest):
                self.expr(r, inner)
        return Base.INDEX_MAP

    # --- operators ---------------------------------------------------------------------------------------------------

    def _operands(self, e: t.Expr, op: str, lhs: Kind, rhs: Kind) -> None:
        self.found.append(problems.OPERANDS(e.span, op=op, lhs=show(lhs), rhs=show(rhs)))

    def _binary(self, e: t.Expr, op: str, lhs: Kind, rhs: Kind) -> Kind:
        if op == "+":
            if isinstance(lhs, ListOf) and isinstance(rhs, ListOf):
                return join(lhs, rhs)
            for kind in (lhs, rhs):
                if (isinstance(kind, ListOf) or kind == STR) and {lhs, rhs} <= {kind, ANY}:
                    return kind
        if not (fits(lhs, _NUMBER) and fits(rhs, _NUMBER)):
            self._operands(e, op, lhs, rhs)
            return ANY
        return FLOAT if FLOAT in (lhs, rhs) else INT if (lhs, rhs) == (INT, INT) else ANY

    def _compare(self, e: t.CompareExpr, scope: Scope) -> Kind:
        kinds = [self.expr(o, scope) for o in e.operands]
        for op, a, b in zip(e.ops, kinds, kinds[1:], strict=False):
            numbers = fits(a, _NUMBER) and fits(b, _NUMBER)
            if op not in ("==", "!=") and not numbers and not (fits(a, (STR,)) and fits(b, (STR,))):
                self._operands(e, op, a, b)
        return BOOL

    # --- calls -------------------------------------------------------------------------------------------------------

    def arguments(self, call: t.CallExpr, scope: Scope) -> Arguments:
        """Check the arguments by themselves. Returns their kinds."""
        return Arguments([self.expr(a, scope) for a in call.args], [self.expr(a, scope) for _, a in call.kwargs])

    def _call(self, call: t.CallExpr, scope: Scope, is_statement: bool = False) -> Kind:
        """The kind of a call. One of a module that is no statement, and lacks arguments, makes a module of what it has."""
        if isinstance(call.function, t.Attribute):
            return self._method(call, call.function, scope)
        kinds = self.arguments(call, scope)
        if not isinstance(call.function, t.Name):
            self.found.append(problems.NOT_CALLABLE(call.function.span))
            return ANY
        name = call.function.id
        signature = v.STEPS.get(name) or v.FUNCTIONS.get(name)
        if signature is None and name not in self.modules:
            signature = v.COMPOUNDS.get(name)
        if signature is not None:
            self.listener.called(call, call.function.span, name, signature)
            self.found.extend(argument_problems(call, name, signature, kinds))
            return signature.result_for(kinds.args)
        if name in self.modules:
            self.listener.called(call, call.function.span, name, self.modules[name])
            return self._applied(call, name, solved(call, of_module(self.modules[name]), kinds), kinds, is_statement)
        if name in scope:
            return self._local_call(call, name, self._name(call.function, name, scope), kinds, is_statement)
        if name in v.DISTRIBUTIONS:
            self.found.append(problems.DRAWN(call.span, name=name))
        else:
            notes = elsewhere(name) or near(
                name,
                (*self.modules, *v.STEPS, *v.COMPOUNDS, *v.FUNCTIONS),
                f"a module of another file comes with `use FILE.{{{name}}}`",
            )
            self.found.append(problems.UNKNOWN_CALL(call.function.span, notes=notes, name=name))
        return ANY

    def _local_call(self, call: t.CallExpr, name: str, of: Kind, kinds: Arguments, is_statement: bool) -> Kind:
        """The kind of a call of what a name of the body stands for."""
        if isinstance(of, ModuleOf):
            places = {p.name: (p, p.place) for p in of.params}
            for key, _ in call.kwargs:
                p, place = places.get(key, (None, None))
                if p is not None and place is not None:
                    self.listener.named(key.span, key, (place,), p.wanted[0])
            return self._applied(call, name, Signature(of.params, None, of.keywords, NOTHING), kinds, is_statement)
        if of != ANY:
            self.found.append(problems.NOT_A_MODULE(call.function.span, name=name, kind=show(of)))
        return ANY

    def _applied(self, call: t.CallExpr, name: str, s: Signature, kinds: Arguments, is_statement: bool) -> Kind:
        given = {key for key, _ in call.kwargs}
        left = tuple(p for p in s.params if p.name not in given)
        is_whole = is_statement or bool(call.args) or not given or not any(p.required for p in left)
        self.found.extend(argument_problems(call, name, s, kinds, whole=is_whole))
        return NOTHING if is_whole else ModuleOf(left, s.keywords)

    def _method(self, call: t.CallExpr, function: t.Attribute, scope: Scope) -> Kind:
        kind = self.expr(function.base, scope)
        self.listener.part(function.name.span, kind)
        kinds = self.arguments(call, scope)
        known = v.methods_of(kind)
        name = function.name
        if name in known:
            # If the kind is unknown, the call must fit one of the kinds that have the method.
            self.listener.called(call, name.span, name, known[name][0])
            attempts = [list(argument_problems(call, name, s, kinds)) for s in known[name]]
            self.found.extend(min(attempts, key=len))
            return join_all([s.result_for(kinds.args) for s in known[name]])
        if name in v.ATTRIBUTES.get(kind, {}):
            self.found.append(problems.NOT_METHOD(function.span, name=name, kind=show(kind)))
            return v.ATTRIBUTES[kind][name].kind
        notes = _as_call(name) or elsewhere(name) or _of_others(name) or near(name, known, _all_of(known, "methods"))
        if kind == ANY:
            self.found.append(problems.UNKNOWN_METHOD(function.span, notes, name=name))
        else:
            self.found.append(problems.NO_METHOD(function.span, notes, kind=show(kind), name=name))
        return ANY


def _as_call(name: str) -> tuple[Note, ...]:
    """How what is called as a method is written, if it is a step, a function or a draw."""
    for table, what, begins in (
        (v.STEPS, "a step", ""),
        (v.COMPOUNDS, "a step", ""),
        (v.FUNCTIONS, "a function", ""),
        (v.DISTRIBUTIONS, "a draw", "let x ~ "),
    ):
        if name in table:
            written = usage(name, table[name]).strip("`")
            return (help_note(f"`{name}` is {what}, not a method: `{begins}{written}`"),)
    return ()


def _of_others(name: str) -> tuple[Note, ...]:
    """What has a query or method of that name, and how it is written; none for a name that nothing has."""
    asked = {kind: f"`….{name}`" for kind, table in v.ATTRIBUTES.items() if name in table}
    asked |= {kind: usage(f"….{name}", table[name]) for kind, table in v.METHODS.items() if name in table}
    owners = " or ".join(show(kind) for kind in asked)
    return (help_note(f"{owners} has it: {next(iter(asked.values()))}"),) if asked else ()


def _instead(name: str, scope: Scope, modules: Collection[str]) -> tuple[Note, ...]:
    """The names that may be meant. What a step makes is called after what it is made of, but not in scope by that name."""
    if name == "None":
        return (help_note("a factor that follows from the others is `_`: `split(i, [_, 32])`"),)
    if name in ("True", "False"):
        return (help_note(f"write `{name.lower()}`"),)
    if name in modules:
        return (help_note(f"this item binds `{name}` elsewhere, so it does not mean the module: rename one of them"),)
    if name in v.STEPS or name in v.COMPOUNDS:
        written = usage(name, v.STEPS.get(name) or v.COMPOUNDS[name]).strip("`")
        return (help_note(f"a step is passed on in a module that applies it: `module m(…) {{ {written} }}`"),)
    if name.rpartition("_")[0] not in scope:
        return near(name, (*scope, *modules), f"name it first: `let {name} = …`")
    return (
        help_note(f"what a step makes is in scope where it is bound: `let {name} = …`; its buffer is in `….writes`"),
    )
