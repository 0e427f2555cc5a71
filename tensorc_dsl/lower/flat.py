"""Flat loops: the result of lowering, and the input of code generators. They have no blocks, no init, and one subscript.

Every access has a single subscript, the offset in elements from the start of a dense array. Loops run from `begin` to
`end` (exclusive). A name may be allocated or counted several times in different places (a loop cut into a main part and
a tail keeps its variable), but never inside itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, assert_never

from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import Dim, Expr, Load, constant, free_vars, loads, substitute
from tensorc_dsl.ir.identity import by_identity
from tensorc_dsl.ir.print import format_expr, format_store
from tensorc_dsl.ir.program import Buffer, Intrinsic, LoopKind, Store, map_store
from tensorc_dsl.ir.sizes import apart
from tensorc_dsl.ir.warp import LANES
from tensorc_dsl.proof.sets.instructions import Tile
from tensorc_dsl.proof.sets.linear_forms import Context, Interval, Ranges, joined, linear
from tensorc_dsl.proof.sets.simplify import bounds, simplify

Space = Literal["stack", "shared", "worker"]
Move = Literal["down", "up", "xor", "lane"]


class LowerError(Exception):
    """The program cannot be lowered for this target: a failed candidate."""


@frozen
class Loop:
    """`for var in begin .. end`: serial, vectorized (each store runs for all values at once) or unrolled.

    Of a `scattered` one, iterations may be left out that change nothing. Where a target can, what is read of the buffers in
    `ahead` so many iterations later is fetched.
    """

    var: str
    begin: Expr
    end: Expr
    kind: LoopKind
    body: tuple[Flat, ...]
    scattered: bool = False
    ahead: tuple[tuple[str, int], ...] = ()


@frozen
class Parallel:
    """Loops from 0 whose iterations run in any order and at once: one task per combination, the last loop fastest.

    `worth` is a number of threads: more would have so little to do that to start them takes longer. None if all are worth it.
    """

    vars: tuple[str, ...]
    extents: tuple[Expr, ...]
    body: tuple[Flat, ...]
    worth: Expr | None = None


@frozen
class If:
    cond: Expr
    body: tuple[Flat, ...]


@frozen
class Alloc:
    """`size` uninitialised elements for the duration of `body`. The size is over open dimensions; on the stack, a number.

    "stack": in the stack frame, or in registers; "shared": on the heap, one per kernel call; "worker": on the heap, one per
    thread, inside a `Parallel`.
    """

    name: str
    dtype: DType
    size: Expr
    space: Space
    body: tuple[Flat, ...]
    swizzle: tuple[int, Expr] | None = None
    """The elements of a unit and between rows, if units of rows are to be in different banks of a GPU."""


@frozen
class Instruction:
    """An instruction on tiles of buffers. `body` computes the same, for targets without the instruction."""

    intrinsic: Intrinsic
    tiles: tuple[Tile, ...]
    body: tuple[Flat, ...]


@frozen
class TensorMap:
    """The tensor map of an array of some shape: the elements of a tile along every dimension, and the bytes of the swizzle by
    which its units of 16 bytes are permuted in shared memory."""

    array: str
    dtype: DType
    shape: tuple[Expr, ...]
    sizes: tuple[int, ...]
    swizzle: int


@frozen
class TmaTile:
    """A tile that TMA loads or `stores`, with the subscripts of its first element. Elements outside of the array are loaded
    as zeros, and not stored. `blocks` has the numbers of the blocks of a cluster for which it is loaded, as bits, if they are
    several."""

    map: TensorMap
    origin: tuple[Expr, ...]
    stores: bool = False
    blocks: int = 0


@frozen
class Collective:
    """An instruction that the lanes of a warp do together, by the assembly `code`. `body` is what one lane accesses: loops
    over the elements that it has of each operand, of a kind that no pass changes, around a store of the instruction's form.
    A copy by TMA is started by one thread, and accesses its tile whole.
    """

    intrinsic: Intrinsic
    code: str
    body: tuple[Flat, ...]
    tile: TmaTile | None = None


@frozen
class Shuffle:
    """What the lanes of a warp give each other: `body` stores a value, and each lane gets that of another one.

    "down" and "up" are so many lanes further or before, itself where that is beyond the warp; "xor" is the lane whose number
    differs in the bits of `by`; "lane" is the lane of that number, in each group of `width` lanes. All lanes of a warp run it
    together.
    """

    move: Move
    by: int
    width: int
    body: tuple[Flat, ...]


Flat = Loop | Parallel | If | Alloc | Instruction | Collective | Shuffle | Store


@frozen
class Param:
    """An argument, with a shape over the open dimensions of the kernel. Without `strides` it is dense and row-major."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    output: bool
    constant: bool = False
    """Whether it is an input that is the same in many calls."""
    strides: tuple[Expr, ...] = ()
    apart: Expr | None = None
    """The condition on sizes under which no two elements of an output share a place; None if it always holds."""

    updated: bool = False
    """Whether it is an input that the kernel overwrites with an output."""

    @property
    def given(self) -> bool:
        """Whether a caller gives its values."""
        return self.updated or not self.output

    @property
    def role(self) -> str:
        """What the argument is to a caller, in words."""
        if self.updated:
            return "input and output"
        return "output" if self.output else "constant input" if self.constant else "input"

    @staticmethod
    def of(b: Buffer, *, output: bool) -> Param:
        """The argument for a buffer of a program."""
        shape = tuple(simplify(e, {}) for e in b.shape)
        return Param(
            b.name, b.dtype, shape, output, b.constant, b.strides, apart(b) if output else None, bool(b.updates)
        )

    @property
    def described(self) -> tuple[Expr, ...]:
        """What a description of the array tells: its extents, then its strides if it declares them."""
        return (*self.shape, *self.strides)


