"""Programs: buffers, loops and blocks, after TensorIR (Feng et al., ASPLOS 2023, section 3).

A program is data: frozen, compared by structure. Names of loops, blocks and buffers are unique in a program (across all
three), so a name is a reference and the printed text is the program's identity. Block iterators are local to their block.

A *block instance* is a block with a value for each iterator. An instance runs for each iteration of the loops around the
block in which every condition of `where` (over loop variables) holds; the binding expressions give its iterators' values.
`init` runs just before the first instance along the reduction iterators, i.e. when all of them are 0. If one of these has the
extent 0, and no instance runs, it runs where the loops that count them begin, once in each iteration of the other loops.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Literal

from tensorc_dsl.base.frozen import frozen, replace
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import Dim, Expr, substitute
from tensorc_dsl.ir.identity import by_identity


class IterKind(StrEnum):
    SPATIAL = "spatial"
    REDUCE = "reduce"
    SCAN = "scan"


class LoopKind(StrEnum):
    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unrolled"
    PIPELINED = "pipelined"
    TENSORIZED = "tensorized"
    BOUND = "bound"


AT_ONCE = (LoopKind.PARALLEL, LoopKind.VECTORIZED, LoopKind.BOUND)
"""The kinds of loops whose iterations have no order."""


class Axis(StrEnum):
    """The hardware level over which the iterations of a bound loop are distributed, outermost level first.

    A kernel runs on a grid of blocks. Those of a cluster, which `block.x` counts then, run at once, and share what they load.
    A block has threads: counted in up to three dimensions, or as warpgroups of warps of lanes. `warp` counts the warps in a
    warpgroup where it stands inside one, otherwise in the block.
    """

    BLOCK_X = "block.x"
    BLOCK_Y = "block.y"
    BLOCK_Z = "block.z"
    CLUSTER_X = "cluster.x"
    WARPGROUP = "warpgroup"
    WARP = "warp"
    LANE = "lane"
    THREAD_X = "thread.x"
    THREAD_Y = "thread.y"
    THREAD_Z = "thread.z"

    @property
    def level(self) -> str:
        """The axis without its dimension: "block", "warp", …"""
        return self.value.split(".")[0]

    @property
    def counts_threads(self) -> bool:
        """Whether the iterations are threads, or groups of them, of one block."""
        return self.level not in ("block", "cluster")


Annotation = tuple[str, int | float | str | bool]
"""A key and a value; tuples of annotations are sorted by key."""

MAX_STEP = "unroll.max_step"
"""The key of the annotation that limits unrolling. It may stand on the program or on any loop; the largest value in a program
applies to all of it. Lowering obeys this key, `SCATTER`, `ATOMIC`, `ir.annotations.LOOK_BACK` and `ir.annotations.STREAM`;
others are for schedules and people."""

SCATTER = "scatter"
"""The key of the annotation, true, of a serial loop of which only the iteration runs that data choose
(`proof.sets.store_guards`)."""

ATOMIC = "atomic"
"""The key of the annotation of a block whose instances may update one element at once: "exact" if any order gives the same
result, "any order" if results may differ by rounding (`ir.reductions`)."""

INTRINSIC = "intrinsic"
"""The key of the annotation that names the instruction of a tensorized nest, on the outermost of its loops."""


ALIGN, OFFSET = "align", "offset"
"""`align.0` and `offset.0` annotate a buffer: neighbours along dimension 0 are n * align + offset elements apart."""

FINITE = "finite"
"""The key of the annotation of a program by which the author of a schedule says that what exponentials are multiplied by is
finite: where they are 0, so is the product."""

IN_RANGE = "in_range"
"""The key of the annotation of a program by which the author of a schedule says that where scans are regrouped, no product of
their factors leaves the range of its type (`proof.sets.running`)."""

IN_ORDER = "in_order"
"""The key of the annotation, true, of a program that rounds as its text says: steps and lowering keep the order and
grouping of rounded operations."""

APPROX = "approx"
"""The key of the annotation of a program by which its task allows functions of f32 so large a relative error, where a machine
has instructions that are as near (`ir.maths.BEFORE_ROUNDING`)."""

ASSUMED = "assume."
"""What the keys of annotations of a program begin with that say of an input, whose name follows, what it contains."""


class Property(StrEnum):
    """What an input can be assumed to be."""

    POSITIVE_DEFINITE = "positive_definite"
    """Symmetric, with positive eigenvalues: each matrix of the last two dimensions."""
    SYMMETRIC = "symmetric"
    SORTED = "sorted"
    """Along the last dimension, the least element first."""
    DISTINCT = "distinct"
    """No two elements along the last dimension are equal."""
    POSITIVE = "positive"
    FINITE = "finite"
    """No element is infinite or a NaN; so 0 times one is 0 (`skip_zeros`)."""


OF_ELEMENTS = (Property.POSITIVE, Property.FINITE)
"""The properties that each element has by itself."""

Range = tuple[float, float]


PERSISTENT = "persistent"
"""The annotation of a loop over blocks whose iterations a fixed number of blocks may take in turn."""

VIEW = "view"
"""The annotation of a buffer that is a view in the text of a program: `[h, l, d] = X[l, h * 64 + d]`."""

SWIZZLE = "swizzle"
"""`swizzle.0` annotates a buffer in the memory of a block: neighbours along dimension 0 are in different banks, and so many
adjacent elements stay adjacent."""


@frozen
class View:
    """The elements of an input in other dimensions: `places`, over `indices`, are the subscripts of `base`."""

    base: str
    indices: tuple[str, ...]
    places: tuple[Expr, ...]

    def at(self, subscripts: Sequence[Expr]) -> tuple[Expr, ...]:
        """The subscripts of the base for those of the view."""
        values = dict(zip(self.indices, subscripts, strict=True))
        return tuple(substitute(p, values) for p in self.places)


@frozen
class Buffer:
    """A row-major array. `scope` is its memory: "global", "local" (private to an iteration), …

    It is dense, unless an annotation gives the stride of a dimension (`ALIGN`), and in that order, unless one permutes it
    (`SWIZZLE`). A `constant` input is the same in many
    calls, so values that depend on it alone need not be computed in each call; the result does not depend on the flag.
    An argument that is not dense declares its `strides`, the distances of neighbours along each dimension in elements.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    scope: str = "global"
    annotations: tuple[Annotation, ...] = ()
    constant: bool = False
    strides: tuple[Expr, ...] = ()
    updates: str = ""
    """The input in whose memory an output is for those who call; in the program the two are apart."""
    view: View | None = None
    """Where the elements stand in an input, of a buffer that has no memory (`ir.input_views`); nothing writes it."""

    @property
    def described(self) -> tuple[Expr, ...]:
        """What a description of the array tells: its extents, then its strides if it declares them."""
        return (*self.shape, *self.strides)


