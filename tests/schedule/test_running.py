"""What `split_scan` and `double_scan` make is proved by the validator, and a fault in it is refuted."""

from __future__ import annotations

import pytest

from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.source import Source
from tensorc_dsl.validate.validate import Invalid, validate
from tests.primitives.cases import all_cases, before_program

CASES = {c.name: c for c in all_cases()}

FAULTS = [
    ("split_scan: chunks of four steps", "Y_chunk[vt_0, 3, vi]", "Y_chunk[vt_0, 2, vi]"),  # another carry
    ("split_scan: chunks of four steps", "Y_carry[vt / 4 - 1, vi]", "Y_carry[vt / 4, vi]"),
    ("split_scan: chunks of four steps", "if vt < 4", "if vt < 5"),
    ("split_scan: steps that are no whole chunks", "< 10 else", "< 9 else"),  # a step that adds nothing
    ("split_scan: a scan along rows that runs back", "max(Y_carry", "min(Y_carry"),
    ("double_scan: four steps", "Y_last2[vt - 2, vi]", "Y_last2[vt - 1, vi]"),  # a term twice
]


@pytest.mark.parametrize(("case", "right", "wrong"), FAULTS)
def test_a_fault_in_a_scan_is_refuted(case: str, right: str, wrong: str) -> None:
    found = CASES[case]
    assert right in found.expected
    after = parse_program(Source("faulty", found.expected.replace(right, wrong, 1)))
    assert isinstance(validate(before_program(found), after), Invalid)