@frozen
class Prepared:
    """A buffer of `size` elements that the preparation writes and the kernel reads; the size is over open dimensions."""

    name: str
    dtype: DType
    size: Expr


@frozen
class Kernel:
    """`body` runs in each call. With constant inputs, `preparation` has run before: it reads no other inputs, and
    writes only `prepared`. `kept` names the constant inputs that the body reads as well, `streamed` the outputs that are
    stored past the caches. Of a `divided` one the body has an `If` over sizes for each case, and one of them runs."""

    name: str
    params: tuple[Param, ...]
    body: tuple[Flat, ...]
    dims: tuple[Dim, ...] = ()
    """The sizes that a call passes after its arrays."""
    preparation: tuple[Flat, ...] = ()
    prepared: tuple[Prepared, ...] = ()
    kept: frozenset[str] = frozenset()
    streamed: frozenset[str] = frozenset()
    divided: bool = False


def body_of(s: Flat) -> tuple[Flat, ...]:
    """The statements inside a statement; none for a store."""
    return () if isinstance(s, Store) else s.body


def stores(body: tuple[Flat, ...]) -> Iterator[Store]:
    """Every store, in text order."""
    return (s for s in inside(body) if isinstance(s, Store))


def inside(body: tuple[Flat, ...]) -> Iterator[Flat]:
    """Every statement, in text order, outer statements first."""
    # An explicit stack: nests are as deep as there are buffers, and nested generators would be quadratic.
    stack = list(reversed(body))
    while stack:
        yield (s := stack.pop())
        if not isinstance(s, Store):
            stack += reversed(s.body)


@by_identity(4096)
def buffers_of(s: Store) -> frozenset[str]:
    """The buffers that a store writes and reads."""
    return frozenset((s.buffer, *(x.buffer for x in store_loads(s))))


def store_loads(s: Store) -> tuple[Load, ...]:
    """The loads of a store, in its subscripts and in its value."""
    return (*(x for i in s.indices for x in loads(i)), *loads(s.value))


def map_exprs(s: Flat, new: Callable[[Expr], Expr]) -> Flat:
    """The statement with `new` of each expression that it has itself, outside of its body. Sizes of buffers stay."""
    match s:
        case Store():
            return map_store(s, new)
        case Loop():
            return replace(s, begin=new(s.begin), end=new(s.end))
        case Parallel():
            return replace(s, extents=tuple(map(new, s.extents)))
        case If():
            return replace(s, cond=new(s.cond))
        case Instruction():
            return replace(s, tiles=tuple(_mapped_tile(t, new) for t in s.tiles))
        case Collective(tile=TmaTile() as tile):
            return replace(s, tile=replace(tile, origin=tuple(map(new, tile.origin))))
        case Alloc() | Collective() | Shuffle():
            return s
        case _:
            assert_never(s)


def _mapped_tile(t: Tile, new: Callable[[Expr], Expr]) -> Tile:
    return replace(t, origin=tuple(map(new, t.origin)), steps=tuple(tuple(map(new, step)) for step in t.steps))


def substituted(s: Flat, values: Mapping[str, Expr]) -> Flat:
    """The statement with expressions in place of variables, none of which it counts."""
    s = map_exprs(s, lambda e: substitute(e, values))
    return s if isinstance(s, Store) else replace(s, body=tuple(substituted(x, values) for x in s.body))


_WORDS = {
    LoopKind.SERIAL: "for",
    LoopKind.PARALLEL: "parallel for",
    LoopKind.VECTORIZED: "vectorized for",
    LoopKind.UNROLLED: "unrolled for",
    LoopKind.TENSORIZED: "tensorized for",
}