@frozen
class Iter:
    """A block iterator, `kind name in extent = binding`; the binding is over the variables of the loops around the block."""

    name: str
    kind: IterKind
    extent: Expr
    binding: Expr


@frozen
class Store:
    """`buffer[indices] = value`. In lowered code `atomic` names the block, if its instances may make the store at once."""

    buffer: str
    indices: tuple[Expr, ...]
    value: Expr
    atomic: str = ""


@frozen
class Block:
    """The unit of computation. Its stores use its iterators only, never the loop variables around it."""

    name: str
    iters: tuple[Iter, ...]
    body: tuple[Store, ...]
    init: tuple[Store, ...] = ()
    where: tuple[Expr, ...] = ()
    annotations: tuple[Annotation, ...] = ()

    @property
    def is_reduction(self) -> bool:
        return any(it.kind is IterKind.REDUCE for it in self.iters)


@frozen
class For:
    """`for var in extent`: var takes the values 0 to extent - 1. Bound loops have an axis, other loops have none."""

    var: str
    extent: Expr
    body: tuple[Stmt, ...]
    kind: LoopKind = LoopKind.SERIAL
    annotations: tuple[Annotation, ...] = ()
    axis: Axis | None = None


Stmt = For | Block


@frozen
class TileAxis:
    """An index of an instruction, and its extent."""

    name: str
    kind: IterKind
    extent: int


@frozen
class Layout:
    """`(i, j) -> (lane: i % 8, reg: j)`: the lane and register of an instruction that hold each element of an operand."""

    name: str
    params: tuple[str, ...]
    places: tuple[tuple[str, Expr], ...]


_PTX = re.compile(r"ptx(\d+)")


