"""An option that several commands have is the same option in all of them."""

from __future__ import annotations

from collections.abc import Iterator

import click

from tensorc_dsl.faces.cli.main import main


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    with click.Context(group) as ctx:
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            assert command is not None
            yield f"{path}{name}", command
            if isinstance(command, click.Group):
                yield from commands(command, f"{path}{name} ")


def test_an_option_is_the_same_wherever_it_is() -> None:
    seen: dict[str, dict[tuple[str | None, str | None, bool], str]] = {}
    for name, command in commands(main):
        for p in command.params:
            if isinstance(p, click.Option):
                for spelling in p.opts:
                    seen.setdefault(spelling, {}).setdefault((p.metavar, p.help, p.multiple), name)
    assert {"--seed", "--threads", "--replay", "--records"} <= seen.keys()
    assert {o: list(says.values()) for o, says in seen.items() if len(says) > 1} == {}


def test_a_file_with_a_schedule_has_one_name() -> None:
    names = [p.metavar or "" for _, c in commands(main) for p in c.params if p.name in ("trace", "replayed")]
    assert {n.strip("[]") for n in names} == {"TRACE"}  # in brackets where it may be left out
