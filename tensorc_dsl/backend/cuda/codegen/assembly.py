"""Writes an instruction of a warp as assembly: a lane's registers and addresses in place of the operands in its text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tensorc_dsl.backend.cuda.isa.assembly import Line, Ref, lines_of
from tensorc_dsl.backend.cuda.lower.collectives import Access, address_of, element_of, operands_of, register_of
from tensorc_dsl.backend.cuda.lower.shared_layout import Descriptor, descriptors_of
from tensorc_dsl.backend.llvm.codegen.expressions import Expressions
from tensorc_dsl.backend.llvm.codegen.function import Function, Scalar, in_memory
from tensorc_dsl.ir.dtypes import DType
from tensorc_dsl.ir.expr import ZERO, index, loads, substitute
from tensorc_dsl.ir.warp import REGISTER_BITS, UNIT
from tensorc_dsl.lower.flat import Collective, TmaTile

# Writes the descriptor of an operand in shared memory, as `wgmma` takes it.
#
# PTX ISA 9.2, section 9.7.15: "Matrix Descriptor Format". Addresses and distances are in units of 16 bytes.


_MODES = {0: 0, 128: 1, 64: 2, 32: 3}
"""What a descriptor calls the bytes of a swizzle."""

_FIELD = (1 << 14) - 1
"""The largest number of an address or a distance."""


def write_descriptor(f: Function, d: Descriptor, base: str, units: Scalar) -> tuple[str, int]:
    """The low and the high 32 bits of the descriptor of an operand that begins so many units, of 64 bits, behind an address
    of 32 bits within shared memory. The high ones are the same for all operands of a kind.

    Units are added to that of the buffer, as in CUTLASS: then the descriptors of a loop are a constant apart. The sum is
    within the 14 bits of an address, since shared memory has less than 256 KB.
    """
    leading, high = fields(d)
    first = f.cached(f"and i32 {f.cached(f'lshr i32 {base}, {UNIT.bit_length() - 1}')}, {_FIELD}")
    low = f.cached(f"or i32 {first}, {leading}")
    behind = f.op(f"trunc i64 {units} to i32")
    return f.op(f"add i32 {low}, {behind}"), high


def fields(d: Descriptor) -> tuple[int, int]:
    """What a descriptor says besides the address, as its low and its high 32 bits."""
    leading, stride = d.beyond, d.groups
    if d.operand.deep and not d.operand.swizzle:  # both are named after the dimension of rows or columns there
        leading, stride = stride, leading
    return (leading // UNIT & _FIELD) << 16, stride // UNIT & _FIELD | _MODES[d.operand.swizzle] << 30


CONSTRAINTS = {"float": "f", "double": "d", "i32": "r", "i64": "l"}
"""The letters of registers in inline assembly, of LLVM and of CUDA C++, by LLVM's types."""


@dataclass(frozen=True, slots=True)
class _Register:
    """A register of a fragment: its LLVM type, and the address of the storage that it is of."""

    kind: str
    place: str
    align: int


def write_assembly(f: Function, e: Expressions, s: Collective) -> None:
    """Write the instruction. It is convergent: LLVM moves it into no branch and out of none."""
    operands = operands_of(s)
    stored = s.intrinsic.store.buffer
    read = {x.buffer for x in loads(s.intrinsic.store.value)}
    registers = {n: _registers(f, e, a) for n, a in operands.items() if not a.held.addresses}
    out = registers.get(stored, [])
    lines = lines_of(s.intrinsic, s.code)
    early = "&" if len(lines) > 1 else ""
    constraints = [f"={early}{CONSTRAINTS[r.kind]}" for r in out]
    arguments: list[str] = []
    numbers: dict[Ref, int] = {Ref(stored, n): n for n in range(len(out))}
    for name, own in registers.items():
        if name in read:
            for n, r in enumerate(own):
                if name != stored:
                    numbers[Ref(name, n)] = len(constraints)
                constraints.append(str(n) if name == stored else CONSTRAINTS[r.kind])
                arguments.append(f"{r.kind} {f.op(f'load {r.kind}, ptr {r.place}, align {r.align}')}")
    for name, a in operands.items():
        for n in range(a.held.addresses):
            numbers[Ref(name, n)] = len(constraints)
            kind, value = _address(f, e, name, a, n)
            constraints.append(CONSTRAINTS[kind])
            arguments.append(f"{kind} {value}")
    for name, d in descriptors_of(s).items():
        numbers[Ref(name, 0)] = len(constraints)
        constraints.append("l")
        base = _within(f, e.pointer(d.buffer, ZERO, None))
        low, high = write_descriptor(f, d, base, e.index(d.unit))
        # LLVM would add 64 bits in place of 32, with constants that ptxas 13.5 crashes at.
        joined = f.op(f'call i64 asm "mov.b64 $0, {{$1, {high:#x}}};", "=l,r"(i32 {low}) nounwind memory(none)')
        arguments.append(f"i64 {joined}")
    memory = any(a.held.addresses for a in operands.values()) or len(operands) < len(s.intrinsic.operands)
    if memory:
        constraints.append("~{memory}")
    _call(f, assembly_text(lines, numbers, registers), out, constraints, arguments, memory)


def write_tma_load(f: Function, e: Expressions, s: Collective, tensor: str, mbarrier: str) -> None:
    """Write the start of a TMA load, by the tensor map at a pointer. The opcode has the dimensions of the array."""
    assert s.tile is not None  # it is one of a tile
    opcode, coordinates, kinds, given = _tensor(f, e, s, s.tile, tensor)
    text = f"{opcode} [$0], [$1, {coordinates}], [${len(given)}];"
    _call(f, text, (), [*kinds, "r", "~{memory}"], [*given, f"i32 {mbarrier}"], True)


