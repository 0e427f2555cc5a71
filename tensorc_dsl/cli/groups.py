"""Groups of commands with suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Iterator

import click

WHOLE = 1_000
"""Characters that are more than any first sentence has."""


class Group(click.Group):
    """A group that suggests the nearest command for an unknown name."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, each with the first sentence of its help as a whole: click cuts it at the end of a line."""
        rows = [
            (name, command.get_short_help_str(limit=WHOLE))
            for name in self.list_commands(ctx)
            if (command := self.get_command(ctx, name)) is not None
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        raise click.UsageError(" ".join([f"No such command {name!r}.", *self._meant(ctx, name)]), ctx)

    def _meant(self, ctx: click.Context, name: str) -> Iterator[str]:
        from tensorc_dsl.syntax.names import did_you_mean  # only where something is misspelt

        if name.endswith(".tsched") or "/" in name:
            yield f"A file is given to a command: `{ctx.command_path} check {name}`"
            return
        if name == "help":
            yield f"`{ctx.command_path} --help` lists the commands"
            return
        near = did_you_mean(name, self.list_commands(ctx))
        if near:
            yield f"{near[0].upper()}{near[1:]}"
