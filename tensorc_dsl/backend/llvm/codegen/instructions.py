"""Writes instructions as calls of LLVM functions: loads tiles into vectors, makes the call, stores the result.

A vector holds the elements of its operand in order, the last dimension fastest. Elements that are contiguous in memory
are loaded together, in any order of the operand: a tile with contiguous rows and one with contiguous columns
both take as many loads as there are contiguous runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from tensorc_dsl.backend.llvm.codegen.body import Expressions
from tensorc_dsl.backend.llvm.codegen.function import Function, in_memory, vector_type
from tensorc_dsl.backend.llvm.kind import OPERATIONS, SPLAT, Call, Value, bits_of, call_of, operand_bits, values_of
from tensorc_dsl.ir.expr import Expr, add, constant, index, mul
from tensorc_dsl.ir.program import Intrinsic
from tensorc_dsl.lower.flat import Instruction
from tensorc_dsl.proof.sets.instructions import Tile

KIND = "llvm"


def code_for(intrinsic: Intrinsic, features: Sequence[str]) -> str | None:
    """The first call for the instruction that a machine with these features has; None if it has none."""
    fitting = (x.code for x in intrinsic.lowerings if x.fits(KIND, features))
    return next(fitting, None)


@dataclass(frozen=True, slots=True)
class _Run:
    """Contiguous elements from `start` on; `lanes` has the lanes of the vector for each element."""

    start: Expr
    lanes: tuple[tuple[int, ...], ...]


def _runs(tile: Tile) -> list[_Run]:
    """The elements of a tile in the smallest number of contiguous runs, in memory order if that is known."""
    (origin,), strides = tile.origin, [step for (step,) in tile.steps]
    sizes = [constant(n) or 0 for n in tile.operand.shape]
    groups: dict[Expr, dict[int, list[int]]] = {}
    for lane, point in enumerate(product(*map(range, sizes))):
        start, offset = origin, 0
        for stride, k in zip(strides, point, strict=True):
            step = constant(stride)
            if step is None:
                start = add(start, mul(stride, index(k)))
            else:
                offset += step * k
        groups.setdefault(start, {}).setdefault(offset, []).append(lane)
    out: list[_Run] = []
    for start, places in groups.items():
        at = sorted(places)
        first = 0
        for k in range(1, len(at) + 1):
            if k == len(at) or at[k] != at[k - 1] + 1:
                out.append(_Run(add(start, index(at[first])), tuple(tuple(places[o]) for o in at[first:k])))
                first = k
    return out


def write_instruction(f: Function, e: Expressions, s: Instruction, code: str) -> None:
    """Write the instruction by the call that `code` spells."""
    call = call_of(code)
    assert call is not None  # an `intrinsic` with another form is refused
    tiles = {t.operand.name: t for t in s.tiles}
    known = {v: _argument(f, e, tiles[v.name], v.type) for v in dict.fromkeys(values_of(call)) if v.name in tiles}
    _store(f, e, tiles[s.intrinsic.store.buffer], call.result, _call(f, call, known))


def _call(f: Function, call: Call, known: Mapping[Value, str]) -> str:
    """The result of a call; `known` has the values of operands."""
    args: list[tuple[str, str]] = []
    for a in call.args:
        match a:
            case Call():
                args.append((a.result, _call(f, a, known)))
            case Value():
                number = f"splat ({a.type.rpartition(' x ')[2].strip('<>')} {a.name})" if "<" in a.type else a.name
                args.append((a.type, known.get(a, number)))
    if call.function == SPLAT:
        return _splat(f, args[0][0], args[0][1], bits_of(call.result) // bits_of(args[0][0]))
    if call.function in OPERATIONS:
        return f.op(f"{call.function} {call.result} {', '.join(ref for _, ref in args)}")
    f.module.declare(call.result, call.function, tuple(type_ for type_, _ in args))
    return f.op(f"call {call.result} @{call.function}({', '.join(f'{type_} {ref}' for type_, ref in args)})")


def _cast(f: Function, ref: str, old: str, new: str) -> str:
    return ref if old == new else f.op(f"bitcast {old} {ref} to {new}")


def _lanes(tile: Tile) -> int:
    return operand_bits(tile.operand) // tile.operand.dtype.bits


def _argument(f: Function, e: Expressions, tile: Tile, type_: str) -> str:
    """A tile as a value of `type_`, repeated until it fills the type."""
    own = operand_bits(tile.operand)
    times = bits_of(type_) // own
    ref, vector = _load(f, e, tile), vector_type(in_memory(tile.operand.dtype), _lanes(tile))
    if times == 1:
        return _cast(f, ref, vector, type_)
    repeated = _splat(f, f"i{own}", _cast(f, ref, vector, f"i{own}"), times)
    return _cast(f, repeated, vector_type(f"i{own}", times), type_)


def _splat(f: Function, element: str, ref: str, times: int) -> str:
    vector = vector_type(element, times)
    one = f.op(f"insertelement {vector} poison, {element} {ref}, i64 0")
    return f.op(f"shufflevector {vector} {one}, {vector} poison, <{times} x i32> zeroinitializer")


def _mask(indices: Sequence[int | None]) -> str:
    entries = ", ".join("i32 poison" if k is None else f"i32 {k}" for k in indices)
    return f"<{len(indices)} x i32> <{entries}>"


def _load(f: Function, e: Expressions, tile: Tile) -> str:
    """The vector of a tile's elements."""
    n, element, align = _lanes(tile), in_memory(tile.operand.dtype), tile.operand.dtype.bytes
    vector = vector_type(element, n)
    whole, filled = "poison", set[int]()
    for run in _runs(tile):
        part = vector_type(element, len(run.lanes))
        ref = f.op(f"load {part}, ptr {e.pointer(tile.buffer, run.start, None)}, align {align}")
        places: list[int | None] = [None] * n
        for k, lanes in enumerate(run.lanes):
            for lane in lanes:
                places[lane] = k
        if places != list(range(len(run.lanes))):
            ref = f.op(f"shufflevector {part} {ref}, {part} poison, {_mask(places)}")
        if filled:
            both = [k if k in filled else None if places[k] is None else n + k for k in range(n)]
            ref = f.op(f"shufflevector {vector} {whole}, {vector} {ref}, {_mask(both)}")
        whole = ref
        filled.update(k for k in range(n) if places[k] is not None)
    return whole


def _store(f: Function, e: Expressions, tile: Tile, type_: str, result: str) -> None:
    n, element, align = _lanes(tile), in_memory(tile.operand.dtype), tile.operand.dtype.bytes
    vector = vector_type(element, n)
    whole = _cast(f, result, type_, vector)
    for run in _runs(tile):
        part, ref = vector_type(element, len(run.lanes)), whole
        lanes = [lane for (lane,) in run.lanes]  # the elements of a result are distinct
        if lanes != list(range(n)):
            ref = f.op(f"shufflevector {vector} {whole}, {vector} poison, {_mask(lanes)}")
        f.line(f"store {part} {ref}, ptr {e.pointer(tile.buffer, run.start, None)}, align {align}")
