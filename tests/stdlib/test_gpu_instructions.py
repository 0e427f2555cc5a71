"""`std.intrinsics.cuda`: layouts as in CUTLASS, and texts that the toolkit's assembler accepts."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import product
from math import prod
from pathlib import Path

import pytest

from tensorc_dsl.ir.expr import constant
from tensorc_dsl.ir.intrinsics import intrinsic_from_tree
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Intrinsic
from tensorc_dsl.ir.warp import MEMORY
from tensorc_dsl.source import Source
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.parse import parse

FILE = Path(__file__).parents[2] / "stdlib" / "intrinsics" / "cuda.tsched"
INTRINSICS: dict[str, Intrinsic] = {
    i.name: intrinsic_from_tree(i)
    for i in parse(Source.read(FILE, FILE.name)).items
    if isinstance(i, tree.IntrinsicDef)
}

CUTE = {
    "mma.a": (((4, 8), (2, 2, 2)), ((32, 1), (16, 8, 128)), lambda at: (at % 16, at // 16)),
    "mma.b": (((4, 8), (2, 2)), ((16, 1), (8, 64)), lambda at: (at // 8, at % 8)),
    "mma.c": (((4, 8), (2, 2)), ((32, 1), (16, 8)), lambda at: (at % 16, at // 16)),
}
"""Shapes and strides of (lane, value), the first index fastest, and the element at an offset: `ALayout`, `BLayout` (of the
transposed operand) and `CLayout` of CUTLASS (include/cute/atom/mma_traits_sm80.hpp, `SM80_16x8x16_F16F16F16F16_TN`)."""


@pytest.mark.parametrize("name", INTRINSICS)
def test_fragments_lie_as_in_cutlass(name: str) -> None:
    for layout in INTRINSICS[name].layouts:
        if layout.name in MEMORY:
            continue
        shape, strides, element = CUTE[layout.name]
        seen = 0
        for place in product(*(range(n) for part in shape for n in part)):
            offset = sum(n * s for n, s in zip(place, (s for part in strides for s in part), strict=True))
            values = dict(zip(layout.params, element(offset), strict=True))
            found = {n: eval(format_expr(e).replace("/", "//"), {}, values) for n, e in layout.places}
            lane, reg = place[0] + 4 * place[1], sum(n << k for k, n in enumerate(place[2:]))
            assert found == {"lane": lane, "reg": reg}, (layout.name, values)
            seen += 1
        operand = next(b for b in INTRINSICS[name].operands if b.scope == layout.name)
        assert seen == prod(constant(n) or 0 for n in operand.shape)


def ptx(i: Intrinsic) -> str:
    """The text of an instruction with registers of a kernel in place of its operands."""
    text = i.lowerings[0].code
    for b in i.operands:
        if b.scope in MEMORY:
            text = re.sub(rf"\[{b.name}\d*\]", "[address]", text)
            continue
        kind = "f" if b.dtype.bits == 32 else "h"
        count = prod(constant(n) or 0 for n in b.shape) * b.dtype.bits // 32 // 32
        every = ", ".join(f"%{kind}{n}" for n in range(count))
        text = re.sub(rf"\b{b.name}(\d)", rf"%{kind}\1", text)
        text = re.sub(rf"\b{b.name}\b", f"{{{every}}}", text)
    return text.replace("address", "%s" if ".shared." in text else "%d")


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="the CUDA toolkit is not installed")
@pytest.mark.parametrize("name", INTRINSICS)
def test_the_assembler_takes_the_text(name: str, tmp_path: Path) -> None:
    intrinsic = INTRINSICS[name]
    (tmp_path / "k.ptx").write_text(
        ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k() {\n"
        ".reg .b32 %h<4>, %s; .reg .f32 %f<4>; .reg .b64 %d;\n"
        f"{ptx(intrinsic)}\nret;\n}}\n"
    )
    command = ["ptxas", "-arch", "sm_80", str(tmp_path / "k.ptx"), "-o", str(tmp_path / "k.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
