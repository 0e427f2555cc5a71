"""Mappings of blocks onto instructions, against every assignment of iterators to axes that the definition allows."""

from __future__ import annotations

from itertools import product

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.expr import Load, constant, loads
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.print import format_expr
from tensorc_dsl.ir.program import Block, Intrinsic, blocks
from tensorc_dsl.proof.sets.instructions import mappings

MMA = "intrinsic mma desc (A: f32[4, 8], B: f32[8, 16], C: f32[4, 16]) { C[i, j] += sum[k] A[i, k] * B[k, j] }\n"
DOT = "intrinsic dot desc (A: u8[4], B: i8[16, 4], C: i32[16]) { C[i] += sum[k] i32(A[k]) * i32(B[i, k]) }\n"
ROW = "intrinsic row desc (A: f32[1, 8], B: f32[8], C: f32[1]) { C[i] += sum[k] A[i, k] * B[k] }\n"
ADD = "intrinsic vadd desc (A: f32[8], B: f32[8], C: f32[8]) { C[i] = A[i] + B[i] }\n"


def read(
    intrinsic: str, params: str, iters: str, body: str, reduced: str = "", where: str = ""
) -> tuple[Block, Intrinsic]:
    """A block over iterators `name:extent`, one loop each; those in `reduced` are reductions."""
    sizes = dict(x.split(":") for x in iters.split())
    loops = ", ".join(f"{n} in {e}" for n, e in sizes.items())
    kind = {n: "reduce" if n in reduced.split() else "spatial" for n in sizes}
    lines = "; ".join(f"{kind[n]} v{n} in {e} = {n}" for n, e in sizes.items())
    text = f"{intrinsic}program p({params}) {{ for {loops} {{ block whole {{ {lines}{where}\n{body} }} }} }}"
    p = parse_program(Source("p", text))
    (b,) = blocks(p)
    (i,) = p.intrinsics
    return b, i


def conv(n: int = 2) -> tuple[Block, Intrinsic]:
    return read(
        MMA, f"X: f32[{n}, 3, 3, 2], W: f32[2, 2, 2, 3], Y: f32[{n}, 2, 2, 3]", f"n:{n} h:2 w:2 o:3 kh:2 kw:2 c:2",
        "Y[vn, vh, vw, vo] = Y[vn, vh, vw, vo] + X[vn, vh + vkh, vw + vkw, vc] * W[vkh, vkw, vc, vo]", "kh kw c",
    )  # fmt: skip


MATMUL = ("A: f32[5, 6], B: f32[6, 7], C: f32[5, 7]", "i:5 j:7 k:6")
CASES = {
    "matmul": read(MMA, *MATMUL, "C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]", "k"),
    "matmul, factors swapped": read(MMA, *MATMUL, "C[vi, vj] = B[vk, vj] * A[vi, vk] + C[vi, vj]", "k"),
    "matmul of bytes": read(
        DOT, "A: i8[5, 6], B: u8[6, 7], C: i32[5, 7]", "i:5 j:7 k:6",
        "C[vi, vj] = C[vi, vj] + i32(A[vi, vk]) * i32(B[vk, vj])", "k",
    ),
    "gram": read(MMA, "X: f32[5, 6], C: f32[5, 5]", "i:5 j:5 k:6", "C[vi, vj] = C[vi, vj] + X[vi, vk] * X[vj, vk]", "k"),
    "conv2d": conv(),
    "depthwise": read(
        MMA, "X: f32[2, 5, 3], W: f32[2, 3], Y: f32[2, 4, 3]", "n:2 h:4 c:3 r:2",
        "Y[vn, vh, vc] = Y[vn, vh, vc] + X[vn, vh + vr, vc] * W[vr, vc]", "r",
    ),
    "batched matmul": read(
        MMA, "A: f32[3, 5, 6], B: f32[3, 6, 7], C: f32[3, 5, 7]", "b:3 i:5 j:7 k:6",
        "C[vb, vi, vj] = C[vb, vi, vj] + A[vb, vi, vk] * B[vb, vk, vj]", "k",
    ),
    "one matrix for all": read(
        MMA, "A: f32[3, 5, 6], B: f32[6, 7], C: f32[3, 5, 7]", "b:3 i:5 j:7 k:6",
        "C[vb, vi, vj] = C[vb, vi, vj] + A[vb, vi, vk] * B[vk, vj]", "k",
    ),
    "tiled subscripts": read(
        MMA, "A: f32[20, 6], B: f32[6, 7], C: f32[20, 7]", "i:5 t:4 j:7 k:6",
        "C[vi * 4 + vt, vj] = C[vi * 4 + vt, vj] + A[vi * 4 + vt, vk] * B[vk, vj]", "k",
    ),
}  # fmt: skip


def moves(b: Block, x: Load, name: str) -> bool:
    """Whether the place of an access depends on an iterator, by going through all values."""
    extents = {it.name: constant(it.extent) or 0 for it in b.iters}
    subscripts = ", ".join(format_expr(i).replace("/", "//") for i in x.indices)
    place = compile(f"({subscripts},)", "subscripts", "eval")
    others = [n for n in extents if n != name]
    for point in product(*(range(extents[n]) for n in others)):
        at = dict(zip(others, point, strict=True))
        if len({eval(place, at | {name: n}) for n in range(extents[name])}) > 1:
            return True
    return False


