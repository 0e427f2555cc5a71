"""`std.intrinsics`, those for GPUs: layouts as in CUTLASS, and texts that the toolkit's assembler accepts."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from itertools import product
from math import prod
from pathlib import Path

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.intrinsics import intrinsic_from_tree
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Intrinsic
from tensorc_dsl.ir.warp import LANES, MEMORY, held, is_fragment, is_tma, is_tma_store
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.parse import parse

FILES = [
    Path(__file__).parents[2] / "stdlib" / "intrinsics" / f"{name}.tsched"
    for name in ("cuda", "cuda_f8", "hopper", "hopper_f8")
]
DEFINITIONS: dict[str, tree.IntrinsicDef] = {
    i.name: i for file in FILES for i in parse(Source.read(file, file.name)).items if isinstance(i, tree.IntrinsicDef)
}


@cache
def intrinsic(name: str) -> Intrinsic:
    """Checked where a test asks for it: that of all takes seconds, which each process would take to collect the tests."""
    return intrinsic_from_tree(DEFINITIONS[name])


Lay = tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]

HALVES: dict[str, Lay] = {
    "mma.a": (((4, 8), (2, 2, 2)), ((32, 1), (16, 8, 128))),
    "mma.b": (((4, 8), (2, 2)), ((16, 1), (8, 64))),
    "mma.c": (((4, 8), (2, 2)), ((32, 1), (16, 8))),
}
"""Shapes and strides of (lane, value), the first index fastest, by which a place is an offset in the operand, by columns:
`ALayout`, `BLayout` (of the transposed operand) and `CLayout` of CUTLASS (include/cute/atom/mma_traits_sm80.hpp,
`SM80_16x8x16_F16F16F16F16_TN`)."""

WIDE: dict[str, Lay] = HALVES | {
    "mma.b": (((4, 8), (2, 2, 2)), ((32, 1), (16, 128, 8))),
    "mma.c": (((4, 8), (2, 2, 2)), ((32, 1), (16, 8, 128))),
}
"""Two of these side by side: one more bit of a value counts eight columns."""

BYTES: dict[str, Lay] = HALVES | {
    "mma.a": (((4, 8), (4, 2, 2)), ((64, 1), (16, 8, 256))),
    "mma.b": (((4, 8), (4, 2)), ((32, 1), (8, 128))),
}
"""`SM80_16x8x32_S32S8S8S32_TN`."""

SINGLES: dict[str, Lay] = HALVES | {
    "mma.a": (((4, 8), (2, 2)), ((16, 1), (8, 64))),
    "mma.b": (((4, 8), (2,)), ((8, 1), (32,))),
}
"""`SM80_16x8x8_F32TF32TF32F32_TN`."""

DOUBLES: dict[str, Lay] = {
    "mma.a": (((4, 8), (1,)), ((8, 1), (0,))),
    "mma.b": (((4, 8), (1,)), ((8, 1), (0,))),
    "mma.c": (((4, 8), (2,)), ((16, 1), (8,))),
}
"""`SM80_8x8x4_F64F64F64F64_TN`."""


def group(columns: int) -> dict[str, Lay]:
    """`CLayout_64xN` (include/cute/atom/mma_traits_sm90_gmma.hpp): the last part of a lane counts the warps."""
    return {"wgmma.c": (((4, 8, 4), (2, 2, columns // 8)), ((128, 1, 16), (64, 8, 512)))}


def cute(i: Intrinsic) -> dict[str, Lay]:
    if i.name.startswith("wgmma"):
        return group(prod(constant(n) or 0 for n in i.operands[2].shape[1:]))
    if any(b.dtype.name == "f64" for b in i.operands):
        return DOUBLES
    if any(b.dtype.bits == 8 or b.dtype.name == "i32" for b in i.operands):
        return BYTES
    if i.name.endswith("tf32"):
        return SINGLES
    return WIDE if re.search("n16|x4", i.name) else HALVES


@pytest.mark.corpus
@pytest.mark.parametrize("name", DEFINITIONS)
def test_fragments_lie_as_in_cutlass(name: str) -> None:
    i = intrinsic(name)
    for layout in i.layouts:
        if not is_fragment(layout.name):
            continue
        shape, strides = cute(i)[layout.name]
        operand = next(b for b in i.operands if b.scope == layout.name)
        sizes = [constant(n) or 0 for n in operand.shape]
        turned = layout.name == "mma.b"
        height = sizes[1] if turned else sizes[0]
        seen = 0
        for place in product(*(range(n) for part in shape for n in part)):
            offset = sum(n * s for n, s in zip(place, (s for part in strides for s in part), strict=True))
            row, column = offset % height, offset // height
            across = (column,) if len(sizes) == 2 else divmod(column, sizes[-1])  # several lines stand side by side
            values = dict(zip(layout.params, (*across, row) if turned else (row, *across), strict=True))
            found = {n: eval(format_expr(e).replace("/", "//"), {}, values) for n, e in layout.places}
            reg = 0
            lane = len(shape[0])
            for n, size in reversed(list(zip(place[lane:], shape[1], strict=True))):
                reg = reg * size + n
            warp = {"warp": place[2]} if lane == 3 else {}
            assert found == warp | {"lane": place[0] + 4 * place[1], "reg": reg}, (layout.name, values)
            seen += 1
        assert seen == prod(sizes)


def ptx(i: Intrinsic) -> str:
    """The text of an instruction with registers of a kernel in place of its operands."""
    text = i.lowerings[0].code
    if is_tma(i):  # a map with subscripts, and the mbarrier that is not in the text
        corner = ", ".join("%s" for _ in i.operands[1].shape)
        if is_tma_store(i):
            return text.replace("[D], [S]", f"[%p, {{{corner}}}], [%s]")
        return text.replace("[D], [S]", f"[%s], [%p, {{{corner}}}], [%s]")
    for b in i.operands:
        if b.scope in MEMORY:
            text = re.sub(rf"\[{b.name}\d*\]", "[address]", text)
            continue
        if not is_fragment(b.scope):
            text = re.sub(rf"\b{b.name}\b", "%p", text)
            continue
        kind = "d" if b.dtype.bits == 64 else "f" if b.dtype.name == "f32" else "h"
        lanes = len(found.elements) if (found := held(i, b)) is not None else LANES
        count = prod(constant(n) or 0 for n in b.shape) * b.dtype.bits // max(32, b.dtype.bits) // lanes
        every = ", ".join(f"%{kind}{n}" for n in range(count))
        text = re.sub(rf"\b{b.name}(\d)", rf"%{kind}\1", text)
        text = re.sub(rf"\b{b.name}\b", f"{{{every}}}", text)
    return text.replace("address", "%s" if ".shared." in text else "%p")


@pytest.mark.corpus
@pytest.mark.skipif(shutil.which("ptxas") is None, reason="the CUDA toolkit is not installed")
@pytest.mark.parametrize("name", DEFINITIONS)
def test_the_assembler_takes_the_text(name: str, tmp_path: Path) -> None:
    i = intrinsic(name)
    (lowering,) = i.lowerings
    (cpu,), version = lowering.features, max(80, lowering.ptx_version)
    (tmp_path / "k.ptx").write_text(
        f".version {version / 10}\n.target {cpu}\n.address_size 64\n.visible .entry k() {{\n"
        ".reg .b32 %h<4>, %s; .reg .f32 %f<128>; .reg .f64 %d<2>; .reg .b64 %p;\n"
        f"{ptx(i)}\nret;\n}}\n"
    )
    command = ["ptxas", "-arch", cpu, str(tmp_path / "k.ptx"), "-o", str(tmp_path / "k.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
