"""`tune`: search for the fastest schedule of a task."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click
from click.core import ParameterSource

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.base.outputs import Output
from tensorc_dsl.faces.api import Objective, SearchOptions
from tensorc_dsl.faces.cli.failures import ExitCode
from tensorc_dsl.faces.cli.measured import warn_of_threads
from tensorc_dsl.faces.cli.options import (
    HELP,
    Ending,
    Keeping,
    chosen,
    common_options,
    duration,
    emulate_option,
    file_argument,
    finishing,
    handled,
    handler_options,
    interruptible,
    keeping_options,
    load,
    only,
    pairs,
    records_option,
    seed_option,
    settings,
    share,
    target_options,
    token_option,
)
from tensorc_dsl.faces.cli.tuned import (
    Form,
    Prior,
    heard,
    show_results,
    tell_what_is_lost,
    tell_what_is_miscomputed,
    tell_what_is_wrong,
    write_best,
)
from tensorc_dsl.faces.report.terminal import say, show_diagnostics, show_foreign, write

DEFAULTS = SearchOptions()

if TYPE_CHECKING:
    from tensorc_dsl.check.scope import CheckedFile
    from tensorc_dsl.faces.api import Board, Pool, Queue, Target, Task, TaskFile, TuneResult
    from tensorc_dsl.faces.report.ended import Ended, EndedCounting
    from tensorc_dsl.faces.report.progress import Follower


def _strategy(ctx: click.Context, _param: click.Parameter, value: str) -> str:
    """The name of a known strategy; for `help`, end the command with the list of strategies."""
    from tensorc_dsl.base.extensions import STRATEGIES  # a late import: only this command looks up what is installed

    if value == HELP:
        formatter = ctx.make_formatter()
        formatter.write_dl([(name, STRATEGIES.summary(name)) for name in STRATEGIES.names()])
        write(formatter.getvalue())
        ctx.exit()
    if STRATEGIES.module(value) is None:
        from tensorc_dsl.syntax.names import did_you_mean

        raise click.BadParameter(f"there is no strategy {value!r}: {did_you_mean(value, STRATEGIES.names())}")
    return value


@click.command()
@file_argument
@click.argument("tasks", metavar="[TASK]...", nargs=-1)
@click.option(
    "--trials",
    type=click.IntRange(1),
    metavar="N",
    help=f"Schedules to try for each task; by default {DEFAULTS.trials}, or as many as there is time for with --budget.",
)
@click.option(
    "--budget", metavar="TIME", callback=duration, help="How long to try schedules, such as 10m, 1h30m or 90s."
)
@click.option(
    "--until",
    metavar="SHARE",
    callback=share,
    help="End once the strategy's model is 90 % sure, twice running, that no schedule is faster by more, such as 2%.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Go on with the last search of the task that has this seed and strategy: what it recorded is not measured again.",
)
@seed_option
@click.option(
    "--strategy",
    default=DEFAULTS.strategy,
    show_default=True,
    is_eager=True,
    callback=_strategy,
    metavar="NAME",
    help="bayes learns from what was measured, also of other tasks; `help` lists all strategies, also those of packages.",
)
@click.option(
    "--weight",
    "weights",
    multiple=True,
    metavar="TASK=W",
    callback=pairs,
    help="What a task's time counts beside those of others, by default 1: how often a network runs it.",
)
@handler_options
@keeping_options
@target_options
@click.option("--output", type=click.Path(), metavar="PATH", help="The file to write, in place of the usual one.")
@click.option(
    "--keep-better/--no-keep-better",
    default=True,
    show_default=True,
    help="Keep the schedule that the output file has if it is faster than the best that was found; or replace it.",
)
@click.option(
    "--write-prior",
    "prior",
    is_flag=False,
    flag_value="",
    metavar="[PATH]",
    help="Write FILE again, with what was learnt of the draws as weights; by default to FILE_prior.tsched in this folder.",
)
@records_option
@click.option(
    "--shipped/--no-shipped",
    default=DEFAULTS.shipped,
    show_default=True,
    help="Learn from the records that come with the package, too, of other machines.",
)
@click.option(
    "--kernels",
    type=click.IntRange(1),
    default=DEFAULTS.kernels,
    show_default=True,
    metavar="N",
    help="With an open size: at most so many schedules for ranges of it, in one that selects among them.",
)
@click.option(
    "--objective",
    type=click.Choice(get_args(Objective)),
    default=DEFAULTS.objective,
    show_default=True,
    help="With open sizes: how much longer than the best kernel for it a size takes, in the mean, or the worst. Where the "
    "task says how often sizes occur, the mean is that of the time of a call.",
)
@emulate_option
@click.option(
    "--on",
    metavar="SCHEDULER",
    help="Measure on the workers of a Dask scheduler, tcp://127.0.0.1:8786, tls://HOST:8786 or local:N, or on a board, "
    "ssh://HOST.",
)
@token_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
@click.option(
    "--json-lines", "as_lines", is_flag=True, help="Print each event as a line of JSON, and the result as the last one."
)
@common_options
@click.pass_context
def tune(
    ctx: click.Context,
    file: str,
    tasks: tuple[str, ...],
    trials: int | None,
    budget: float | None,
    until: float | None,
    resume: bool,
    seed: int,
    strategy: str,
    weights: tuple[tuple[str, str], ...],
    replayed: str | None,
    conditions: tuple[tuple[str, str], ...],
    hidden: tuple[str, ...],
    same_bits: bool,
    bits_of: str | None,
    same_rows: str | None,
    target: str | None,
    mcpu: str | None,
    threads: int | None,
    output: str | None,
    keep_better: bool,
    prior: str | None,
    records: str | None,
    shipped: bool,
    kernels: int,
    objective: Objective,
    emulate: bool,
    on: str | None,
    token: str | None,
    as_json: bool,
    as_lines: bool,
) -> None:
    """Search for the fastest schedule of a task, or of all tasks of a model, and write it to a file that `replay` takes.

    Every schedule is compiled, checked against a reference and timed in a process of its own, and recorded. Without a name,
    all tasks of the file are searched. Several tasks share their trials: the next batch goes to the task that is expected to
    gain the most. Each task has a file of its own, TASK.best.tsched, with its compute or the `use` of it: it is checked, run,
    edited and tuned by itself. If the file has a schedule for the task already, the two are timed by turns, and the faster
    one is kept. Ctrl-C, SIGTERM and SIGHUP end the search early and keep its results; a second Ctrl-C ends at once.

    Exit status 3: no schedule works; 4: a schedule that was as fast as the best is proved to be wrong, and the best of the
    others is written.

    In a file with a model and no tasks, or where a model is named first, the words are tasks of that model, by default all,
    each weighted by its calls. `--trials` is then the number of all together, by default 32 a task. The best few of each
    are compared in runs of the model, beside the schedules that it had, and are written to one file, MODEL.best.tsched;
    `run` takes them from the records. Draws of the rules that join the calls of the model are decided, too, by whole runs,
    unless tasks are named; `--condition` pins one.

    With --same-bits, --bits-of or --same-rows only schedules are tried that are proved to keep the bits of the results. Each
    trial is compared with them, too.

    With --emulate no GPU is needed. Schedules are run on the CPU thread by thread, checked, and compared by the cycles of a
    model of the GPU, in place of times. They are recorded apart from times, in `emulated.jsonl` beside the database, where
    `--resume` finds the last search.

    With --on, workers that `tensorc-dsl worker` started build and time the kernels; kernels are for their machine, which
    stands for this one. Tasks for different targets are tuned side by side, each on the workers that have its own. Where a
    task could be for several of them, `#TARGET` behind the address names the one that is tuned for.
    The tasks of a model are timed by workers, too; runs of the model are timed here if this machine has their target.
    A board, `ssh://[USER@]HOST[:PORT][/FOLDER]`, needs a shell alone: programs are built here for the target, run there,
    and checked here.
    """
    if as_json and as_lines:
        raise click.UsageError("--json prints one object, and --json-lines many: give one of them")
    say(f"reading {file}", err=True)  # before imports that take a while

    def read(there: TaskFile) -> tuple[list[Task], list[Output]]:
        names = tuple(dict.fromkeys(tasks)) or tuple(there) or (only(there, file),)
        files = {name: there if pool is None else _served(pool, there, name, target, natives) for name in names}
        found = [handled(chosen(files[name], name, mcpu), replayed, conditions, hidden, keeping) for name in names]
        if output is not None and len(found) > 1:
            raise click.UsageError("--output names the file of one task: give one task")
        outputs = [Output.at(output, f"{one.name}.best.tsched") for one in found]
        for to in outputs:
            if to.path.is_file() and os.path.exists(file) and to.path.samefile(file):
                raise click.UsageError(f"the best schedule would replace {file}: give another path with --output")
        return found, outputs

    keeping = Keeping(same_bits, bits_of, same_rows)
    form = _form(as_json, as_lines)
    where = Path(records) if records else None
    queue: Queue | None = None
    if emulate:
        _require_no_times(ctx)
    else:
        from tensorc_dsl.faces.api import Queue

        # Checked first, so that a user does not wait for a search that cannot be recorded.
        queue = ctx.with_resource(Queue.at(where))
        if (unkept := queue.untold()) is not None:
            say(unkept.waiting(), err=True)
    pool, board = (None, None) if on is None else _connected(ctx, on, token, threads, target)
    elsewhere = pool or board
    natives = () if pool is None else _of_workers(pool, target)
    there = load(file, threads, target, mcpu, natives[0] if natives else None)
    if (meant := _model(there.checked, tasks)) is not None:
        _require_whole(ctx)
        if board is not None:
            raise click.UsageError(
                "a model is not tuned on a board, only the tasks of a file: name workers with `--on`"
            )
        if len(natives) > 1:
            assert pool is not None
            raise TschedError(pool.several(natives))
        assert queue is not None
        from tensorc_dsl.faces.api.models import model_of
        from tensorc_dsl.faces.cli.models import tune_and_show
        from tensorc_dsl.interp.space import read_decision

        options = SearchOptions(1, seed, strategy, budget, resume, until, shipped)
        _require_regret(options)
        decisions = {name: read_decision(value) for name, value in conditions}
        model = model_of(
            there.checked, meant[0], threads, where, decisions=decisions, same_bits=same_bits, native=there.native
        )
        ctx.exit(tune_and_show(model, meant[1], trials, options, queue, output, settings(ctx).ending, form, pool))
    found, files = read(there)
    names = [one.name for one in found]
    beside = None if prior is None else Prior.at(prior, file, there, replayed)
    shares = _weights(weights, names)
    for out in files:
        out.check()
    if queue is not None:
        for one in found:
            if board is not None:
                board.require(one.target, one.name)
            elif pool is None:
                one.require_machine()
    options = SearchOptions(_trials(trials, budget), seed, strategy, budget, resume, until, shipped, kernels, objective)
    _require_regret(options)
    ending = settings(ctx).ending
    ended: Sequence[Ended | EndedCounting]
    if queue is None:
        ended = _count(found, shares, options, where, ending, form)
    else:
        if elsewhere is None:
            warn_of_threads(found[0].target)
        ended = _search(found, shares, options, queue, ending, form, elsewhere)
    results = [one.result for one in ended]
    interrupted = ending.told or any(r.interrupted for r in results)
    with finishing(ending):
        written = write_best(ended, files, found, queue, ending, keep_better, elsewhere)
        taught = frozenset(names) if beside is None else beside.write(found, records)
        priors = [beside.path if beside is not None and name in taught else None for name in names]
        show_results(ended, written, priors, form)
    tell_what_is_lost(ended, written)
    if beside is not None and taught:
        say(f"prior: {beside.path}", err=True)
    tell_what_is_wrong(ended, found)
    miscomputed = tell_what_is_miscomputed(ended, found)
    if interrupted:
        unkept = any(r.unkept for r in results)
        recorded = not unkept and any(r.trials for r in results)
        say("interrupted; the trials so far are recorded" if recorded else "interrupted", err=True)
        ctx.exit(ending.status)
    if miscomputed:
        ctx.exit(ExitCode.INTERNAL)
    if not taught.issuperset(names) or any(w.problem for w in written) or any(r.unkept is not None for r in results):
        ctx.exit(ExitCode.FINDINGS)
    for one, result in zip(found, results, strict=True):
        if result.best is None:
            _explain(one, result)
    if any(r.best is None for r in results):
        ctx.exit(ExitCode.NO_CANDIDATE)


WORKERS_SECONDS = 30.0
"""How long a search waits for a first worker, and for one of each target."""

LOOK_SECONDS = 0.25
"""How long it waits between looks."""


def _connected(
    ctx: click.Context, on: str, token: str | None, threads: int | None, target: str | None
) -> tuple[Pool | None, Board | None]:
    """The workers or the board at the address; the command ends the connection. Raises UsageError, and TschedError (E0870 to
    E0875, E0882)."""
    from tensorc_dsl.faces.api import Board, connect
    from tensorc_dsl.tuning.machine.host import machine_target

    if ctx.params["emulate"]:
        raise click.UsageError("`--emulate` counts on this machine: leave out `--on`")
    if on.startswith("ssh://"):
        return None, ctx.with_resource(Board(on))
    here = on.startswith("local:")
    if (threads is not None and not here) or ctx.params["mcpu"] is not None:
        raise click.UsageError(
            "the workers say what they have: leave out `--threads` and `--mcpu`, or give them `--threads`"
        )
    kind = _kind(target)
    made_for = machine_target(kind) if here and kind else None
    return ctx.with_resource(connect(on, token=token, threads=threads, target=made_for)), None


def _kind(target: str | None) -> str | None:
    """The kind of machines that `--target` asks for, such as `cuda`."""
    return target.removeprefix("native-") if target is not None and target.startswith("native-") else None


def _of_workers(pool: Pool, target: str | None) -> Sequence[Target]:
    """The targets of the workers, once there are some. Raises TschedError (E0875, E0876)."""
    say("waiting for workers", err=True)
    return pool.targets(WORKERS_SECONDS, _kind(target))


def _served(pool: Pool, there: TaskFile, name: str, target: str | None, natives: Sequence[Target]) -> TaskFile:
    """The tasks with the target of some workers in place of this machine's that the task has then.

    Workers may come later: where none has the target of the task, it is waited for. Raises TschedError (E0875 to E0877), and
    what is wrong with the task itself.
    """
    until = time.monotonic() + WORKERS_SECONDS
    while True:
        files = [there.on(native) for native in natives]
        made = [one for one in files if _target_of(one, name) in natives]
        kinds = {_target_of(one, name): one for one in made}
        if len(kinds) == 1:
            return made[0]
        if kinds:
            raise TschedError(pool.several([k for k in kinds if k is not None]))
        wanted = next((t for one in files if (t := _target_of(one, name)) is not None), None)
        if wanted is None:
            return there  # which has the error
        if time.monotonic() >= until:
            raise TschedError(pool.nobody(pool.workers_now(), wanted))
        time.sleep(LOOK_SECONDS)
        natives = pool.served(pool.workers_now(), _kind(target))


def _target_of(there: TaskFile, name: str) -> Target | None:
    """The target of a task; None if it has none, or there is no such task."""
    try:
        return there[name].target
    except TschedError:
        return None


def _require_regret(options: SearchOptions) -> None:
    """Raises UsageError if the strategy cannot tell when to end, and is asked to; and what a broken strategy raises."""
    from tensorc_dsl.faces.api.searching import can_end_by_regret

    if not can_end_by_regret(options.strategy) and options.until is not None:
        raise click.UsageError(
            f"the strategy {options.strategy!r} does not say how much faster another schedule may be, as --until needs; "
            "bayes does"
        )


def _require_whole(ctx: click.Context) -> None:
    """Raises UsageError if an option was given that is about single tasks."""
    for p in ctx.command.params:
        if p.name in OF_TASKS and ctx.get_parameter_source(p.name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"`{p.opts[0]}` is about single tasks, and a model is tuned as a whole")


OF_TASKS = (
    "weights", "replayed", "hidden", "bits_of", "same_rows", "target", "mcpu", "keep_better", "prior", "kernels",
    "objective", "emulate",
)  # fmt: skip
"""The options that are not for models."""


def _model(checked: CheckedFile, words: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]] | None:
    """The model that is meant by the words behind the file, None for the only one, and those of its tasks that are named;
    None if tasks of the file are meant.

    A model is named first. In a file without tasks, the words are tasks of its only model.
    """
    if words and words[0] in checked.models and words[0] not in checked.tasks:
        return words[0], words[1:]
    return (None, words) if checked.models and not checked.tasks else None


def _require_no_times(ctx: click.Context) -> None:
    """Raises UsageError if an option was given that is about times, or about a CPU."""
    for name, option, why in (
        ("prior", "--write-prior", "learns from times"),
        ("threads", "--threads", "is about times on a CPU"),
        ("kernels", "--kernels", "selects among kernels by times"),
        ("objective", "--objective", "weighs times at several sizes"),
    ):
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"`{option}` {why}, and `--emulate` counts")


def _count(
    found: list[Task], weights: list[float], options: SearchOptions, records: Path | None, ending: Ending, form: Form
) -> list[EndedCounting]:
    """How a search of all tasks by emulated counts ended, which is shown on standard error."""
    from tensorc_dsl.faces.api.searching import emulate_all
    from tensorc_dsl.faces.report.ended import EndedCounting
    from tensorc_dsl.faces.report.progress import Standing, Together, show_progress
    from tensorc_dsl.tuning.measure.outcome import Quantity
    from tensorc_dsl.tuning.records.emulated_counts import place

    path, names = place(records), [one.name for one in found]
    standing = Standing(quantity=Quantity.CYCLES)
    with show_progress(standing, sys.stderr) as follower:
        together = Together(standing, follower, [None] * len(found), names, options.trials * len(names))
        listeners = heard(together, names, ending, form, Quantity.CYCLES)
        plans = [one.plan(tell, w) for one, tell, w in zip(found, listeners, weights, strict=True)]
        counted = emulate_all(found, plans, options, path)
    return [
        EndedCounting(one.name, one.target, options.strategy, c.result, c.found, c.recorded, path, _kept(one))
        for one, c in zip(found, counted, strict=True)
    ]


def _search(
    found: list[Task],
    weights: list[float],
    options: SearchOptions,
    queue: Queue,
    ending: Ending,
    form: Form,
    on: Pool | Board | None,
) -> list[Ended]:
    """How a search of all tasks ended, which is shown on standard error, with what each is compared with."""
    from tensorc_dsl.faces.api.searching import roof_on, search_all
    from tensorc_dsl.faces.report.ended import Ended
    from tensorc_dsl.faces.report.progress import Standing, Together, show_progress
    from tensorc_dsl.tuning.machine.baseline import Measuring, Yardsticks
    from tensorc_dsl.tuning.measure.outcome import Quantity

    standing, names = Standing(), [one.name for one in found]
    with show_progress(standing, sys.stderr) as follower:
        begins = [follower.begin if len(found) == 1 else partial(_begin_for, follower, name) for name in names]
        measuring = [
            Measuring(one.program, one.target, one.threads, begin) for one, begin in zip(found, begins, strict=True)
        ]
        yardsticks = [m.first() for m in measuring] if on is None else [Yardsticks(roof_on(on, t)) for t in found]
        together = Together(standing, follower, [y.roof for y in yardsticks], names, options.trials * len(names))
        listeners = heard(together, names, ending, form, Quantity.SECONDS)
        plans = [
            one.plan(tell, w, yards.roof)
            for one, tell, w, yards in zip(found, listeners, weights, yardsticks, strict=True)
        ]
        results = search_all(plans, options, records=queue, on=on)
        for n, result in enumerate(results):
            if on is None and result.best is not None and not (ending.told or result.interrupted):
                with suppress(KeyboardInterrupt), interruptible(ending):
                    yardsticks[n] = measuring[n].beside_numpy(yardsticks[n])
                    yardsticks[n] = measuring[n].again(yardsticks[n])
    return [
        Ended(one.name, one.target, one.threads, options.strategy, result, yards, one.timed_at, _kept(one))
        for one, result, yards in zip(found, results, yardsticks, strict=True)
    ]


def _kept(task: Task) -> str:
    return "" if task.keeps is None else task.keeps.words


def _begin_for(follower: Follower, task: str, line: str) -> None:
    follower.begin(f"{task}: {line}")


MANY = 1_000_000
"""The number of trials of a search with only a time limit: more than any has time for."""


def _trials(trials: int | None, budget: float | None) -> int:
    if trials is not None:
        return trials
    return DEFAULTS.trials if budget is None else MANY


def _form(as_json: bool, as_lines: bool) -> Form:
    return Form.LINES if as_lines else Form.OBJECT if as_json else Form.TABLE


def _weights(given: Sequence[tuple[str, str]], names: Sequence[str]) -> list[float]:
    """The weight of the time of each task."""
    found = dict.fromkeys(names, 1.0)
    for name, text in given:
        if name not in found:
            raise click.BadParameter(f"there is no search for a task {name!r}", param_hint="--weight")
        try:
            found[name] = float(text)
        except ValueError:
            found[name] = -1.0
        if not 0.0 < found[name] < 1e9:
            raise click.BadParameter(f"{text!r} is no positive number", param_hint="--weight")
    return list(found.values())


def _explain(task: Task, result: TuneResult) -> None:
    """The reason why there is no valid candidate: the refused step, or the messages of the failed candidates."""
    say("no valid candidate", err=True)
    if not result.trials:
        try:
            task.check()
        except TschedError as e:
            show_diagnostics(*e.diagnostics)
    for message, count in Counter(f"{o.status.replace('_', ' ')}: {o.message}" for o in result.outcomes).most_common(3):
        show_foreign(f"{count} × {message}")
