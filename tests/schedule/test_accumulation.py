"""The loops that count a reduction, against the iterations of small nests."""

from __future__ import annotations

import random
from itertools import product

from tensorc_dsl.base.source import Source
from tensorc_dsl.ir.expr import constant, free_vars
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.ir.program import Program, find_block
from tensorc_dsl.schedule.accumulation import reduction_loops
from tensorc_dsl.schedule.step import ScheduleRefusal
from tests.affine.test_simplify import value


def _term(rng: random.Random) -> str:
    a, b = rng.sample("xyz", 2)
    n, m = rng.randint(1, 4), rng.randint(1, 3)
    return rng.choice(
        [a, f"{a} * {n}", f"{a} * {n} + {b}", f"{a} + {b}", f"{a} * {n} + {b} / {m}", f"{a} + {b} - {b}", f"{a} - {b} + {n}",
         f"{a} / {n}", f"{a} % {n} + {b}", f"{n} - {a}"]
    )  # fmt: skip


def _program(rng: random.Random) -> Program:
    loops = " ".join(f"for {v} in {rng.randint(1, 3)} {{" for v in rng.sample("hxyz", 4))
    return parse_program(Source("p", f"""\
program p(O: f32[9]) {{ {loops}
    block R {{
        spatial e in 9 = h
        reduce k in 99 = {_term(rng)}
        reduce l in 99 = {_term(rng)}
        init {{ O[e] = 0.0 }}
        O[e] = O[e] + 1.0
    }} }} }} }} }} }}
"""))  # fmt: skip


def test_the_reduction_begins_exactly_where_its_loops_do() -> None:
    accepted = refused = 0
    for seed in range(400):
        program = _program(random.Random(seed))
        around, block = find_block(program, "R")
        bindings = [it.binding for it in block.iters[1:]]
        counting = frozenset[str]().union(*map(free_vars, bindings))
        envs = [
            {x.var: n for x, n in zip(around, at, strict=True)}
            for at in product(*(range(constant(x.extent) or 0) for x in around))
        ]
        begins = all(
            all(value(e, env) == 0 for e in bindings) == all(env[v] == 0 for v in counting) for env in envs
        )  # fmt: skip
        try:
            found = reduction_loops(program, block, around)
        except ScheduleRefusal:
            assert not begins, seed
            refused += 1
        else:
            assert found == counting
            assert begins, seed
            accepted += 1
    assert min(accepted, refused) > 50
