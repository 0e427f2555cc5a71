"""Formats the result of a proof, as JSON and as text."""

from __future__ import annotations

from typing import assert_never

from tensorc_dsl.diagnostic import Diagnostic
from tensorc_dsl.validate.validate import Invalid, Report, Unproved, Valid


def facts(report: Report) -> tuple[str, Diagnostic | None]:
    """The verdict in one word, and the diagnostic unless it is "valid"."""
    match report:
        case Valid():
            return "valid", None
        case Invalid(diagnostic=found):
            return "invalid", found
        case Unproved(diagnostic=found):
            return "unproved", found
        case _:
            assert_never(report)


def assumed(report: Report) -> tuple[str, ...]:
    """The assumptions of a proof."""
    return report.assumes if isinstance(report, Valid) else ()


def line(report: Report) -> str:
    """The verdict as the end of a line: `valid if …`, or `unproved (E0807): …`."""
    word, found = facts(report)
    if found is not None:
        return f"{word} ({found.code}): {found.message}"
    assumes = assumed(report)
    return f"{word}{' if ' if assumes else ''}{' and '.join(assumes)}"
