"""`tune`: search for the fastest schedule of a task."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tensorc_dsl.cli.endings import finishing, waiting
from tensorc_dsl.cli.failures import ExitCode
from tensorc_dsl.cli.handling import handled, handler_options
from tensorc_dsl.cli.loading import HELP, load_task
from tensorc_dsl.cli.measured import warn_of_threads
from tensorc_dsl.cli.options import (
    common_options,
    file_argument,
    records_option,
    seed_option,
    settings,
    target_options,
    task_argument,
)
from tensorc_dsl.diagnostic import Diagnostic, TschedError
from tensorc_dsl.report.terminal import say, show, show_diagnostics, show_foreign, show_object, write
from tensorc_dsl.search.options import SearchOptions

DEFAULTS = SearchOptions()

if TYPE_CHECKING:
    from tensorc_dsl.api import Task
    from tensorc_dsl.search.tune import TuneResult


def _strategy(ctx: click.Context, _param: click.Parameter, value: str) -> str:
    """The name of a strategy that there is; ends the command with their list for `help`."""
    from tensorc_dsl.extensions import STRATEGIES  # what is installed is looked up by this command only

    if value == HELP:
        write("\n".join((*STRATEGIES.names(), "")))
        ctx.exit()
    if STRATEGIES.module(value) is None:
        from tensorc_dsl.syntax.names import did_you_mean

        raise click.BadParameter(f"there is no strategy {value!r}: {did_you_mean(value, STRATEGIES.names())}")
    return value


@click.command()
@file_argument
@task_argument
@click.option(
    "--trials",
    type=click.IntRange(1),
    default=DEFAULTS.trials,
    show_default=True,
    metavar="N",
    help="Schedules to try.",
)
@seed_option
@click.option(
    "--strategy",
    default=DEFAULTS.strategy,
    show_default=True,
    is_eager=True,
    callback=_strategy,
    metavar="NAME",
    help="bayes learns from what it measured; random draws from the space; `help` lists those of installed packages too.",
)
@handler_options
@target_options
@click.option("--output", type=click.Path(), metavar="PATH", help="The best schedule; by default TASK.best.tsched.")
@records_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object on standard output.")
@common_options
@click.pass_context
def tune(
    ctx: click.Context,
    file: str,
    task: str | None,
    trials: int,
    seed: int,
    strategy: str,
    replayed: str | None,
    conditions: tuple[tuple[str, str], ...],
    hidden: tuple[str, ...],
    target: str | None,
    mcpu: str | None,
    threads: int | None,
    output: str | None,
    records: str | None,
    as_json: bool,
) -> None:
    """Search for the fastest schedule of a task and write it to a file that `replay` takes.

    Every schedule is compiled, checked against a reference and timed in a process of its own, and recorded. Ctrl-C ends
    the search early and keeps what was found, as do SIGTERM and SIGHUP; a second Ctrl-C ends at once. Exit status 3: nothing
    that was tried works; 4: a schedule that was as fast as the best is proved to be wrong, and the best of the others is
    written.
    """
    say(f"reading {file}", err=True)  # before anything that takes a while to load
    from tensorc_dsl.records.queue import Queue

    # Before what takes longer: nobody waits to hear that nothing can be recorded.
    queue = ctx.with_resource(Queue.at(Path(records) if records else None))
    if (unkept := queue.untold()) is not None:
        say(unkept.waiting(), err=True)
    from tensorc_dsl.api.failures import WrongSchedule
    from tensorc_dsl.machine.yardsticks import Measuring
    from tensorc_dsl.report.ended import Ended
    from tensorc_dsl.report.files import check_writable, write_text
    from tensorc_dsl.report.following import following
    from tensorc_dsl.report.progress import Standing
    from tensorc_dsl.search.events import Event, Finished
    from tensorc_dsl.search.strategy import strategy_of

    found = handled(load_task(file, task, threads, target, mcpu), replayed, conditions, hidden)
    best_file = Path(output or f"{found.name}.best.tsched")
    check_writable(best_file)
    found.require_machine()
    strategy_of(strategy)  # one that is broken is told of before anything is measured
    warn_of_threads(found.threads)
    standing, ending = Standing(), settings(ctx).ending
    with following(standing, sys.stderr) as follower:

        def listen(event: Event) -> None:
            ending.held |= isinstance(event, Finished)  # what was found is not given up while processes end
            follower(event)

        measuring = Measuring(found.program, found.target, found.threads, follower.begin)
        yardsticks = measuring.first()
        standing.roof = yardsticks.roof
        result = found.search(
            SearchOptions(trials, seed, strategy),
            records=queue,
            on_event=listen,
        )
        if result.best is not None and not (result.interrupted or ending.told):
            with suppress(KeyboardInterrupt), waiting(ending):
                yardsticks = measuring.beside_numpy(yardsticks)
                yardsticks = measuring.again(yardsticks)
    interrupted = result.interrupted or ending.told
    ended = Ended(found.name, found.target, found.threads, strategy, result, yardsticks, found.timed_at)
    problem: tuple[Diagnostic, ...] = ()
    written: Path | None = None
    with finishing(ending):
        if result.best is not None:
            try:
                write_text(best_file, ended.header() + result.best.text)
                written = best_file
            except TschedError as e:
                problem = e.diagnostics
        if as_json:
            show_object(ended.facts(written))
        else:
            show(ended.table(written))
    if problem:
        show_diagnostics(*problem)
        if result.unkept is None:
            say("the schedule is among the records: `tensorc-dsl run` uses it", err=True)
        elif result.best is not None:
            say("the schedule, which may be in no file:", err=True)
            show(result.best.text, err=True)
    if result.unkept is not None:
        show_diagnostics(*result.unkept.why)
        say(str(result.unkept), err=True)
    for trace, report in result.wrong[:1]:
        wrong = Path(f"{found.name}.wrong.tsched")
        write_text(wrong, trace.text)
        command = shlex.join(("tensorc-dsl", "verify", file, found.name, str(wrong)))
        say(f"{wrong} holds a schedule that is wrong: `{command}`", err=True)
        raise WrongSchedule(trace, report.diagnostic)
    if interrupted:
        say("interrupted" if result.unkept else "interrupted; the trials so far are recorded", err=True)
        ctx.exit(ending.status)
    if problem or result.unkept is not None:
        ctx.exit(ExitCode.FINDINGS)
    if result.best is None:
        _explain(found, result)
        ctx.exit(ExitCode.NO_CANDIDATE)


def _explain(task: Task, result: TuneResult) -> None:
    """Why there is no valid candidate: the step that is refused, or what the failed ones said."""
    say("no valid candidate", err=True)
    if not result.trials:
        try:
            task.check()
        except TschedError as e:
            show_diagnostics(*e.diagnostics)
    for message, count in Counter(f"{o.status.replace('_', ' ')}: {o.message}" for o in result.outcomes).most_common(3):
        show_foreign(f"{count} × {message}", err=True)
