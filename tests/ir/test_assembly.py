"""Assembly for GPUs beside the layouts of its operands: what is refused, with the whole message, and what is known of PTX."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.intrinsics import intrinsic_from_tree
from tensorc_dsl.ir.program import Intrinsic
from tensorc_dsl.ir.warp import held
from tensorc_dsl.syntax import tree
from tensorc_dsl.syntax.parse import parse

FILE = Path(__file__).parents[2] / "stdlib" / "intrinsics" / "cuda.tsched"

LOAD = """
intrinsic load
    desc (D: f16[16, 8] in "b", S: f16[16, 8] in "shared") {
        D[k, j] = S[k, j]
    }
    layout "b" (k, j) -> (lane: j * 4 + k % 8 / 2, reg: k / 8 * 2 + k % 2)
    layout "shared" (lane, element) -> (k: lane % 16, j: element)
    lower cuda asm "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 D, [S];"
"""

MMA = """
intrinsic product
    desc (A: AT[16, DEPTH] in "a", B: AT[DEPTH, 8] in "b", C: CT[16, 8] in "c") {
        C[i, j] += sum[k] CT(A[i, k]) * CT(B[k, j])
    }
    layout "a" (i, k) -> (lane: i % 8 * 4 + k % (4 * P) / P, reg: (k / (4 * P) * 2 + i / 8) * P + k % P)
    layout "b" (k, j) -> (lane: j * 4 + k % (4 * P) / P, reg: k / (4 * P) * P + k % P)
    layout "c" (i, j) -> (lane: i % 8 * 4 + j / 2, reg: i / 8 * 2 + j % 2)
    lower cuda asm "mma.sync.aligned.m16n8kDEPTH.row.col.TYPES C, A, B, C;"