def write_tma_store(f: Function, e: Expressions, s: Collective, tensor: str) -> None:
    """Write the start of a TMA store, by the tensor map at a pointer. The opcode has the dimensions of the array."""
    assert s.tile is not None  # it is one of a tile
    opcode, coordinates, kinds, given = _tensor(f, e, s, s.tile, tensor)
    _call(f, f"{opcode} [$1, {coordinates}], [$0];", (), [*kinds, "~{memory}"], given, True)


def _tensor(
    f: Function, e: Expressions, s: Collective, tile: TmaTile, tensor: str
) -> tuple[str, str, list[str], list[str]]:
    """The opcode of a copy of a tile, its coordinates in the array as text, and the constraints and values of its operands:
    the address in shared memory, the tensor map, the coordinates."""
    (d,) = descriptors_of(s).values()
    (line,) = lines_of(s.intrinsic, s.code)
    rank = len(tile.origin)
    opcode = OPCODE_RANK.sub(f".{rank}d.", line.opcode, count=1)
    given = [f"i32 {_within(f, e.pointer(d.buffer, d.first, None))}", f"i64 {f.op(f'ptrtoint ptr {tensor} to i64')}"]
    given += [f"i32 {f.op(f'trunc i64 {e.index(x)} to i32')}" for x in reversed(tile.origin)]
    coordinates = ", ".join(f"${n}" for n in range(2, rank + 2))
    return opcode, f"{{{coordinates}}}", ["r", "l", *("r" for _ in range(rank))], given


OPCODE_RANK = re.compile(r"\.[1-5]d\.")
"""The dimensions in an opcode of tensors."""


def _call(
    f: Function, text: str, out: Sequence[_Register], constraints: Sequence[str], arguments: Sequence[str], memory: bool
) -> None:
    """Call the text, and store what it gives. One that accesses memory is neither left out nor moved past an access."""
    result = "void" if not out else out[0].kind if len(out) == 1 else f"{{ {', '.join(r.kind for r in out)} }}"
    marks, effect = ("sideeffect ", "") if memory else ("", " memory(none)")
    call = f'call {result} asm {marks}"{text}", "{",".join(constraints)}"({", ".join(arguments)})'
    call += f" convergent nounwind{effect}"
    if not out:
        f.line(call)
        return
    found = f.op(call)
    for n, r in enumerate(out):
        part = found if len(out) == 1 else f.op(f"extractvalue {result} {found}, {n}")
        f.line(f"store {r.kind} {part}, ptr {r.place}, align {r.align}")


def assembly_text(lines: Sequence[Line], numbers: Mapping[Ref, int], registers: Mapping[str, Sequence[object]]) -> str:
    """The text with LLVM's numbers of operands, `$0`."""
    out: list[str] = []
    for line in lines:
        parts = [line.braces, line.opcode, " "]
        for x in line.rest:
            if isinstance(x, str):
                parts.append(x)
            elif x.name in registers and x.number is None:
                every = ", ".join(f"${numbers[Ref(x.name, n)]}" for n in range(len(registers[x.name])))
                parts.append(f"{{{every}}}")
            else:
                parts.append(f"${numbers[Ref(x.name, x.number or 0)]}")
        out.append("".join(parts).rstrip() + (";" if line.opcode else ""))
    return " ".join(out)


def kind_of(t: DType) -> str:
    """LLVM's type of a register with elements of that type."""
    return f"i{REGISTER_BITS}" if t.bits < REGISTER_BITS else in_memory(t)


def _registers(f: Function, e: Expressions, a: Access) -> list[_Register]:
    """The registers of a lane, in the private storage of a fragment."""
    t = a.held.operand.dtype
    kind = kind_of(t)
    first = e.pointer(a.buffer, substitute(a.index, {register_of(a.held.operand.name): ZERO}), None)
    places = [first] + [f.op(f"getelementptr {kind}, ptr {first}, i64 {n}") for n in range(1, a.held.registers)]
    return [_Register(kind, p, max(t.bytes, REGISTER_BITS // 8)) for p in places]


def _address(f: Function, e: Expressions, name: str, a: Access, n: int) -> tuple[str, str]:
    """The type and value of an address: 32 bits within the shared memory of a block, 64 bits anywhere."""
    place = e.pointer(a.buffer, substitute(a.index, {address_of(name): index(n), element_of(name): ZERO}), None)
    if a.held.operand.scope != "shared":
        return "i64", f.op(f"ptrtoint ptr {place} to i64")
    return "i32", _within(f, place)


def _within(f: Function, place: str) -> str:
    """A pointer as an address within the shared memory of a block, of 32 bits."""
    within = f.op(f"addrspacecast ptr {place} to ptr addrspace(3)")
    return f.op(f"ptrtoint ptr addrspace(3) {within} to i32")


def write_tied(f: Function, text: str, storage: Sequence[tuple[str, DType, int]]) -> None:
    """Write a text between which and private storage, as (pointer, type, elements), nothing is moved past the other."""
    places: list[_Register] = []
    for pointer, t, size in storage:
        kind = kind_of(t)
        for n in range(size * t.bits // max(REGISTER_BITS, t.bits)):
            place = f.op(f"getelementptr {kind}, ptr {pointer}, i64 {n}")
            places.append(_Register(kind, place, max(t.bytes, REGISTER_BITS // 8)))
    values = [f"{r.kind} {f.op(f'load {r.kind}, ptr {r.place}, align {r.align}')}" for r in places]
    constraints = [f"={CONSTRAINTS[r.kind]}" for r in places] + [str(n) for n in range(len(places))] + ["~{memory}"]
    _call(f, text, places, constraints, values, True)
