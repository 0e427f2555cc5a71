"""Lowers a scheduled program to kernels of a GPU, one for each statement at its top, in named passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace

from tensorc_dsl.backend.cuda.lower.async_copies import with_tiles
from tensorc_dsl.backend.cuda.lower.axes import Axes, axes_of, loops_around, with_uniform_ends
from tensorc_dsl.backend.cuda.lower.bodies import finished, with_bounds
from tensorc_dsl.backend.cuda.lower.clusters import with_clusters
from tensorc_dsl.backend.cuda.lower.collectives import collected, require_adjacent, with_lanes
from tensorc_dsl.backend.cuda.lower.kernels import (
    BLOCK_AXES,
    MOST_BLOCKS,
    DeviceKernel,
    DeviceProgram,
    Local,
    chains_in,
    collectives_in,
    format_device,
    roles_in,
)
from tensorc_dsl.backend.cuda.lower.look_back import chains_of, with_words, words_in
from tensorc_dsl.backend.cuda.lower.pipelines import Pipeline, marked, threads_of, versioned
from tensorc_dsl.backend.cuda.lower.private_storage import own, with_choices, with_idle_defined
from tensorc_dsl.backend.cuda.lower.shared_layout import with_swizzles
from tensorc_dsl.backend.cuda.lower.shuffles import SCOPE, shuffled
from tensorc_dsl.backend.cuda.lower.steady_steps import with_steady_steps
from tensorc_dsl.backend.cuda.lower.structure import Storage, phases
from tensorc_dsl.backend.cuda.lower.synchronization import synchronized
from tensorc_dsl.backend.llvm.lower.passes import max_step
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.ir.contraction import allowed_error
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.input_views import resolved
from tensorc_dsl.ir.program import Block, Buffer, Program, Stmt, walk
from tensorc_dsl.ir.target import Target
from tensorc_dsl.lower.flat import LowerError, Param, store_loads, stores
from tensorc_dsl.lower.lower import COMMON, SPREAD, Unit, format_unit, require_independent
from tensorc_dsl.lower.storage import buffer_loops, flatten_params, in_place, place
from tensorc_dsl.lower.trim_bounds import Known, known_of
from tensorc_dsl.proof.sets.accesses import touched_in
from tensorc_dsl.proof.sets.constants import told_by

OLDEST = "sm_80"
"""The oldest GPU that there is code for, and that of a target that names none. Later ones run its PTX, too."""


@frozen
class Nest:
    """A statement at the top of a program on its way to kernels; several if it starts several grids one after the other."""

    unit: Unit
    number: int
    axes: Axes
    features: tuple[str, ...]
    pipelines: Mapping[str, Pipeline] = field(default_factory=dict[str, Pipeline])
    fragments: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """The buffers in fragments, with the lanes that share a tile, and the elements that each has of it."""
    local: tuple[Local, ...] = ()
    kernels: tuple[DeviceKernel, ...] = ()


@frozen
class _Pass:
    name: str
    run: Callable[[Nest], Nest]
    about: str


def lower_device(program: Program, features: tuple[str, ...] = (OLDEST,), cores: int = 0) -> DeviceProgram:
    """The kernels that run a scheduled program on GPUs with some features, as a target names them, and so many
    multiprocessors; 0 says nothing of these.

    Raises LowerError if there is none that does the same.
    """
    if program.cases:
        raise LowerError(
            f"{program.name} is divided by sizes, and kernels for GPUs are not: tune a task for each range"
        )
    program = in_place(resolved(program))
    if untold := set(program.dims) - told_by([p.described for p in program.params]):
        names = ", ".join(sorted(d.name for d in untold))
        raise LowerError(f"the shapes of the arguments of {program.name} do not tell {names}")
    _require_memory_that_lasts(program)
    kernels = [k for n in range(len(program.body)) for k in _run(_nest(program, n, features, cores), PASSES).kernels]
    require_independent(program)  # last, since the passes say more of what threads share
    outputs = program.outputs
    params = tuple(Param.of(replace(p, constant=False), output=p in outputs) for p in program.params)
    words = {c: w for k in kernels for c, w in words_in(k).items()}
    scratch = tuple(with_words(b, words) for b in _globals(program))
    return DeviceProgram(program.name, params, scratch, program.dims, tuple(kernels), allowed_error(program))


def require_room(p: DeviceProgram, target: Target) -> None:
    """Raises LowerError if a kernel has more blocks along an axis than a grid can have, more threads, those of all roles
    together, than a block of the target, or more shared memory; 0 is no limit."""
    for k in p.kernels:
        if k.threads > target.threads > 0:
            parts = ", ".join(f"`{r.name}` {r.threads}" for r in roles_in(k.body))
            raise LowerError(
                f"a block has {k.threads} threads{' with those of all roles' * bool(parts)}, and up to {target.threads} are"
                f" there{f': {parts}' * bool(parts)}; make tiles smaller{', or leave roles out' * bool(parts)}"
            )
        for axis, size, most in zip(BLOCK_AXES, k.grid, MOST_BLOCKS, strict=True):
            if (constant(size) or 0) > most:
                raise LowerError(
                    f"a grid has {constant(size)} blocks along `{axis}`, and up to {most} are there; split what is bound to"
                    ' it and bind a part to another axis of blocks, or bind it to "block.x"'
                )
        if k.shared_bytes > target.shared_memory > 0:
            buffers = ", ".join(f"`{b.name}` {b.size * b.dtype.bytes}" for b in k.shared)
            raise LowerError(
                f"the shared memory of a block has {k.shared_bytes} bytes with the space for alignment, and up to"
                f" {target.shared_memory} are there: {buffers}; make tiles smaller, or let copies run less far ahead"
            )


def lower_device_until(program: Program, last: str, features: tuple[str, ...], cores: int = 0) -> str:
    """The kernels after the pass of that name, as text for people."""
    program = resolved(program)
    few = PASSES[: [p.name for p in PASSES].index(last) + 1]
    out: list[str] = []
    for n in range(len(program.body)):
        nest = _run(_nest(program, n, features, cores), few)
        made = DeviceProgram(program.name, (), (), (), nest.kernels)
        out.append(format_device(made) if nest.kernels else format_unit(nest.unit))
    return "\n".join(out)


def _nest(program: Program, n: int, features: tuple[str, ...], cores: int) -> Nest:
    unit = Unit(program, replace(program, body=(program.body[n],)), None, {})
    return Nest(unit, n, axes_of(program.body[n], cores), features)


def _run(nest: Nest, passes: tuple[_Pass, ...]) -> Nest:
    for p in passes:
        nest = p.run(nest)
    return nest


def _globals(program: Program) -> tuple[Buffer, ...]:
    """The intermediate buffers in global memory."""
    return tuple(b for b in program.buffers if b.scope == "global")


def _common(name: str) -> Callable[[Nest], Nest]:
    (found,) = (p for p in COMMON if p.name == name)
    return lambda n: replace(n, unit=found.run(n.unit))


def _stages(n: Nest) -> Nest:
    """The statements of pipelines have marks, by which they are found when blocks are gone."""
    program, pipelines = marked(n.unit.program)
    return replace(n, unit=replace(n.unit, program=program), pipelines=pipelines)


def _collectives(n: Nest) -> Nest:
    found = collected(n.unit.program, n.unit.loops, n.axes, n.features)
    return replace(n, unit=replace(n.unit, flat=found.body), axes=found.axes, fragments=found.fragments)


def _shuffles(n: Nest) -> Nest:
    buffers = {b.name: b for b in n.unit.program.buffers if b.scope == SCOPE}
    body, local = shuffled(n.unit.loops, buffers, n.axes)
    return replace(n, unit=replace(n.unit, flat=body), local=(*n.local, *local))


def _owners(n: Nest) -> Nest:
    """Private buffers above threads, and fragments, become storage of each thread."""
    program = n.unit.program
    home, body, local = buffer_loops(program), n.unit.loops, list(n.local)
    used = {name for s in stores(body) for name in (s.buffer, *(x.buffer for x in store_loads(s)))}
    for b in program.buffers:
        if b.name in used and b.scope.split(".")[0] not in ("global", "shared"):
            around = home.get(b.name, frozenset())
            if b.name in n.fragments or b.scope == SCOPE or not _threads_around(program, b.name, n.axes) <= around:
                if b.name in n.fragments:
                    b = replace(b, shape=with_lanes(b.shape, n.fragments[b.name]))
                body, storage = own(body, b, around, n.axes)
                for var in around & n.pipelines.keys():
                    count = n.pipelines[var].versions[b.name]
                    body = versioned(body, b.name, var, count, storage.size)
                    storage = replace(storage, size=count * storage.size)
                local.append(storage)
    return replace(n, unit=replace(n.unit, flat=body), local=tuple(local))


def _threads_around(program: Program, buffer: str, axes: Axes) -> set[str]:
    """The loops that count threads around any block that accesses a buffer."""
    out: set[str] = set()
    for around, s in walk(program.body):
        if isinstance(s, Block):
            stored = (*s.init, *s.body)
            if any(x.buffer == buffer or any(y.buffer == buffer for y in store_loads(x)) for x in stored):
                out |= {x.var for x in around if axes.is_thread(x.var)}
    return out


def _place(n: Nest) -> Nest:
    """Other private and shared buffers get memory; arrays in global memory are arguments."""
    program, done = n.unit.program, {b.name for b in n.local}
    inner = tuple(b for b in program.buffers if b.scope != "global" and b.name not in done)
    flat = place(n.unit.loops, inner, buffer_loops(program), n.unit.carried)
    flat = flatten_params(flat, (*program.params, *_globals(program)))
    return replace(n, unit=replace(n.unit, flat=flat))


def _ends(n: Nest) -> Nest:
    # What a shuffle brings is stored where it is read, in each iteration of the loops around both.
    brought = {b.name for b in n.local} - {b.name for b in n.unit.program.buffers}
    known = replace(_known(n), homes={**buffer_loops(n.unit.program), **loops_around(n.unit.loops, brought)})
    return replace(n, unit=replace(n.unit, flat=with_uniform_ends(n.unit.loops, known, n.axes)))


def _phases(n: Nest) -> Nest:
    program = n.unit.program
    order = [b.name for b in (*program.params, *_globals(program))]
    kernels: list[DeviceKernel] = []
    chains = chains_of(program)
    for k, s in enumerate(n.unit.loops):
        storage = Storage()
        body = phases(s, n.axes, program, n.pipelines, storage, chains)
        all_stores = list(stores((s,)))
        touched = {name for x in all_stores for name in (x.buffer, *(y.buffer for y in store_loads(x)))}
        shared = {b.name for b in storage.shared}
        if torn := sorted({x.buffer for x in all_stores if x.atomic} - {*order, *shared}):
            raise LowerError(
                f"`{torn[0]}` is private to a thread, and its updates are atomic; leave `atomic` out, or store it in"
                ' "shared" or "global"'
            )
        mine = tuple(b for b in n.local if b.name in touched)
        name = f"{program.name}_{n.number}" + (f"_{k}" if len(n.unit.loops) > 1 else "")
        kernels.append(
            DeviceKernel(
                name,
                n.axes.grid,
                threads_of(body, n.axes.threads),
                tuple(p for p in order if p in touched),
                frozenset(x.buffer for x in all_stores if x.buffer in order),
                (*mine, *storage.local),
                tuple(storage.shared),
                storage.bytes,
                body,
                cleared=tuple(name for name in order if name in chains_in(body)),
                notes=tuple(storage.notes),
                cluster=n.axes.cluster,
            )
        )
        kernels[-1] = with_tiles(kernels[-1], storage.awaited)
    _require_one_kernel(kernels)
    return replace(n, kernels=tuple(kernels))


def _require_one_kernel(kernels: list[DeviceKernel]) -> None:
    """Raises LowerError if kernels would have to share memory that ends with each of them."""
    seen: set[str] = set()
    for k in kernels:
        names = {b.name for b in (*k.local, *k.shared)}
        if both := seen & names:
            raise LowerError(
                f"`{min(both)}` is initialised in a grid of its own, and does not outlive it; use `decompose_reduction` at a"
                " loop inside of the blocks"
            )
        seen |= names


def _require_memory_that_lasts(program: Program) -> None:
    """Raises LowerError if a buffer in the memory of a block or of a thread passes from one kernel to another."""
    first: dict[str, Stmt] = {}
    for top in program.body:
        for name in sorted(touched_in(top)):
            scope = program.buffer(name).scope
            if scope != "global" and first.setdefault(name, top) is not top:
                raise LowerError(
                    f'`{name}` is in "{scope}" and passes from one kernel to another, but does not outlive the first; store'
                    ' it in "global", or compute it with `compute_at` inside of the blocks that read it'
                )


def _waits(n: Nest) -> Nest:
    return replace(n, kernels=tuple(map(synchronized, n.kernels)))


def _clusters(n: Nest) -> Nest:
    return replace(n, kernels=tuple(with_clusters(k, n.features) for k in n.kernels))


def _bounds(n: Nest) -> Nest:
    return replace(n, kernels=tuple(with_bounds(k, _known(n)) for k in n.kernels))


def _known(n: Nest) -> Known:
    program = n.unit.whole
    return known_of(program, (*program.params, *_globals(program)))


def _versions(n: Nest) -> Nest:
    return replace(n, kernels=tuple(map(with_choices, n.kernels)))


def _steady(n: Nest) -> Nest:
    return replace(n, kernels=tuple(map(with_steady_steps, n.kernels)))


def _bodies(n: Nest) -> Nest:
    step, above_zero = max_step(n.unit.whole), _known(n).above_zero
    for k in n.kernels:
        for s in collectives_in(k.body):
            require_adjacent(s)
    return replace(
        n,
        kernels=tuple(
            replace(k, body=finished(k.body, [b.name for b in k.local], above_zero, step)) for k in n.kernels
        ),
    )


def _idle(n: Nest) -> Nest:
    return replace(n, kernels=tuple(map(with_idle_defined, n.kernels)))


def _swizzles(n: Nest) -> Nest:
    return replace(n, kernels=tuple(map(with_swizzles, n.kernels)))


PASSES = (
    _Pass("prove", _common("prove"), "instructions without a proof are loops"),
    _Pass("spread", _common("spread"), SPREAD),
    _Pass("essential", _common("essential"), "guards that others imply go"),
    _Pass("stages", _stages, "statements of pipelines are marked"),
    _Pass("erase", _common("erase"), "blocks become stores, `where` guards, `init` stores of its own"),
    _Pass("collectives", _collectives, "tensorized nests become what each lane of a warp accesses"),
    _Pass("shuffles", _shuffles, "lanes of a warp get what others have in registers"),
    _Pass("owners", _owners, "private buffers above threads, and fragments, become storage of each thread"),
    _Pass("guards", _common("guards"), "guards move out of loops that they do not read"),
    _Pass("place", _place, "buffers get memory: a thread's, a block's"),
    _Pass("ends", _ends, "loops in which threads meet end where the conditions of their work do"),
    _Pass("phases", _phases, "bound loops become values of a thread, statements phases"),
    _Pass("waits", _waits, "waits for what runs beside threads, and barriers where they meet"),
    _Pass("clusters", _clusters, "blocks of a cluster load tiles for each other"),
    _Pass("bounds", _bounds, "loops of a thread begin and end where the conditions of their work do, or data choose"),
    _Pass("versions", _versions, "what the number of a step chooses of private storage is a choice among registers"),
    _Pass("steady", _steady, "steps whose conditions are decided have code without them"),
    _Pass("bodies", _bodies, "vectors of whole lanes, unrolled loops over private buffers"),
    _Pass("idle", _idle, "threads without work define private storage, too"),
    _Pass("swizzles", _swizzles, "elements of swizzled buffers get their places"),
)
"""The passes of GPUs, in order."""
