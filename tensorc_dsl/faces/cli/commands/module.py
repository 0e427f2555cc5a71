"""`module`: list the items that can be used, find their files, and write a new package."""

from __future__ import annotations

import shlex
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tensorc_dsl.base.diagnostic import TschedError, problem
from tensorc_dsl.faces.cli.options import Group, common_options, settings
from tensorc_dsl.faces.report.terminal import say

if TYPE_CHECKING:
    from tensorc_dsl.faces.packages import Listing


@problem("E0906", "there is nothing to use that is called `{name}`")
def NOTHING_TO_USE(*, name: str, repair: str) -> None: ...
@problem(
    "E0903", "cannot write to `{folder}`: it is not empty", help="give a folder that is empty, or that does not exist"
)
def NOT_EMPTY(*, folder: Path) -> None: ...


@click.group(cls=Group)
@common_options
def module() -> None:
    """Modules, spaces and computes that a `use` can bring, and packages of them."""


def _listing(ctx: click.Context) -> Listing:
    from tensorc_dsl.faces.packages import reachable

    listing = reachable(settings(ctx).include)
    for file in listing.broken:
        say(f"{file}: cannot be read; `tensorc-dsl check {file}` says why", err=True)
    return listing


@module.command("list")
@common_options
@click.pass_context
def list_(ctx: click.Context) -> None:
    """List everything that a file in this folder can use: what it is, where, and the first line about it."""
    from tensorc_dsl.faces.packages import shortest

    listing = _listing(ctx)
    names = shortest(listing)
    width = max(map(len, names.values()), default=0)
    for n, (place, items) in enumerate(groupby(listing.items, key=lambda i: i.place)):
        if n:
            say("")
        say(place)
        for i in items:
            say(f"  {names[i]:<{width}}  {i.kind:<7}  {i.where}")
            if i.doc:
                say(f"      {i.doc}")


@module.command()
@click.argument("name", metavar="NAME")
@common_options
@click.pass_context
def which(ctx: click.Context, name: str) -> None:
    """Print where NAME stands: all that a `use` takes, such as std.cpu.{default}, std.ops.matmul, or a name alone."""
    from tensorc_dsl.faces.packages import item_spellings, used
    from tensorc_dsl.syntax.names import did_you_mean

    # A name alone is looked up as an item first; with a path, as in a `use`.
    found = () if name.isidentifier() else used(name, settings(ctx).include)
    if not found:
        listing = _listing(ctx)
        found = tuple(i.where for i in listing.items if name in item_spellings(i)) or used(name, settings(ctx).include)
        if not found:
            near = did_you_mean(name, {s for i in listing.items for s in item_spellings(i)})
            repair = near or "`tensorc-dsl module list` shows what there is"
            raise TschedError(NOTHING_TO_USE(None, name=name, repair=repair))
    for where in found:
        say(where)


@module.command()
@click.argument("name", metavar="NAME")
@click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER",
    help="Where to write it; by default a new folder NAME.",
)  # fmt: skip
@common_options
def new(name: str, folder: Path | None) -> None:
    """Write a package of modules to begin with: it can be installed, and then `use NAME.tiles` finds it."""
    from tensorc_dsl.base.outputs import Output
    from tensorc_dsl.faces.packages import good_name, skeleton
    from tensorc_dsl.faces.report.files import make_folder

    if not good_name(name):
        raise click.BadParameter(f"{name!r} is no name for a package: use letters, digits and _", param_hint="NAME")
    root = folder or Path(name)
    if root.is_dir() and any(root.iterdir()):
        raise TschedError(NOT_EMPTY(None, folder=root))
    for path, text in skeleton(name).items():
        make_folder((root / path).parent)
        Output(root / path).write(text)
        say(str(root / path))
    say("", err=True)
    # A bare name would be that of a package to be fetched.
    place = shlex.quote(str(root) if root.is_absolute() else f"./{root}")
    say(f"next: pip install -e {place}, then pytest {place}", err=True)