@frozen
class Lowering:
    """The code of an instruction for one kind of target, if the target has all features of `requires`.

    `ptx84` among them is no feature: it is the version of PTX, 8.4, that the code is written in.
    """

    target: str
    requires: tuple[str, ...]
    kind: Literal["asm", "call"]
    code: str

    @property
    def features(self) -> tuple[str, ...]:
        """What a target must have."""
        return tuple(r for r in self.requires if _PTX.fullmatch(r) is None)

    @property
    def ptx_version(self) -> int:
        """The version of PTX, 84 for 8.4; 0 if it does not matter."""
        return max((int(m[1]) for r in self.requires if (m := _PTX.fullmatch(r))), default=0)

    def fits(self, kind: str, features: Iterable[str]) -> bool:
        """Whether it is code for a target of a kind, with features."""
        return self.target == kind and {*self.features} <= {*features}


@frozen
class Intrinsic:
    """An instruction: `store` is its effect at each point of its axes, and `lowerings` its code for kinds of targets.

    The operands are buffers of fixed shapes, each with the name of its layout for a scope ("global": row-major). Every
    subscript in `store` is an axis, the stored operand has all spatial ones, and no axis stands twice in one access.
    """

    name: str
    operands: tuple[Buffer, ...]
    axes: tuple[TileAxis, ...]
    store: Store
    layouts: tuple[Layout, ...] = ()
    lowerings: tuple[Lowering, ...] = ()


@frozen
class Case:
    """A program for some sizes: for each dimension that its program is divided by, the least and the largest."""

    sizes: tuple[tuple[int, int | None], ...]
    program: Program


