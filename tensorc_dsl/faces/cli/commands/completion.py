"""`completion`: let a shell complete commands, options and files."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tensorc_dsl.faces.cli.options import common_options
from tensorc_dsl.faces.report.terminal import show

PROGRAM = "tensorc-dsl"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@common_options
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what makes a shell complete the words of this command.

    \b
    bash  eval "$(tensorc-dsl completion bash)"      in ~/.bashrc
    zsh   eval "$(tensorc-dsl completion zsh)"       in ~/.zshrc
    fish  tensorc-dsl completion fish | source       in ~/.config/fish/config.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None  # click supports all three
    variable = f"_{PROGRAM.replace('-', '_').upper()}_COMPLETE"
    complete = kind(ctx.find_root().command, {}, PROGRAM, variable)
    # Not `source()`: for bash it would run the installed bash, which may be another than the one that reads this.
    show(complete.source_template % complete.source_vars())
