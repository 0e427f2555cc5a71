"""How many inputs tests draw, and from which seed on."""

from __future__ import annotations

import os

EXPLORES = os.environ.get("HYPOTHESIS_PROFILE") == "explore"
"""Whether new inputs are drawn, as `make properties` does it; otherwise a test draws the same ones in every run."""

FIRST = int(os.environ.get("FIRST_SEED", "0"))
"""The first seed of random programs and schedules, by `make computes SEED=…` and others; tests begin at 0."""


def examples(count: int) -> int:
    """So many inputs, or twenty times as many where new ones are drawn."""
    return 20 * count if EXPLORES else count
