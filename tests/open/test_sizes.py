"""Programs of sizes near 2**31, 2**53 and 2**63: refused or right, and no process ends by a signal. See `make sizes`."""

from __future__ import annotations

from campaigns.random_sizes import TOGETHER, faults
from tests.ahead.made import needs_compiler


@needs_compiler
def test_random_programs_of_large_sizes_are_refused_or_right() -> None:
    lines, wrong = faults(0, TOGETHER)
    assert wrong == []
    assert len(lines) == TOGETHER
    assert any("right" in line and "0 right" not in line for line in lines)
    assert any("without memory" in line and "0 without" not in line for line in lines)
