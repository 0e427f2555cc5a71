"""`disagreement`, compared with a count of all elements in plain Python."""

from __future__ import annotations

from itertools import product

import pytest

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import For, Program, intrinsic_of, walk
from tensorc_dsl.proof.sets.instructions import Match, Unit, disagreement, match_nest

TEXT = """
intrinsic put
    desc (D: f32[4, 2] in "t.a", S: f32[4, 2]) {{ D[i, j] = S[i, j] }}
    layout "t.a" (i, j) -> ({put})

intrinsic take
    desc (D: f32[4, 2], S: f32[4, 2] in "t.a") {{ D[i, j] = S[i, j] }}
    layout "t.a" (i, j) -> ({take})

program p(X: f32[16, 16], Y: f32[16, 16]) {{
    buffer T: f32[16, 16] in "t.a"
    for x in 2, y in 2 {{
        tensorized for i in 4 @("intrinsic", "put") {{
            tensorized for j in 2 {{
                block T {{ spatial vx in 2 = x; spatial vy in 2 = y; spatial vi in 4 = i; spatial vj in 2 = j
                    T[{stored}] = X[vi, vj]
                }}
            }}
        }}
    }}
    for x_1 in 2, y_1 in 2 {{
        tensorized for i_1 in 4 @("intrinsic", "take") {{
            tensorized for j_1 in 2 {{
                block Y {{ spatial vx in 2 = x_1; spatial vy in 2 = y_1; spatial vi in 4 = i_1; spatial vj in 2 = j_1
                    Y[vx * 4 + vi, vy * 2 + vj] = T[{read}]
                }}
            }}
        }}
    }}
}}
"""
PLAIN = "lane: i, reg: j"
GRID = "vx * 4 + vi, vy * 2 + vj"

CASES = {
    "alike": (PLAIN, PLAIN, GRID, GRID),
    "another order of registers": (PLAIN, "lane: i, reg: 1 - j", GRID, GRID),
    "lanes and registers in one number": ("lane: i * 2 + j", "lane: i * 2 + j", GRID, GRID),
    "places of other names": (PLAIN, "thread: i, reg: j", GRID, GRID),
    "tiles that overlap": (PLAIN, PLAIN, "vx * 2 + vi, vy * 2 + vj", GRID),
    "tiles that overlap alike": (PLAIN, PLAIN, "vx * 2 + vi, vy * 2 + vj", "vx * 2 + vi, vy * 2 + vj"),
    "off the grid, alike": (PLAIN, PLAIN, "vx * 4 + vi + 1, vy * 2 + vj", "vx * 4 + vi + 1, vy * 2 + vj"),
    "off the grid": (PLAIN, PLAIN, "vx * 4 + vi + 1, vy * 2 + vj", GRID),
    "with gaps, alike": (PLAIN, PLAIN, "vx + vi * 2, vy * 2 + vj", "vx + vi * 2, vy * 2 + vj"),
    "with gaps": (PLAIN, PLAIN, "vx + vi * 2, vy * 2 + vj", GRID),
    "turned": (PLAIN, PLAIN, "vy * 2 + vj, vx * 4 + vi", GRID),
    "turned alike": (PLAIN, PLAIN, "vy * 2 + vj, vx * 4 + vi", "vy * 2 + vj, vx * 4 + vi"),
    "one tile after the other": (PLAIN, PLAIN, "(vx * 2 + vy) * 4 + vi, vj", "(vx * 2 + vy) * 4 + vi, vj"),
    "tiles that change places": (PLAIN, PLAIN, "(1 - vx) * 4 + vi, vy * 2 + vj", GRID),
}


def agree(put: str, take: str, stored: str, read: str) -> bool:
    """Whether each element has one place, and each place one element, by going through all of them."""
    where: dict[object, set[object]] = {}
    what: dict[object, set[object]] = {}
    for layout, subscripts in ((put, stored), (take, read)):
        places = dict(p.split(": ") for p in layout.split(", "))
        for vx, vy, vi, vj in product(range(2), range(2), range(4), range(2)):
            element = eval(f"({subscripts})", {}, {"vx": vx, "vy": vy, "vi": vi, "vj": vj})
            tile = eval(f"({subscripts})", {}, {"vx": vx, "vy": vy, "vi": 0, "vj": 0})
            place = (tile, *((n, eval(e, {}, {"i": vi, "j": vj})) for n, e in sorted(places.items())))
            where.setdefault(element, set()).add(place)
            what.setdefault(place, set()).add(element)
    return all(len(found) == 1 for found in (*where.values(), *what.values()))


def units(program: Program) -> list[Unit]:
    out: list[Unit] = []
    for around, s in walk(program.body):
        if isinstance(s, For) and (intrinsic := intrinsic_of(program, s)) is not None:
            found = match_nest(around, s, intrinsic)
            assert isinstance(found, Match)
            out.append(Unit(around, s.var, intrinsic, found))
    return out


@pytest.mark.parametrize("case", CASES)
def test_instructions_agree_where_every_element_has_one_place(case: str) -> None:
    put, take, stored, read = CASES[case]
    program = parse_program(Source("p", TEXT.format(put=put, take=take, stored=stored, read=read)))
    found = disagreement(program, units(program))
    assert (found is None) == agree(put, take, stored, read), found


def test_the_message_names_an_element_and_its_places() -> None:
    put, take, stored, read = CASES["another order of registers"]
    program = parse_program(Source("p", TEXT.format(put=put, take=take, stored=stored, read=read)))
    found = disagreement(program, units(program))
    assert found is not None
    assert (found.buffer, found.one.loop, found.other.loop) == ("T", "i", "i_1")
    assert found.why == "the one has `T[0, 0]` at lane 0, reg 0, the other at lane 0, reg 1"