"""


def read(text: str) -> Intrinsic:
    (item,) = parse(Source("i.tsched", text)).items
    assert isinstance(item, tree.IntrinsicDef)
    return intrinsic_from_tree(item)


def said(text: str) -> list[str]:
    """Each finding as `code: message; help`."""
    with pytest.raises(TschedError) as e:
        read(text)
    return [f"{d.code}: {d.message}; {'; '.join(n.text for n in d.notes)}" for d in e.value.diagnostics]


CASES = {
    "a missing `.trans`": (
        [("x2.trans", "x2")],
        (
            "E0674: `ldmatrix.sync.aligned.m8n8.x2.shared.b16` does something else: lane 0 has j 1, k 0 as its "
            "element 1, and j 0, k 1 by the layout; write it with `.trans`"
        ),
    ),
    "a `.trans` too many": (
        [
            ("S: f16[16, 8]", "S: f16[8, 16]"),
            ("S[k, j]", "S[j, k]"),
            ("(k: lane % 16, j: element)", "(j: lane % 8, k: lane / 8 % 2 * 8 + element)"),
        ],
        (
            "E0674: `ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16` does something else: lane 0 has j 1, k 0 as "
            "its element 1, and j 0, k 1 by the layout; write it without `.trans`"
        ),
    ),
    "a wrong layout of the fragment": (
        [("reg: k / 8 * 2 + k % 2", "reg: k % 2 * 2 + k / 8")],
        (
            "E0674: `ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16` does something else: lane 0 has j 0, k 1 as "
            'its element 1, and j 0, k 8 by the layout; mend the layouts "b" and "shared"'
        ),
    ),
    "rows at other lanes": (
        [("k: lane % 16", "k: 15 - lane % 16")],
        (
            "E0674: `ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16` does something else: lane 0 has j 0, k 15 as"
            ' its element 0, and j 0, k 0 by the layout; mend the layouts "b" and "shared"'
        ),
    ),
    "another number of matrices": (
        [("x2", "x4")],
        (
            "E0674: `ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16` does something else: x4 moves 4 matrices of "
            "8 rows of 16 bytes, a row at each address, and turns those of 16 bits alone; it has 512 bytes; `D` has 256"
        ),
    ),
    "operands in another order": (
        [("D, [S]", "[S], D")],
        (
            "E0674: `ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16` does something else: it takes a fragment and"
            " the addresses of rows; write `ldmatrix… D, [S];`"
        ),
    ),
    "no shared memory": (
        [(".shared", "")],
        (
            "E0674: `ldmatrix.sync.aligned.m8n8.x2.trans.b16` does something else: its addresses are within shared"
            ' memory; write `.shared`, and `in "shared"` for `S`'
        ),
    ),
    "an unknown operand": (
        [("[S]", "[T]")],
        "E0674: there is no operand `T`; there are `D`, `S`",
    ),
    "an operand that is missing": (
        [(", [S]", "")],
        "E0674: the text does not name `S`; each operand that the effect stores or reads takes part",
    ),
    "a register too many": (
        [("b16 D,", "b16 {D0, D2},")],
        "E0674: `D2` is beyond the 2 registers that a lane has of it; they are counted from 0",
    ),
    "an address too many": (
        [("[S]", "[S1]")],
        "E0674: `S1` is beyond the 1 addresses that a lane has of it; they are counted from 0",
    ),
    "a fragment without lanes": (
        [("lane: j * 4 + k % 8 / 2", "row: j * 4 + k % 8 / 2")],
        (
            'E0674: no layout says where the lanes of a warp have `D`, which is in "b"; say it for each of its '
            'elements, `layout "b" (i, j) -> (lane: …, reg: …)`, for lanes 0 to 31; every lane has equally many, '
            "counted from 0"
        ),
    ),
    "memory without addresses": (
        [('    layout "shared" (lane, element) -> (k: lane % 16, j: element)\n', "")],
        (
            'E0674: no layout says where the lanes of a warp have `S`, which is in "shared"; say it for each of '
            'its elements, `layout "shared" (lane, element) -> (i: …, j: …)`, for lanes 0 to 31; a lane gives the'
            " address of element 0, and the others are adjacent"
        ),
    ),
    "elements that no lane reaches": (
        [("k: lane % 16", "k: lane % 8")],
        (
            'E0672: layout "shared" does not say where lanes reach each element of `S`; for lanes 0 to 31 it goes'
            ' from the lane and the number of an element behind an address to subscripts: `layout "shared" (lane,'
            " element) -> (i: …, j: …)`; with several addresses a lane, `(lane, address, element)`"
        ),
    ),
    "two lanes that store one element": (
        [("D[k, j] = S[k, j]", "S[k, j] = D[k, j]")],
        "E0674: two lanes store one element of `S`; a lane stores what no other one does",
    ),
    "marks that are none": (
        [("[S];", "[S]; $0")],
        ("E0674: the text has a `$`, which has no place in it; write opcodes, operands, numbers and `.,;:[]{}%+-`"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_text_cannot_mean_is_told(case: str) -> None:
    changes, message = CASES[case]
    text = LOAD
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    assert message in said(text)


SHAPES = {
    "f16": ("f16", "f32", 16, 2, "f32.f16.f16.f32"),
    "f16, 8 deep": ("f16", "f32", 8, 2, "f32.f16.f16.f32"),
    "bf16": ("bf16", "f32", 16, 2, "f32.bf16.bf16.f32"),
    "tf32": ("f32", "f32", 8, 1, "f32.tf32.tf32.f32"),
    "int8": ("i8", "i32", 32, 4, "s32.s8.s8.s32"),
    "unsigned": ("u8", "i32", 16, 4, "s32.u8.u8.s32"),
}


def mma(shape: str) -> str:
    t, to, depth, packed, types = SHAPES[shape]
    text = MMA.replace("AT", t).replace("CT", to).replace("DEPTH", str(depth)).replace("TYPES", types)
    return text.replace("4 * P", str(4 * packed)).replace("P", str(packed))


@pytest.mark.parametrize("shape", SHAPES)
def test_products_of_all_shapes_have_their_fragments_where_the_manual_has_them(shape: str) -> None:
    """The layouts here are written from the figures of the manual, the check from one formula for all of them."""
    i = read(mma(shape))
    for b, count in zip(i.operands, (SHAPES[shape][2] // 2, SHAPES[shape][2] // 4, 4), strict=True):
        found = held(i, b)
        assert found is not None and found.count == count


@pytest.mark.parametrize(
    ("old", "new"), [("+ i / 8) *", "+ 1 - i / 8) *"), ("lane: j * 4", "lane: (7 - j) * 4"), ("C, A, B", "C, B, A")]
)
def test_a_product_with_another_layout_is_told(old: str, new: str) -> None:
    text = mma("f16").replace(old, new)
    assert text != mma("f16")
    (message,) = said(text)
    assert message.startswith(
        "E0674: `mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32` does something else: lane 0 has "
    )


def test_a_product_of_another_size_is_told() -> None:
    (message,) = said(mma("f16").replace("m16n8k16", "m16n8k8"))
    assert message.endswith(
        "it is a product of 16 x 8 x 8; let the sizes of `desc` be those of the opcode, or give it a part, `{C0, C1, C2, C3}`"
    )


def test_instructions_that_are_not_known_are_taken_as_declared() -> None:
    text = LOAD.replace("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 D, [S];", "ld.shared.v2.b32 D, [S];")
    assert read(text).lowerings[0].code == "ld.shared.v2.b32 D, [S];"


PAIR = "mma_m16n16k16_f16"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{C4, C5, C6, C7}, A, {B2, B3}, {C4, C5, C6, C7}", "{C4, C5, C6, C7}, A, {B0, B1}, {C4, C5, C6, C7}"),
        ("{C4, C5, C6, C7}, A, {B2, B3}, {C4, C5, C6, C7}", "{C4, C5, C6, C7}, A, {B3, B2}, {C4, C5, C6, C7}"),
        ("{C0, C1, C2, C3}, A, {B0, B1}, {C0, C1, C2, C3}", "{C0, C1, C2, C3}, A, {B0, B1}, {C4, C5, C6, C7}"),
        ("{C0, C1, C2, C3}, A, {B0, B1}, {C0, C1, C2, C3}", "{C0, C1, C3, C2}, A, {B0, B1}, {C0, C1, C3, C2}"),
        ("{C0, C1, C2, C3}, A, {B0, B1}, {C0, C1, C2, C3}", "C, A, {B0, B1}, C"),
    ],
)
def test_parts_of_fragments_are_compared_too(old: str, new: str) -> None:
    """An instruction that is written twice, for the left and the right half of its columns."""
    text = FILE.read_text(encoding="utf-8")
    text = text[text.index(f"intrinsic {PAIR}") : text.index("/// As `mma_m16n16k16_f16`, of bf16.")]
    read(text)
    assert old in text
    (message,) = said(text.replace(old, new))
    assert message.startswith("E0674: `mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32` does something else: ")


GROUP = "wgmma_m64n64k16_f16"

PRODUCTS = {
    "lines that are said to be columns": (
        [("1, 1, 0, 1; }", "1, 1, 0, 0; }")],
        "the lines of `B` are not along the sum, `(line: j, element: k)`; write 1 for `B`",
    ),
    "rows that are said to be columns": (
        [("1, 1, 0, 1; }", "1, 1, 1, 1; }")],
        "`A` has lines along the sum, `(line: k, element: i)`; write 0 for `A`",
    ),
    "lines in another order": (
        [("(line: i, element: k, swizzle: 128)", "(line: 63 - i, element: k, swizzle: 128)")],
        'the lines of `A` are not along the sum, `(line: i, element: k)`; mend the layout "shared.a"',
    ),
    "other registers": (
        [("reg: j / 8 * 4 + i % 16 / 8 * 2 + j % 2", "reg: j / 8 * 4 + j % 2 * 2 + i % 16 / 8")],
        (
            "lane 0 of warp 0 has row 0, column 1 as element 1, and row 8, column 0 by the layout; mend the layout"
            ' "wgmma.c"'
        ),
    ),
    "a predicate that is false": (
        [("setp.eq.b32 p, 0, 0", "setp.eq.b32 p, 0, 1")],
        (
            "it adds to the old sums where `p` is true, which `setp.eq.b32 p, 0, 1` does not say; write `{ .reg .pred p;"
            " setp.eq.b32 p, 0, 0; wgmma… C, A, B, p, 1, 1, 0, 0; }`"
        ),
    ),
    "operands in another order": (
        [("C, A, B, p", "C, B, A, p")],
        (
            "its operands are `C, B, A, p, 1, 1, 0, 1`; write `{ .reg .pred p; setp.eq.b32 p, 0, 0; wgmma… C, A, B, p, 1, 1,"
            " 0, 0; }`"
        ),
    ),
    "another type": (
        [("f32.f16.f16", "f32.bf16.bf16")],
        "its types are f32, bf16, bf16, those of `desc` are f32, f16, f16; let both be the same",
    ),
    "another size": (
        [("m64n64k16.f32", "m64n128k16.f32")],
        "it is a product of 64 x 128 x 16; let the sizes of `desc` be those of the opcode",
    ),
    "an instruction that is not known": (
        [("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", "wgmma.other")],
        (
            "descriptors and fragments of four warps are for one `wgmma.mma_async`; write `{ .reg .pred p; setp.eq.b32 p, 0,"
            " 0; wgmma… C, A, B, p, 1, 1, 0, 0; }`"
        ),
    ),
    "a swizzle that there is not": (
        [("element: j, swizzle: 128)", "element: j, swizzle: 48)")],
        (
            'no layout says how a descriptor has `B`, which is in "shared.b"; say it for each of its elements, '
            '`layout "shared.b" (i, j) -> (line: …, element: …, swizzle: …)`: lines are eight or a multiple, of whole units '
            "of 16 bytes, and a swizzle has 0, 32, 64, 128 bytes"
        ),
    ),
}


def require_said(text: str, changes: list[tuple[str, str]], message: str) -> None:
    """A declaration is taken as it is, and with changes there is one finding, which ends so."""
    read(text)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (found,) = said(text)
    assert found.startswith("E0674: ") and found.endswith(message)


@pytest.mark.parametrize("case", PRODUCTS)
def test_products_of_warpgroups_are_compared_with_their_layouts(case: str) -> None:
    text = FILE.with_name("hopper.tsched").read_text(encoding="utf-8")
    require_said(text[text.index(f"intrinsic {GROUP}\n") : text.index(f"/// As `{GROUP}`, with")], *PRODUCTS[case])


BOX = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"

WRITE = f"write `{BOX} [D], [S];`"

BOXES = {
    "operands in another order": ([("[D], [S];", "[S], [D];")], f"its operands are `[S], [D]`; {WRITE}"),
    "another rank": ([("tensor.2d", "tensor.3d")], f"a tensor map is for one copy of a tile of 2 dimensions; {WRITE}"),
    "an instruction that is not known": (
        [("complete_tx::bytes", "other")],
        f"a tensor map is for one copy of a tile of 2 dimensions; {WRITE}",
    ),
    "a value that is computed": (
        [("= S[i, j]", "= S[i, j] + S[i, j]")],
        "TMA copies a tile as it is; let the effect store elements of one operand",
    ),
    "lines of other bytes than the swizzle": (
        [("swizzle: 128", "swizzle: 64")],
        (
            "lines of `D` have 128 bytes, and those of its swizzle 64; let a line have as many bytes as the swizzle, or 16"
            " without one"
        ),
    ),
    "an array with a swizzle": (
        [("swizzle: 0", "swizzle: 128")],
        'the elements of an array are in plain order; write `swizzle: 0` in the layout "global.tile"',
    ),
    "a box that is too long": (
        [("[64, 64]", "[264, 8]"), ("swizzle: 128", "swizzle: 0")],
        "a tile has 264 elements along a dimension; let it have up to 256",
    ),
    "lines along another dimension": (
        [("(line: i, element: j, swizzle: 0)", "(line: j, element: i, swizzle: 0)")],
        "`S` has lines along its last dimension, in the order of the others; mend the layout \"global.tile\"",
    ),
    "lines that are turned": (
        [("(line: i, element: j, swizzle: 128)", "(line: j, element: i, swizzle: 128)")],
        'a line of `D` is not the line of `S` that it is a copy of; mend the layout "shared.tile"',
    ),
    "a target that is not shared": (
        [('"shared.tile"', '"global.other"')],
        "it copies between global and shared memory, and both have lines; declare `in` a scope `shared.…`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BOXES)
def test_copies_of_boxes_are_compared_with_their_layouts(case: str) -> None:
    text = FILE.with_name("hopper.tsched").read_text(encoding="utf-8")
    start, end = "intrinsic tma_64x64_f16\n", "/// As `tma_64x64_f16`, of bf16"
    require_said(text[text.index(start) : text.index(end)], *BOXES[case])
