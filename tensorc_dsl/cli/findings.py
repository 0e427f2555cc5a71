"""Tells the findings of a run: as text, or in a format for other programs (`--output-format`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, assert_never, get_args

import click

from tensorc_dsl.diagnostic import Severity
from tensorc_dsl.report.terminal import say, show, show_diagnostics, show_object

if TYPE_CHECKING:
    from tensorc_dsl.report.findings import Finding

F = TypeVar("F", bound=Callable[..., Any])
Format = Literal["text", "json", "sarif", "github"]


def format_option(function: F) -> F:
    """`--output-format`."""
    return click.option(
        "--output-format", "output", type=click.Choice(get_args(Format)), default="text", show_default=True,
        help="How to tell the findings; all but `text` do so on standard output.",
    )(function)  # fmt: skip


def sources(name: str) -> tuple[str, ...]:
    """The file itself, or the files in a folder. Raises TschedError (E0901) for a folder without any."""
    from tensorc_dsl.report.files import sources_below

    return tuple(map(str, sources_below(Path(name)))) if Path(name).is_dir() else (name,)


def tell(names: Sequence[str], found: Sequence[Finding], output: Format, more: Mapping[str, Any] | None = None) -> None:
    """Print the findings of these files; `more` is added to the object that `json` prints."""
    match output:
        case "text":
            _tell_people(names, found)
        case "json":
            from tensorc_dsl.report.formats import as_json

            show_object(as_json(names, found) | dict(more or {}), indent=2)
        case "sarif":
            from importlib.metadata import version

            from tensorc_dsl.report.formats import as_sarif

            show_object(as_sarif(found, version("tensorc-dsl")), indent=2)
        case "github":
            from tensorc_dsl.report.formats import as_github

            if found:
                show(as_github(found))
        case _:
            assert_never(output)


def _tell_people(names: Sequence[str], found: Sequence[Finding]) -> None:
    from tensorc_dsl.report.findings import count

    if not found:
        return
    show_diagnostics(*(f.diagnostic for f in found))
    numbers = [(count(found, s), s) for s in (Severity.ERROR, Severity.WARNING)]
    counts = " and ".join(f"{n} {s}{'s' * (n != 1)}" for n, s in numbers if n)
    show(f"\n{counts} in {len(names)} file{'s' * (len(names) != 1)}", err=True)
    errors = [f.diagnostic.code for f in found if f.diagnostic.severity is Severity.ERROR]
    if errors:
        say(f"for more: tensorc-dsl explain {errors[0]}", err=True)
