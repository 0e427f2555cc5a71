"""The theorems about the write that filled an element, against brute force over the instances of small programs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import For, Program
from tensorc_dsl.proof.sets import accesses as accesses_module
from tensorc_dsl.proof.sets.accesses import Access, accesses, fills, starts_itself
from tests.affine.test_simplify import value

Values = tuple[int, ...]


def _program(*lines: str) -> Program:
    """The statements in a program with a private buffer `t`; they end where all loops and blocks are closed."""
    body = "\n".join(lines)
    end = "}" * (body.count("{") - body.count("}"))
    return parse_program(Source("p", f'program p(O: f32[99]) {{ buffer t: f32[99] in "local"\n{body}\n{end} }}'))


def _instances(x: Access) -> list[tuple[Values, Values]]:
    """The loops and the element of each instance of an access."""
    extents = [value(loop.extent, {}) for loop in x.loops]
    envs = [(at, {y.var: n for y, n in zip(x.loops, at, strict=True)}) for at in product(*map(range, extents))]
    return [(at, tuple(value(i, env) for i in x.indices)) for at, env in envs if all(value(c, env) for c in x.guard)]


def _is_filled(r: Access, writes: list[Access], home: int) -> bool:
    """Whether each instance of the read has an earlier one of a write to its element, in one iteration of the home."""
    made = [(w, at, element) for w in writes for at, element in _instances(w)]
    return all(
        any(own == element and when[:home] == at[:home] and _before(w, when, r, at) for w, when, own in made)
        for at, element in _instances(r)
    )


def _before(w: Access, when: Values, r: Access, at: Values) -> bool:
    shared = 0
    while shared < min(len(w.loops), len(r.loops)) and w.loops[shared].var == r.loops[shared].var:
        shared += 1
    return (when[:shared], w.seq) < (at[:shared], r.seq)


def _accesses(program: Program) -> tuple[Access, list[Access]]:
    """The read of `t` in the block R, and all writes of `t`."""
    found = accesses((), program.body, frozenset("t"))
    (read,) = (x for x in found if not x.is_write and x.block.name == "R")
    return read, [x for x in found if x.is_write]


def _sum(rng: random.Random, names: str) -> str:
    factors = [rng.choice([0, 1, 1, 2, 3, 4]) for _ in names]
    return " + ".join([f"{n} * {c}" for n, c in zip(names, factors, strict=True) if c] + [str(rng.randrange(2))])


def _where(rng: random.Random, *terms: str) -> list[str]:
    """Conditions over some of the terms."""
    some = rng.sample(terms, rng.randint(0, min(2, len(terms))))
    return [f"where {e} {rng.choice(['<', '<', '<=', '>=', '=='])} {rng.randint(0, 9)}" for e in some]


def _loops(rng: random.Random, names: str, most: int) -> list[str]:
    return [f"for {n} in {rng.randint(1, most)} {{" for n in names]


def _tiles(rng: random.Random) -> Program:
    """A write in the loops h, x, y and z, then a read in h, u and v: often of the same sum under the same conditions."""
    write, read = _sum(rng, "hxy"), _sum(rng, "huv")
    if rng.random() < 0.7:
        read = write.replace("x", "u").replace("y", "v")
    writes, reads = _where(rng, write, "x", "z"), _where(rng, read, "u")
    if rng.random() < 0.7:
        reads += [c.replace("x", "u").replace("y", "v") for c in writes if "z" not in c]
    return _program(
        *_loops(rng, "h", 3),
        *_loops(rng, "xyz", 4),
        f"block W {{ spatial e in 99 = {write}", *writes, "t[e] = 1.0 } } } }",
        *_loops(rng, "uv", 4),
        f"block R {{ spatial e in 99 = {read}", *reads, "O[e] = t[e]",
    )  # fmt: skip


def test_what_is_said_to_be_filled_is() -> None:
    applies = 0
    for seed in range(800):
        read, writes = _accesses(_tiles(random.Random(seed)))
        if any(fills(w, read) for w in writes):
            applies += len(writes[0].guard) > 0
            assert _is_filled(read, writes, 1), seed
    assert applies > 40  # with a condition on the write


def _reductions(rng: random.Random) -> Program:
    """A reduction over x and y of elements that h, i and perhaps x count, some of its iterations cut off."""
    element, counted = _sum(rng, "hi" if rng.random() < 0.8 else "hix"), _sum(rng, "xy").replace(" + 1", " + 0")
    return _program(
        *_loops(rng, "h", 2),
        *_loops(rng, "".join(rng.sample("ixy", 3)), 3),
        f"block R {{ spatial e in 99 = {element}\nreduce k in 99 = {counted}",
        *_where(rng, element, counted, "i", "x"), "init { t[e] = 0.0 }",
        "t[e] = t[e] + 1.0 } } } }", "block C { spatial e in 99 = h", "O[e] = t[e]",
    )  # fmt: skip


def test_what_is_said_to_start_itself_does() -> None:
    applies = 0
    for seed in range(800):
        read, writes = _accesses(_reductions(random.Random(seed)))
        if starts_itself(read, writes, 1):
            applies += len(read.guard) > 0
            assert _is_filled(read, writes, 1), seed
    assert applies > 40  # with a condition


CUT_OFF = {
    "tiles of a copy": (
        "for h in 4 { for x in 8, y in 8 { block W {",
        "    spatial e in 197 = h * 64 + x * 8 + y",
        "    where h * 64 + x * 8 + y < 197",
        "    t[e] = 1.0 } }",
        "for u in 64 { block R {",
        "    spatial e in 197 = h * 64 + u",
        "    where h * 64 + u < 197",
        "    O[e] = t[e]",
    ),
    "a row in tiles": (
        "for h in 4 { for x in 8, y in 3 { block W {",
        "    spatial e in 22 = x * 3 + y",
        "    where x * 3 + y < 22",
        "    t[e] = 1.0 } }",
        "for u in 22 { block R {",
        "    spatial e in 22 = u",
        "    O[e] = t[e]",
    ),
    "tiles of a row": (
        "for h in 4 { for x in 22 { block W {",
        "    spatial e in 22 = x",
        "    t[e] = 1.0 } }",
        "for u in 8, v in 3 { block R {",
        "    spatial e in 22 = u * 3 + v",
        "    where u * 3 + v < 22",
        "    O[e] = t[e]",
    ),
    "a sum": (
        "for h in 4, i in 3, x in 5, y in 3 { block R {",
        "    spatial e in 11 = h * 3 + i",
        "    reduce k in 13 = x * 3 + y",
        "    where h * 3 + i < 11",
        "    where x * 3 + y < 13",
        "    init { t[e] = 0.0 }",
        "    t[e] = t[e] + 1.0",
    ),
}


@pytest.mark.parametrize("name", CUT_OFF)
def test_tiles_that_are_cut_off_need_no_integer_set(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accesses_module, "covers", lambda *_: pytest.fail("asked for an integer set"))
    read, writes = _accesses(_program(*CUT_OFF[name]))
    assert accesses_module._all_follow([read], writes, 1, ())  # pyright: ignore[reportPrivateUsage]


WINDOW = """program p(X: f32[7, 6], O: f32[5, 4]) {
    buffer t: f32[7, 6]
    for f in 14 {
        for g in 3 {
            block t {
                spatial i in 7 = f / 2
                spatial j in 6 = f % 2 * 3 + g
                t[i, j] = X[i, j]
            }
        }
    }
    for h in 6, v in 4, w in 2, r in 3, s in 3 {
        block O {
            spatial i in 5 = h / 2 + v * 2
            spatial j in 4 = h % 2 * 2 + w
            reduce a in 3 = r
            reduce b in 3 = s
            where h / 2 + v * 2 < 5
            init { O[i, j] = 0.0 }
            O[i, j] = O[i, j] + t[i + a, j + b]
        }
    }
}
"""


@pytest.mark.parametrize(("rows", "asked"), [(14, [2]), (12, [2, 5])])
def test_what_is_written_whole_is_asked_by_its_elements(
    rows: int, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loops of a tiled window are asked about only where not all is written: isl takes minutes for many of them."""
    variables: list[int] = []
    covers = accesses_module.covers

    def counted(loops: Sequence[For], *more: Any) -> bool:
        variables.append(len(loops))
        return covers(loops, *more)

    monkeypatch.setattr(accesses_module, "covers", counted)
    program = parse_program(Source("p", WINDOW.replace("for f in 14", f"for f in {rows}")))
    assert accesses_module.follow_writes(program, "t", "O") == (rows == 14)
    assert variables == asked
