"""Scans whose value blocks pass on: the words by which they do, and the statement of one thread that looks back.

Decoupled look-back (Merrill and Garland, Single-pass Parallel Prefix Scan with Decoupled Look-back, 2016). In place of its
elements a scan has words in global memory, all 0 at first: a counter, and those of each step. A block takes a number of the
counter, so that the blocks of all lower numbers have begun and end, whatever order the machine starts blocks in. It makes
known what its step adds, and looks at the steps before, one after the other, until it finds one whose value is known. From
there it makes the steps between in order, so the value is that of the scan in order, rounding included.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tensorc_dsl.backend.cuda.lower.kernels import STEP, Device, DeviceKernel, Local, LookBack, Ticket, inside, plain
from tensorc_dsl.backend.cuda.lower.synchronization import loads_under
from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.annotations import passed_along
from tensorc_dsl.ir.dtypes import I64, DType
from tensorc_dsl.ir.expr import (
    ONE,
    ZERO,
    Compare,
    Expr,
    Load,
    Var,
    add,
    conjunction,
    constant,
    free_vars,
    index,
    loads,
    mul,
    rewrite_expr,
    substitute,
)
from tensorc_dsl.ir.print import format_expr, format_store
from tensorc_dsl.ir.program import Buffer, For, Program, Store, walk
from tensorc_dsl.lower.flat import Alloc, Flat, If, Loop, LowerError, Prepared, store_loads
from tensorc_dsl.lower.flat import inside as inside_flat
from tensorc_dsl.lower.storage import element_count
from tensorc_dsl.proof.sets.running import not_passed
from tensorc_dsl.proof.sets.simplify import conjuncts

PACKED = 4
"""The most bytes of a value that is in one word with its flag."""


_TICKET = ".ticket"
"""The end of the name of the shared buffer for the number that a block takes."""


@frozen
class Words:
    """The words of a step: one with a value of at most 4 bytes above its flag; else a flag, what the step adds, its value."""

    terms: tuple[DType, ...]
    value: DType

    @property
    def packed(self) -> bool:
        return len(self.terms) < 2 and all(t.bytes <= PACKED for t in (*self.terms, self.value))

    @property
    def count(self) -> int:
        return 1 if self.packed else 2 + len(self.terms)


@frozen
class Chain:
    """A scan that blocks pass on along the loop `var`: its buffer in the program, and what it reads in a step."""

    name: str
    dtype: DType
    var: str

    @property
    def value(self) -> str:
        """The private buffer of the value after a step."""
        return f"{self.name}.value"

    @property
    def before(self) -> str:
        """The shared buffer of the value before the step of a block."""
        return f"{self.name}.before"

    def term(self, number: int) -> str:
        """The private buffer of what a step reads, by its number."""
        return f"{self.name}.term.{number}"


def chains_of(program: Program) -> dict[str, Chain]:
    """The scans of a program whose value blocks pass on, by their buffers. Raises LowerError if blocks cannot."""
    out: dict[str, Chain] = {}
    for _, s in walk(program.body):
        if isinstance(s, For) and s.axis is not None:
            for b in passed_along(s):
                if (why := not_passed(program, b.name)) is not None:
                    raise LowerError(f"blocks cannot pass on the value of `{b.name}`: it {why.reason}; {why.repair}")
                buffer = program.buffer(b.body[0].buffer)
                out[buffer.name] = Chain(buffer.name, buffer.dtype, s.var)
    return out


def words_in(k: DeviceKernel) -> dict[str, Words]:
    """The words of each scan whose value the blocks of a kernel pass on."""
    types = {b.name: b.dtype for b in k.local}
    return {s.chain: look_back_words(s, types) for s in inside(k.body) if isinstance(s, LookBack)}


def look_back_words(s: LookBack, types: Mapping[str, DType]) -> Words:
    """The words of each step; `types` are those of private storage."""
    return Words(tuple(types[name] for name in look_back_terms(s)), types[s.made.buffer])


def look_back_terms(s: LookBack) -> tuple[str, ...]:
    """The private buffers of what a step reads."""
    return tuple(dict.fromkeys(x.buffer for x in inside_flat(s.terms) if isinstance(x, Store)))


def with_words(b: Buffer, found: Mapping[str, Words]) -> Prepared:
    """An array in global memory; a scan that blocks pass on has its words in place of its elements."""
    count = element_count(b)
    if b.name not in found:
        return Prepared(b.name, b.dtype, count)
    return Prepared(b.name, I64, add(mul(count, index(found[b.name].count)), ONE))


def reads_before(body: tuple[Flat, ...], chains: Mapping[str, Chain]) -> tuple[Flat, ...]:
    """The statements with the value before the step of a block where they read it, but for what a step reads of its own."""

    def go(s: Flat) -> Flat:
        if not isinstance(s, Store):
            return replace(s, body=tuple(map(go, s.body)))
        others = {x.buffer for x in store_loads(s)} & chains.keys() - {s.buffer}

        def here(x: Expr) -> Expr:
            return Load(chains[x.buffer].before, (ZERO,), x.dtype) if isinstance(x, Load) and x.buffer in others else x

        return replace(s, value=rewrite_expr(s.value, here)) if others else s

    return tuple(map(go, body)) if chains else body


def looks_back(
    s: Flat, chain: Chain, values: Mapping[str, Expr], bound: Collection[str]
) -> tuple[LookBack, tuple[Local, ...]]:
    """The step of a block, inside of the loops `bound`, and the private storage for it. Raises LowerError."""
    conds, store = _only(s, chain, values)
    if chain.var not in bound:
        raise LowerError(
            f"a step of `{chain.name}` is outside of `{chain.var}`, the loop over blocks that are its steps"
        )
    for c in conds:
        below = isinstance(c, Compare) and c.op == "<" and c.lhs == Var(chain.var) and chain.var not in free_vars(c.rhs)
        if chain.var in free_vars(c) and not below:
            raise LowerError(f"`{chain.name}` leaves out steps that are not its last ones, by `{format_expr(c)}`")
    steps = {**values, chain.var: Var(STEP)}
    given: dict[Expr, Load] = {}
    terms: list[Flat] = []
    for x, under in dict.fromkeys(loads_under(store.value, ())):
        if x.buffer == chain.name:
            continue
        if loads(x.indices[0]):
            raise LowerError(f"`{format_store(store)}` reads where data say, and blocks do not pass on where that is")
        own = given.setdefault(x, Load(chain.term(len(given)), (ZERO,), x.dtype))
        cond, taken = conjunction(under), Store(own.buffer, (ZERO,), x)
        terms.append(taken if cond is None else If(cond, (taken,)))
    value = Load(chain.value, (ZERO,), chain.dtype)

    def here(x: Expr) -> Expr:
        return (value if x.buffer == chain.name else given[x]) if isinstance(x, Load) else x

    made = Store(chain.value, (ZERO,), substitute(rewrite_expr(store.value, here), steps))
    found = LookBack(
        chain.name,
        values[chain.var],
        tuple(substitute(c, steps) for c in conds),
        substitute(store.indices[0], steps),
        plain(terms, steps),
        made,
        Store(chain.before, (ZERO,), value),
    )
    own = (Local(chain.value, chain.dtype, 1), *(Local(x.buffer, x.dtype, 1) for x in given.values()))
    return found, own


def shared_of(chain: Chain) -> Alloc:
    """The value before the step of a block, in shared memory."""
    return Alloc(chain.before, chain.dtype, ONE, "stack", ())


def ticket_of(s: Ticket) -> Alloc:
    """The number that a block takes, in shared memory."""
    return Alloc(s.place, I64, ONE, "stack", ())


def _only(s: Flat, chain: Chain, values: Mapping[str, Expr]) -> tuple[tuple[Expr, ...], Store]:
    """The store of a step, and the conditions under which it is made."""
    match s:
        case Store():
            return (), s
        case If(cond=cond, body=(inner,)):
            conds, store = _only(inner, chain, values)
            return (*conjuncts(cond), *conds), store
        case Loop(var=var, end=end, body=(inner,)) if constant(end) == 1:
            conds, store = _only(inner, chain, values)
            zero: dict[str, Expr] = {var: ZERO}
            return tuple(substitute(c, zero) for c in conds), replace(
                store, indices=(substitute(store.indices[0], zero),), value=substitute(store.value, zero)
            )
        case _:
            raise LowerError(
                f"blocks pass on one value of `{chain.name}` each, and a block makes several of its steps; bind the other"
                " loops around it to blocks"
            )


def with_ticket(body: tuple[Device, ...]) -> tuple[Device, ...]:
    """The statements of a kernel; if some look back, a block takes a number first. Raises LowerError if not every block runs
    these, each once."""
    found = [s for s in inside(body) if isinstance(s, LookBack)]
    if not found:
        return body
    for s in found:
        if all(x is not s for x in body):
            raise LowerError(
                f"not every block comes to its step of `{s.chain}` once: it is in a loop or under a condition; leave out"
                " `persist`, or what guards it"
            )
    return (Ticket(found[0].chain, found[0].chain + _TICKET), *body)
