"""The command line, from click's own description of it."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator

import click

from tensorc_dsl.faces.cli.main import main
from tensorc_dsl.faces.report.entries import code, listing, markdown_fence

COMMON = {p.name for p in main.params}
"""Options of every command, described once."""


def _commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """All commands with the words that call them, in alphabetical order."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def _option(p: click.Option, context: click.Context) -> tuple[str, str]:
    """The option as it is written, and its help with the default."""
    names = ", ".join(code(o) for o in (*p.opts, *p.secondary_opts))
    takes = "" if p.is_flag or p.count else f" `{p.make_metavar(context).strip('[]')}`"
    shown = p.show_default and p.default is not None and not callable(p.default)
    default = f" Default: {code(str(p.default))}." if shown else ""
    return f"{names}{takes}", f"{p.help or ''}{default}"


def _help(command: click.Command) -> str:
    """The help text as Markdown; a paragraph that must not be wrapped becomes a fence."""
    out: list[str] = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        first, _, rest = paragraph.partition("\n")
        out.append(markdown_fence(rest) if first.strip() == "\b" else paragraph)
    return "\n\n".join(out)


def _usage(words: str, command: click.Command, context: click.Context) -> str:
    arguments = [a.make_metavar(context) for a in command.params if isinstance(a, click.Argument)]
    return " ".join(("tensorc-dsl", words, "[OPTIONS]", *arguments))


def _rows(words: str, command: click.Command) -> list[tuple[str, str]]:
    """The options that are not those of every command."""
    context = click.Context(command, info_name=words)
    options = [p for p in command.params if isinstance(p, click.Option) and p.name not in COMMON and not p.hidden]
    return [_option(p, context) for p in options]


def _shared() -> set[tuple[str, str]]:
    """The rows that several commands have; of those of one option, the most frequent."""
    counts = Counter(row for words, command in _commands(main) for row in _rows(words, command))
    best: dict[str, tuple[int, tuple[str, str]]] = {}
    for row, count in counts.items():
        name = row[0].split("`")[1]
        if count > 1 and count > best.get(name, (0, row))[0]:
            best[name] = (count, row)
    return {row for _, row in best.values()}


def commands() -> str:
    out: list[str] = []
    shared = _shared()
    for words, command in _commands(main):
        context = click.Context(command, info_name=words)
        rows = _rows(words, command)
        own = [row for row in rows if row not in shared]
        more = ", ".join(row[0].split(" `")[0] for row in rows if row in shared)
        out += [f"### `{words}`", markdown_fence(_usage(words, command, context)), _help(command)]
        out += [listing(own)] if own else []
        out += [f"Options of several commands: {more}."] if more else []
    return "\n\n".join(out)


def shared_options() -> str:
    return listing(sorted(_shared()))


def common_options() -> str:
    context = click.Context(main)
    return listing(_option(p, context) for p in main.params if isinstance(p, click.Option))