def _lines(body: tuple[Flat, ...], pad: str) -> Iterator[str]:
    for s in body:
        match s:
            case Store():
                yield f"{pad}{format_store(s)}"
                continue
            case Loop(var=var, begin=begin, end=end, kind=kind):
                word = f"scattered {_WORDS[kind]}" if s.scattered else _WORDS[kind]
                ahead = "".join(f", fetching {name} {distance} ahead" for name, distance in s.ahead)
                yield f"{pad}{word} {var} in {format_expr(begin)} .. {format_expr(end)}{ahead} {{"
            case Parallel(vars=names, extents=extents):
                heads = ", ".join(f"{v} in {format_expr(e)}" for v, e in zip(names, extents, strict=True))
                yield f"{pad}parallel for {heads} {{"
            case If(cond=cond):
                yield f"{pad}if {format_expr(cond)} {{"
            case Alloc(name=name, dtype=dtype, size=size, space=space):
                yield f'{pad}with {name}: {dtype}[{format_expr(size)}] in "{space}" {{'
            case Instruction(intrinsic=intrinsic, tiles=tiles):
                yield f"{pad}{intrinsic.name}({', '.join(map(_tile, tiles))}) or {{"
            case Collective(intrinsic=intrinsic, code=code, tile=tile):
                yield f'{pad}{intrinsic.name}{"" if tile is None else _tma_tile(tile)} by "{code}" {{'
            case Shuffle(move=move, by=by, width=width):
                yield f"{pad}shuffle {move} {by}{f' of {width}' * (width < LANES)} {{"
            case _:
                assert_never(s)
        yield from _lines(s.body, pad + "    ")
        yield f"{pad}}}"


def _tma_tile(b: TmaTile) -> str:
    """A tile of an array as text, ` of 64 x 64 from A[i * 64, k]`."""
    way = "to" if b.stores else "from"
    whom = f" for {b.blocks.bit_count()} blocks" if b.blocks else ""
    at = ", ".join(map(format_expr, b.origin))
    return f" of {' x '.join(map(str, b.map.sizes))} {way} {b.map.array}[{at}]{whom}"


def _tile(t: Tile) -> str:
    """A tile as text, `B[k * 64; 4, 1]`: its first element, and the strides along its dimensions."""
    steps = ", ".join(format_expr(e) for step in t.steps for e in step)
    return f"{t.buffer}[{', '.join(map(format_expr, t.origin))}; {steps}]"


def format_shape(shape: tuple[Expr, ...]) -> str:
    return f"[{', '.join(map(format_expr, shape))}]"


def format_body(body: tuple[Flat, ...]) -> str:
    """Loops as text, for people."""
    return "".join(f"{line}\n" for line in _lines(body, ""))


def format_kernel(k: Kernel) -> str:
    """The kernel as text, for people and golden tests; it is not parsed back."""
    args = [
        f"{'in ' * p.updated}{'out ' * p.output}{p.name}: {'const ' * p.constant}{p.dtype}{format_shape(p.shape)}"
        for p in k.params
    ]
    args += [d.name for d in k.dims]
    lines = [f"kernel {k.name}({', '.join(args)}) {{"]
    if k.preparation:
        made = ", ".join(f"{p.name}: {p.dtype}[{format_expr(p.size)}]" for p in k.prepared)
        lines += [f"    prepare {made} {{", *_lines(k.preparation, "        "), "    }"]
    lines += [*_lines(k.body, "    "), "}"]
    return "\n".join(lines) + "\n"


# The ranges of the variables of flat loops. No loop begins below 0.


def most(e: Expr) -> int | None:
    """The largest value of an extent; None if there is no limit."""
    n = constant(e)
    return bounds(e, {})[1] if n is None else n


def span(end: Expr) -> Interval:
    """The range of a variable that counts from 0 to `end`."""
    n = most(end)
    return 0, None if n is None else n - 1


def loop_interval(s: Loop) -> Interval:
    """The range of a loop's variable."""
    return constant(s.begin) or 0, span(s.end)[1]


def counted(s: Flat) -> dict[str, Interval]:
    """The ranges of the variables that a statement counts; empty unless it is a loop or several."""
    match s:
        case Loop():
            return {s.var: loop_interval(s)}
        case Parallel():
            return {v: span(e) for v, e in zip(s.vars, s.extents, strict=True)}
        case _:
            return {}


def within(ranges: Ranges, s: Flat) -> Ranges:
    """The ranges inside of a statement, from those around it."""
    own = counted(s)
    return {**ranges, **own} if own else ranges


def hull(body: tuple[Flat, ...]) -> Ranges:
    """For each loop variable in a body, the smallest range that contains those of all of its loops."""
    out: dict[str, Interval] = {}
    for s in inside(body):
        for v, own in counted(s).items():
            out[v] = joined(out.get(v, own), own)
    return out


# Strides of simplified subscripts.


def stride(e: Expr, var: str) -> int | None:
    """The change of `e` per step of `var`; None if it varies."""
    form = linear(e, Context({}))
    if any(not isinstance(a, str) and var in free_vars(a) for a in form.terms):
        return None
    return form.terms.get(var, 0)
