"""How many inputs property tests draw."""

from __future__ import annotations

import os

EXPLORES = os.environ.get("HYPOTHESIS_PROFILE") == "explore"
"""Whether new inputs are drawn, as `make properties` does it; otherwise a test draws the same ones in every run."""


def examples(count: int) -> int:
    """So many inputs, or twenty times as many where new ones are drawn."""
    return 20 * count if EXPLORES else count
