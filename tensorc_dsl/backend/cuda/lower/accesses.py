"""What a phase reads and writes of memory that threads share, with the loops and conditions of each access."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from tensorc_dsl.affine.conditions import negate
from tensorc_dsl.affine.simplify import conjuncts
from tensorc_dsl.ir.expr import Expr, Load, Logic, Select, children
from tensorc_dsl.ir.program import Store
from tensorc_dsl.lower.flat import Alloc, Collective, Flat, If, Loop, Shuffle

Loops = tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class Access:
    """One element of a buffer for each thread and each iteration of the loops, where all conditions hold. `atomic` names the
    block whose updates do not meet each other, if this is one of them."""

    buffer: str
    write: bool
    index: Expr
    loops: Loops
    conds: tuple[Expr, ...]
    atomic: str = ""
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        own = hash((self.buffer, self.write, self.index, self.loops, self.conds, self.atomic))
        object.__setattr__(self, "_hash", own)  # which takes long, and sets of accesses ask for it again and again

    def __hash__(self) -> int:
        return self._hash


def accesses(body: tuple[Flat, ...], private: Collection[str]) -> tuple[Access, ...]:
    """The distinct accesses of one thread to buffers that are not private to it."""
    return tuple(dict.fromkeys(_stmts(body, frozenset(private), (), ())))


def _stmts(body: tuple[Flat, ...], private: frozenset[str], loops: Loops, conds: tuple[Expr, ...]) -> Iterator[Access]:
    for s in body:
        match s:
            case Store(buffer=buffer, indices=(index,), value=value, atomic=atomic):
                own = (
                    private | {buffer} if atomic else private
                )  # an update reads what it changes, and nothing else of it
                for e in (index, value):
                    yield from _read(e, own, loops, conds)
                if buffer not in private:
                    yield Access(buffer, True, index, loops, conds, atomic)
            case Loop(var=var, end=end, body=inside):
                yield from _stmts(inside, private, (*loops, (var, end)), conds)
            case If(cond=cond, body=inside):
                yield from _read(cond, private, loops, conds)
                yield from _stmts(inside, private, loops, (*conds, *conjuncts(cond)))
            case Collective(body=inside) | Shuffle(body=inside):
                yield from _stmts(inside, private, loops, conds)
            case Alloc(name=name, body=inside):
                yield from _stmts(inside, private | {name}, loops, conds)
            case _:
                raise AssertionError("a phase has no such statement")


def _read(e: Expr, private: frozenset[str], loops: Loops, conds: tuple[Expr, ...]) -> Iterator[Access]:
    for x, inner in loads_under(e, conds):
        if x.buffer not in private:
            yield Access(x.buffer, False, x.indices[0], loops, inner)


def loads_under(e: Expr, conds: tuple[Expr, ...]) -> Iterator[tuple[Load, tuple[Expr, ...]]]:
    """The loads of an expression, each with the conditions under which it happens."""
    match e:
        case Load(indices=indices):
            yield e, conds
            for i in indices:
                yield from loads_under(i, conds)
        case Select(cond=cond, then=then, other=other):
            yield from loads_under(cond, conds)
            yield from loads_under(then, (*conds, *conjuncts(cond)))
            yield from loads_under(other, (*conds, negate(cond)))
        case Logic(op=op, lhs=a, rhs=b):
            yield from loads_under(a, conds)
            yield from loads_under(b, (*conds, *(conjuncts(a) if op == "and" else (negate(a),))))
        case _:
            for part in children(e):
                yield from loads_under(part, conds)