def by_definition(b: Block, intrinsic: Intrinsic) -> set[str]:
    """Every assignment of iterators to axes or to none, kept when each access moves with an iterator as with its axis."""
    (s,) = b.body
    wanted = [x for x in loads(intrinsic.store.value) if x.buffer != "C"]
    place = Load(s.buffer, s.indices, intrinsic.operands[-1].dtype)
    factors = [x for x in loads(s.value) if x.buffer != s.buffer]
    names = [it.name for it in b.iters]
    kinds = {it.name: it.kind for it in b.iters}
    found: set[str] = set()
    for order in ([0, 1], [1, 0]):
        operands = [place, *(factors[n] for n in order)]
        described = [Load("C", intrinsic.store.indices, place.dtype), *wanted]
        if [x.dtype for x in operands] != [x.dtype for x in described]:
            continue
        used = {n: [moves(b, x, n) for x in operands] for n in names}
        has = {a.name: [a.name in map(format_expr, x.indices) for x in described] for a in intrinsic.axes}
        for choice in product([None, *intrinsic.axes], repeat=len(names)):
            played = dict(zip(names, choice, strict=True))
            if {a.name for a in choice if a} != has.keys():
                continue
            if all(a is None or (a.kind is kinds[n] and has[a.name] == used[n]) for n, a in played.items()):
                roles = ((a.name, [n for n in names if played[n] == a]) for a in intrinsic.axes)
                found.add(", ".join(f"{a}={'*'.join(players)}" for a, players in roles))
    return found


@pytest.mark.parametrize("name", CASES)
def test_all_that_the_definition_allows_and_no_other(name: str) -> None:
    found = [str(m) for m in mappings(*CASES[name])]
    assert len(set(found)) == len(found)
    assert set(found) == by_definition(*CASES[name])


def test_factors_may_change_places() -> None:
    both = ["i=vi, j=vj, k=vk", "i=vj, j=vi, k=vk"]
    assert sorted(map(str, mappings(*CASES["matmul"]))) == both
    assert sorted(map(str, mappings(*CASES["matmul, factors swapped"]))) == both
    assert [str(m) for m in mappings(*CASES["matmul of bytes"])] == ["i=vi, k=vk"]


def test_a_convolution_has_many_and_the_first_is_im2col() -> None:
    first, *others = map(str, mappings(*CASES["conv2d"]))
    assert first == "i=vn*vh*vw, j=vo, k=vkh*vkw*vc"
    assert len(others) == 2 * 7 * 7 - 1
    assert "i=vh, j=vo, k=vc" in others


def test_what_all_operands_have_stays_outside() -> None:
    assert not list(mappings(*CASES["depthwise"]))
    assert all("vb" not in str(m) for m in mappings(*CASES["batched matmul"]))
    assert "i=vb*vi, j=vj, k=vk" in map(str, mappings(*CASES["one matrix for all"]))


def test_an_iterator_of_one_value_plays_where_no_other_can() -> None:
    assert next(map(str, mappings(*conv(n=1)))) == "i=vh*vw, j=vo, k=vkh*vkw*vc"
    one = read(MMA, "A: f32[1, 6], B: f32[6, 7], C: f32[1, 7]", "i:1 j:7 k:6",
               "C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]", "k")  # fmt: skip
    assert "i=vi, j=vj, k=vk" in map(str, mappings(*one))


def test_an_axis_of_one_value_is_played_by_none() -> None:
    b, i = read(ROW, "A: f32[5, 6], B: f32[6], C: f32[5]", "i:5 k:6", "C[vi] = C[vi] + A[vi, vk] * B[vk]", "k")
    assert [str(m) for m in mappings(b, i)] == ["k=vk"]


def test_maps_have_mappings_too() -> None:
    b, i = read(ADD, "X: f32[5, 6], Y: f32[5, 6], Z: f32[5, 6]", "y:5 x:6", "Z[vy, vx] = X[vy, vx] + Y[vy, vx]")
    assert [str(m) for m in mappings(b, i)] == ["i=vy*vx", "i=vy", "i=vx"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("C[vi, vj] = max(C[vi, vj], A[vi, vk] * B[vk, vj])", "another reducer"),
        ("C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj] * 2.0", "another value"),
        ("C[vi, vj] = C[vi, vj] + A[vi, vk] + B[vk, vj]", "a sum of sums"),
        ("C[vi, vj] = C[vi, vj] + A[vi, vk] * C[vk, vj]", "it reads what it stores"),
        ("C[vi, vj] = C[vj, vi] + A[vi, vk] * B[vk, vj]", "it adds to another element"),
    ],
)
def test_what_is_not_the_instruction_has_none(body: str, why: str) -> None:
    assert not list(mappings(*read(MMA, "A: f32[6, 6], B: f32[6, 6], C: f32[6, 6]", "i:6 j:6 k:6", body, "k"))), why


def test_other_types_have_none() -> None:
    b, i = read(MMA, "A: f64[5, 6], B: f64[6, 7], C: f64[5, 7]", "i:5 j:7 k:6",
                "C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]", "k")  # fmt: skip
    assert not list(mappings(b, i))


def test_an_iterator_that_runs_under_a_condition_plays_nothing() -> None:
    b, i = read(MMA, *MATMUL, "C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]", "k", where="; where i < 4")
    assert not list(mappings(b, i))
