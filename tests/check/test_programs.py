"""Programs that are written out: races and accesses outside of a buffer are found, and no kernel is made of a race."""

from __future__ import annotations

import pytest

from tensorc_dsl.backend.cuda.lower.lower import lower_device
from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_file, load_source
from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.lower.flat import LowerError
from tests.codegen.native import compiled

SCAN = "block Y { scan vt in 9 = t; Y[vt] = X[vt] if vt < 1 else Y[vt - 1] + X[vt] }"
SKEWED = """block Y {
            spatial vi in 9 = w - t
            scan vt in 9 = t
            where 0 <= w - t and w - t < 9
            Z[vi, vt] = X[vt] if vi < 1 or vt < 1 else Z[vi - 1, vt] + Z[vi, vt - 1]
        }"""
SHIFTED = "block Y { spatial vt in 9 = t; Y[vt] = Y[AT] + X[vt] }"


def program(body: str) -> Source:
    buffers = '    buffer T: f32[9]\n    buffer L: f32[9] in "local"\n'
    return Source("it.tsched", f"program it(X: f32[9], Y: f32[9], Z: f32[9, 9]) {{\n{buffers}    {body}\n}}\n")


def codes(source: Source) -> list[str]:
    return [d.code for d in load_file(source).diagnostics]


RACES = {
    "the steps of a scan on threads": f"parallel for t in 9 {{ {SCAN} }}",
    "the steps of a scan in lanes": f"vectorized for t in 9 {{ {SCAN} }}",
    "the steps of a scan in threads of a GPU": f'bound("thread.x") for t in 9 {{ {SCAN} }}',
    "the steps of a scan on blocks that do not pass it on": f'bound("block.x") for t in 9 {{ {SCAN} }}',
    "the waves of a recurrence": f"parallel for w in 17 {{ for t in 9 {{ {SKEWED} }} }}",
    "the next element is read": f"parallel for t in 8 {{ {SHIFTED.replace('AT', 'vt + 1')} }}",
    "the first element is read": f"vectorized for t in 9 {{ {SHIFTED.replace('AT', '0')} }}",
    "one element is stored": "parallel for t in 9 { block Y { spatial vt in 9 = t; Y[0] = X[vt] } }",
    "a shared buffer between two blocks": (
        "parallel for t in 9 { block A { spatial vt in 9 = t; T[0] = X[vt] }\n"
        "block Y { spatial vu in 9 = t; Y[vu] = T[0] } }"
    ),
    "an element that may be any": (
        "parallel for t in 9 { block Y { spatial vt in 9 = t; Y[vt] = Y[min(max(index(i32(X[vt])), 0), 8)] } }"
    ),
}

RIGHT = {
    "the steps in order": f"for t in 9 {{ {SCAN} }}",
    "along a wave": f"for w in 17 {{ parallel for t in 9 {{ {SKEWED} }} }}",
    "the element itself is read": f"parallel for t in 9 {{ {SHIFTED.replace('AT', 'vt')} }}",
    "a buffer for each iteration": (
        "parallel for t in 9 { block A { spatial vt in 9 = t; L[0] = X[vt] }\n"
        "block Y { spatial vu in 9 = t; Y[vu] = L[0] } }"
    ),
    "a row of threads after another": (
        'bound("thread.x") for t in 9 { block A { spatial vt in 9 = t; T[vt] = X[vt] } }\n'
        'bound("thread.x") for u in 9 { block Y { spatial vu in 9 = u; Y[vu] = T[8 - vu] } }'
    ),
}


@pytest.mark.parametrize("body", RACES.values(), ids=RACES)
def test_a_race_is_found_and_no_kernel_is_made(body: str) -> None:
    source = program(body)
    assert codes(source) == ["E0213"]
    assert load_source(source).programs  # `verify` compares it, and shows a run
    with pytest.raises(LowerError, match="cannot run at once"):
        (lower_device if "bound" in body else compiled)(parse_program(source))


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_loops_that_may_run_at_once_are_accepted(body: str) -> None:
    source = program(body)
    assert codes(source) == []
    (lower_device if "bound" in body else compiled)(parse_program(source))


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("spatial vt in 9 = t + 1; Y[vt] = X[vt]", "iterator `vt` of `Y` is 9 at t = 8, and its extent is 9"),
        ("spatial vt in 9 = t; Y[vt] = X[vt + 1]", "`Y` reads `X` outside of it: subscript 1 is 9 at t = 8, and"),
        ("spatial vt in 9 = t; Z[vt, vt - 2] = X[vt]", "`Y` stores to `Z` outside of it: subscript 2 is -2 at t = 0"),
        ("spatial vt in 9 = t; where t < 8; Y[vt] = X[vt + 2]", "subscript 1 is 9 at t = 7, and its size there is 9"),
        ("spatial vt in 9 = t; Y[vt] = X[vt + 1] if vt < 8 else X[9]", "subscript 1 is 9, and its size there is 9"),
    ],
)
def test_a_block_that_leaves_is_found(block: str, message: str) -> None:
    (found,) = load_file(program(f"for t in 9 {{ block Y {{ {block} }} }}")).diagnostics
    assert found.code == "E0214"
    assert message in found.message


def test_conditions_around_reads_count() -> None:
    value = "X[vt + 1] if vt < 8 and X[vt + 1] > 0.0 else X[vt - 1 if vt > 0 else 0]"
    inside = f"spatial vt in 9 = t; where t < 8; Y[vt] = {value}"
    assert codes(program(f"for t in 9 {{ block Y {{ {inside} }} }}")) == []