@frozen
class Program:
    """A function over buffers. `params` are the arguments in order: inputs, then outputs (those that blocks write).

    `buffers` are intermediates; `dims` are the open dimensions that shapes, extents and subscripts mention. `intrinsics`
    are the instructions that a schedule may use. Instructions that no loop names are neither printed nor compared.

    A divided program has no buffers and no body: a call is that of the first of its `cases` that has the sizes of the
    dimensions `divided_by`. Each case has all of the program, for its sizes (`ir.cases`).
    """

    name: str
    params: tuple[Buffer, ...]
    buffers: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    dims: tuple[Dim, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    intrinsics: tuple[Intrinsic, ...] = field(default=(), compare=False, repr=False)
    divided_by: tuple[str, ...] = ()
    cases: tuple[Case, ...] = ()

    def buffer(self, name: str) -> Buffer:
        """The buffer of that name. Raises KeyError if there is none."""
        for b in (*self.params, *self.buffers):
            if b.name == name:
                return b
        raise KeyError(name)

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        if self.cases:
            written = {p.name for p in self.cases[0].program.outputs}
        else:
            written = {s.buffer for b in blocks(self) for s in (*b.init, *b.body)}
        return tuple(p for p in self.params if p.name in written)

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        outs = self.outputs
        return tuple(p for p in self.params if p not in outs)


@by_identity(64)
def walk(stmts: tuple[Stmt, ...]) -> Sequence[tuple[tuple[For, ...], Stmt]]:
    """Every statement in text order, with the loops around it, outermost first."""
    found: list[tuple[tuple[For, ...], Stmt]] = []
    _walk(stmts, (), found)
    return found


# No function inside of `walk`: one that calls itself is a cycle, which would hold each list until garbage is collected.
def _walk(body: tuple[Stmt, ...], around: tuple[For, ...], found: list[tuple[tuple[For, ...], Stmt]]) -> None:
    for s in body:
        found.append((around, s))
        if isinstance(s, For):
            _walk(s.body, (*around, s), found)


def blocks(program: Program) -> tuple[Block, ...]:
    """The blocks in text order."""
    return blocks_in(program.body)


@by_identity(64)
def blocks_in(body: tuple[Stmt, ...]) -> tuple[Block, ...]:
    """The blocks in some statements, in text order."""
    return tuple(s for _, s in walk(body) if isinstance(s, Block))


@by_identity(64)
def _places(body: tuple[Stmt, ...]) -> dict[str, tuple[tuple[For, ...], Stmt]]:
    """The loops and blocks by name, each with the loops around it."""
    return {s.var if isinstance(s, For) else s.name: (around, s) for around, s in walk(body)}


def find_block(program: Program, name: str) -> tuple[tuple[For, ...], Block]:
    """The loops around a block, outermost first, and the block. Raises KeyError if there is none of that name."""
    around, s = _places(program.body)[name]
    if not isinstance(s, Block):
        raise KeyError(name)
    return around, s


def has_block(program: Program, name: str) -> bool:
    """Whether there is a block of that name."""
    return name in _places(program.body) and isinstance(_places(program.body)[name][1], Block)


def find_loop(program: Program, var: str) -> tuple[tuple[For, ...], For]:
    """The loops around a loop, outermost first, and the loop. Raises KeyError if there is none of that name."""
    around, s = _places(program.body)[var]
    if not isinstance(s, For):
        raise KeyError(var)
    return around, s


def intrinsic_of(program: Program, loop: For) -> Intrinsic | None:
    """The instruction that a tensorized loop names; None for other loops, and for inner loops of such a nest."""
    name = dict(loop.annotations).get(INTRINSIC) if loop.kind is LoopKind.TENSORIZED else None
    return next((i for i in program.intrinsics if i.name == name), None)


def is_scattered(loop: For) -> bool:
    """Whether data choose the only iteration of the loop that runs."""
    return bool(loop.annotations) and dict(loop.annotations).get(SCATTER) is True


def is_in_order(program: Program) -> bool:
    """Whether the program keeps its order of rounded operations."""
    return (IN_ORDER, True) in program.annotations


def is_atomic(b: Block) -> bool:
    """Whether instances of the block may update one element at once."""
    return ATOMIC in dict(b.annotations)


def used_intrinsics(program: Program) -> tuple[Intrinsic, ...]:
    """The instructions that loops of the program name, in the order of the text."""
    found = (intrinsic_of(program, s) for _, s in walk(program.body) if isinstance(s, For))
    return tuple({i.name: i for i in found if i is not None}.values())


def map_store(s: Store, new: Callable[[Expr], Expr]) -> Store:
    """The store with `new` of each of its subscripts and of its value."""
    return replace(s, indices=tuple(map(new, s.indices)), value=new(s.value))


def store_at(s: Store, values: Mapping[str, Expr]) -> Store:
    """The store with expressions in place of variables."""
    return map_store(s, lambda e: substitute(e, values))


def with_body(loop: For, body: tuple[Stmt, ...]) -> For:
    """The loop around other statements: `dataclasses.replace`, which takes thrice as long."""
    return For(loop.var, loop.extent, body, loop.kind, loop.annotations, loop.axis)


def replace_stmt(program: Program, name: str, new: tuple[Stmt, ...]) -> Program:
    """The program with the loop or block of that name replaced by `new`. Loops whose bodies become empty are removed."""
    place = _places(program.body).get(name)
    if place is None:
        return program
    around, old = place
    for loop in reversed(around):
        body = _exchanged(loop.body, old, new)
        old, new = loop, ((with_body(loop, body),) if body else ())
    return replace(program, body=_exchanged(program.body, old, new))


def _exchanged(body: tuple[Stmt, ...], old: Stmt, new: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    n = next(n for n, s in enumerate(body) if s is old)
    return (*body[:n], *new, *body[n + 1 :])


def used_names(program: Program) -> set[str]:
    """All names that a new loop, block or buffer must avoid; the set is the caller's."""
    return set(_used_names(program))


@by_identity(8)
def _used_names(program: Program) -> frozenset[str]:
    names = {b.name for b in (*program.params, *program.buffers)} | {d.name for d in program.dims}
    for _, s in walk(program.body):
        if isinstance(s, For):
            names.add(s.var)
        else:
            names.add(s.name)
            names.update(it.name for it in s.iters)
    return frozenset(names)


def fresh(base: str, used: set[str]) -> str:
    """The first of `base`, `base_1`, `base_2`, … that is not in `used`; it is added to `used`."""
    name, n = base, 0
    while name in used:
        n += 1
        name = f"{base}_{n}"
    used.add(name)
    return name


def assumed(program: Program, name: str) -> tuple[Property | Range, ...]:
    """What the compute assumes of an input: properties, and the range of its elements. Of a view of one, what is true of each
    element."""
    view = next((b.view for b in program.buffers if b.name == name), None)
    if view is not None:
        return tuple(x for x in assumed(program, view.base) if not isinstance(x, Property) or x in OF_ELEMENTS)
    found: list[Property | Range] = []
    text = dict(program.annotations).get(f"{ASSUMED}{name}")
    for part in str(text).split(", ") if text else ():
        low, dots, high = part.partition("..")
        found.append((_number(low), _number(high)) if dots else Property(part))
    return tuple(found)


def _number(text: str) -> float:
    return int(text) if text.lstrip("-").isdigit() else float(text)
