"""Runs searches over models, with child processes, the database and a progress display; their failures can be pickled."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tensorc_dsl.backend.once import lowering_for
from tensorc_dsl.base import units
from tensorc_dsl.base.diagnostic import Diagnostic, TschedError, problem
from tensorc_dsl.base.frozen import frozen
from tensorc_dsl.faces.api.kernel import counted
from tensorc_dsl.faces.api.schedules import TaskData
from tensorc_dsl.faces.report.page import fragment
from tensorc_dsl.faces.report.progress import Standing, is_shown_live, show_progress
from tensorc_dsl.faces.report.recorded import importance_caveat, percent
from tensorc_dsl.ir.program import Program
from tensorc_dsl.ir.target import Target
from tensorc_dsl.processes.machine import Turns
from tensorc_dsl.proof.equivalence.bits import same_bits
from tensorc_dsl.proof.equivalence.validate import UNPROVED, Report, Unproved, Valid, validate
from tensorc_dsl.reference.work import sizing
from tensorc_dsl.schedule.trace.distribution import Decision
from tensorc_dsl.schedule.trace.trace import Model, Trace
from tensorc_dsl.tuning.cluster.ssh import Board
from tensorc_dsl.tuning.insight import (
    FEWEST,
    Importance,
    Learnt,
    Pin,
    Study,
    TooFew,
    decisions_of,
    importance,
    pins,
    posterior,
    study,
)
from tensorc_dsl.tuning.machine.roof import GLANCE, MEASURING, PATIENCE, Roof, roof_of, unmeasured
from tensorc_dsl.tuning.measure.local import LocalRunner
from tensorc_dsl.tuning.measure.outcome import Outcome
from tensorc_dsl.tuning.records import emulated_counts
from tensorc_dsl.tuning.records.database import Database, Queue
from tensorc_dsl.tuning.records.emulated_counts import Counted, EmulatingRunner, Emulation, SearchKey
from tensorc_dsl.tuning.records.errors import Passed, passed_over
from tensorc_dsl.tuning.records.shipped import shipped
from tensorc_dsl.tuning.records.trial import Trial, decode_decisions, encode_decisions, program_key
from tensorc_dsl.tuning.search.events import Crew, Event, Listener, Measured, Prepared, Preparing, Sharing
from tensorc_dsl.tuning.search.expansion import FromText, meaning_of
from tensorc_dsl.tuning.search.log import Past, SearchInput
from tensorc_dsl.tuning.search.options import SearchOptions
from tensorc_dsl.tuning.search.plausible import Plausible, Resources, Watch
from tensorc_dsl.tuning.search.several import tune_all
from tensorc_dsl.tuning.search.strategy import states_regret, strategy_of
from tensorc_dsl.tuning.search.team import Ground, Team
from tensorc_dsl.tuning.search.tune import Search, TuneResult, as_fast

if TYPE_CHECKING:
    from tensorc_dsl.tuning.cluster.board import BoardRunner
    from tensorc_dsl.tuning.cluster.pool import Pool

# Runs searches over models, with child processes, the database and a progress display.


ALIVE = 4
"""How many searches keep their processes at a time; starting a process takes a second, and each takes memory."""


@frozen
class Plan:
    """The input of one search, on the threads of the target; `weight` is the factor of its time in the total. Kernels are
    timed with so many `copies` of constant inputs. `expand` makes the trace of a schedule for the task from its text, and
    `holds` says whether it keeps what schedules of the task are to keep.

    `roof` is that of the machine, if it is known already. Schedules give the bits of the program `bits_of`, if there is one.
    """

    model: Model
    program: Program
    target: Target
    made_by: Callable[[Trace], Mapping[str, str]]
    on_event: Listener | None = None
    weight: float = 1.0
    roof: Roof | None = None
    copies: int = 1
    bits_of: Program | None = None
    expand: FromText | None = None
    holds: Callable[[Trace], bool] = lambda _: True


def search_all(
    plans: Sequence[Plan],
    options: SearchOptions,
    *,
    records: Path | Queue | None = None,
    trials: int | None = None,
    on: Pool | Board | None = None,
) -> list[TuneResult]:
    """The results of a search of each model for the fastest kernel of its program (unscheduled), on this machine, or `on`
    the workers of a pool, or a board.

    The options hold for each search. The searches share `trials`, or the sum of theirs, as `tuning.search.tune` describes.
    """
    with ExitStack() as stack:
        queue = records if isinstance(records, Queue) else stack.enter_context(Queue.at(records))
        team = stack.enter_context(Team())
        begun = [_begun(plan, options, queue, team, stack, on) for plan in plans]
        recent: list[int] = []

        def turn(number: int) -> None:
            if number in recent:
                recent.remove(number)
            recent.append(number)
            for resting in recent[:-ALIVE]:
                begun[resting][1]()
            del recent[:-ALIVE]

        # On this machine, and on a board, kernels run one after another, whatever they are made for.
        targets = [plan.target for plan in plans] if on is not None and not isinstance(on, Board) else []
        groups = [targets.index(target) for target in targets]
        return tune_all([one for one, _ in begun], [p.weight for p in plans], turn, trials, groups)


def _begun(
    plan: Plan, options: SearchOptions, queue: Queue, team: Team, stack: ExitStack, on: Pool | Board | None
) -> tuple[Search, Callable[[], None]]:
    """A search, and what ends its processes while others go on; the stack closes its runner."""
    program, target = plan.program, plan.target

    def tell(event: Event) -> None:
        if plan.on_event is not None:
            plan.on_event(event)

    turns = Turns(lambda given_up: tell(Sharing(given_up)))
    watch: Watch | None = None
    many: Plausible | None = None
    if on is None:
        local = stack.enter_context(
            LocalRunner(
                program,
                target,
                threads=target.cores,
                on_preparing=lambda begins: tell(Preparing() if begins else Prepared(local.compared)),
                turns=turns,
                copies=plan.copies,
                bits_of=plan.bits_of,
            )
        )
        rest = local.close
        lowering_for(target).constants(target, measure=True)  # once for a machine, before its team reads them
        glance = plan.roof or roof_of(program, target, target.cores, GLANCE)
        runner = Plausible(local, glance, lambda: roof_of(program, target, target.cores))
        resources = Resources.of(target, target.cores, glance, turns)
        watch = Watch(
            runner.again,
            least=runner.least,
            memory=resources.memory,
            computing=resources.computing,
            moving=glance.moving,
        )
    elif isinstance(on, Board):
        runner = _on_board(plan, on, tell, stack, turns)
        rest, watch = runner.close, Watch(runner.again)
    else:
        runner = many = _on_workers(plan, on, tell, stack)
        rest = _nothing  # workers have something to do for others
    given = SearchInput(
        space=plan.model,
        program=program,
        target=target,
        options=options,
        runner=runner,
        threads=target.cores,
        copies=plan.copies,
        records=queue,
        on_event=tell,
        verify=partial(_judge, program, plan.bits_of),
        made_by=plan.made_by,
        shipped=partial(shipped, meaning_of(target)) if options.shipped else None,
        watch=watch,
        expander=team.expander(Ground(plan.model, target, sizing(program).timed[-1]), turns),
        expand=plan.expand,
        holds=plan.holds,
        many=many,
    )
    return Search(given), rest


def _nothing() -> None:
    pass


def _on_board(plan: Plan, board: Board, tell: Listener, stack: ExitStack, turns: Turns) -> BoardRunner:
    """A runner on a board, which the stack closes."""
    from tensorc_dsl.tuning.cluster.board import BoardRunner

    if plan.copies != 1:
        raise ValueError("a board has one copy of constant inputs")
    runner = BoardRunner(
        plan.program,
        plan.target,
        board,
        threads=plan.target.cores,
        turns=turns,
        bits_of=plan.bits_of,
        told=lambda news: tell(Crew(news, int(news.change == "joined"))),
        on_preparing=lambda begins: tell(Preparing() if begins else Prepared(runner.compared)),
    )
    return stack.enter_context(runner)


def _on_workers(plan: Plan, pool: Pool, tell: Listener, stack: ExitStack) -> Plausible:
    """A runner on the workers of a pool, which the stack closes."""
    from tensorc_dsl.tuning.cluster.runner import ClusterRunner  # few searches need Dask

    many = stack.enter_context(
        closing(
            ClusterRunner(
                plan.program,
                plan.target,
                pool,
                threads=plan.target.cores,
                copies=plan.copies,
                bits_of=plan.bits_of,
                told=lambda news: tell(Crew(news, many.timing)),
                on_preparing=lambda begins: tell(Preparing() if begins else Prepared(many.compared)),
            )
        )
    )
    return Plausible(many, plan.roof or many.roof(GLANCE), partial(many.roof, PATIENCE))


def compared_on(on: Pool | Board, task: TaskData, traces: Sequence[Trace]) -> list[Outcome]:
    """The outcomes of the traces' kernels, checked and timed by turns on a worker of the pool, or the board."""
    programs = [trace.program for trace in traces]
    if isinstance(on, Board):
        from tensorc_dsl.tuning.cluster.board import BoardRunner

        with BoardRunner(task.program, task.target, on, threads=task.target.cores) as runner:
            return runner.compare(programs)
    from tensorc_dsl.tuning.cluster.runner import ClusterRunner

    with closing(ClusterRunner(task.program, task.target, on, threads=task.target.cores)) as runner:
        return runner.compare(programs)


def roof_on(on: Pool | Board, task: TaskData) -> Roof:
    """The roof of the task on a worker of the pool, by a short measurement; on a board none is measured."""
    if isinstance(on, Board):
        return unmeasured(task.program)
    from tensorc_dsl.tuning.cluster.runner import ClusterRunner

    with closing(ClusterRunner(task.program, task.target, on, threads=task.target.cores)) as runner:
        return runner.roof(GLANCE)


def _judge(program: Program, bits_of: Program | None, trace: Trace) -> Report:
    """The verdict about a schedule of an unscheduled program, and about its bits if there is a program that has them.

    A proof that fails with a bug proves nothing; the result of the search is kept.
    """
    try:
        right = validate(program, trace.program)
        if not isinstance(right, Valid) or bits_of is None:
            return right
        bits = same_bits(bits_of, trace.program)
        return Valid(tuple(dict.fromkeys((*right.assumes, *bits.assumes)))) if isinstance(bits, Valid) else bits
    except Exception as e:
        reason = f"the proof broke off, which is a bug: {type(e).__name__}: {e}"
        return Unproved(UNPROVED(None, reason=reason, repair="report it with the best file"))


def not_slower(one: Outcome, other: Outcome) -> bool:
    """Whether a kernel is faster than another one, or their times, by turns, do not tell the two apart."""
    return as_fast(one, other)


def can_end_by_regret(strategy: str) -> bool:
    """Whether searches by the strategy state a regret. Raises what a broken strategy raises when it is imported."""
    return states_regret(strategy_of(strategy))


@frozen
class CountedSearch:
    """The result of a search by emulated counts: its figures of times are cycles of a model. `found` has what was counted,
    by the keys of programs, of which so many trials were `recorded` before."""

    result: TuneResult
    found: Mapping[str, Counted]
    recorded: int


def emulate_all(
    tasks: Sequence[TaskData], plans: Sequence[Plan], options: SearchOptions, path: Path
) -> list[CountedSearch]:
    """The results of a search of each task for the kernel with the fewest cycles of a model; nothing is timed.

    Trials are recorded in the file of counts at `path`, where a search that is resumed has its past. The searches share
    their trials as those of `search_all` do. Raises TschedError (E0703, E0708, E0910, E0915, E0920, E0921).
    """
    with Team() as team:
        begun = [_counting(task, plan, options, path, team) for task, plan in zip(tasks, plans, strict=True)]
        results = tune_all([one for one, _, _ in begun], [p.weight for p in plans])
    return [
        CountedSearch(result, runner.found, sum(program_key(t.program) in past for t in result.traces))
        for result, (_, runner, past) in zip(results, begun, strict=True)
    ]


def _counting(
    task: TaskData, plan: Plan, options: SearchOptions, path: Path, team: Team
) -> tuple[Search, EmulatingRunner, Mapping[str, Emulation]]:
    """A search with a runner that emulates, and the records that it goes on with, by their programs."""
    name = SearchKey(emulated_counts.counts_key(plan.program, plan.target), options.seed, options.strategy)
    past = emulated_counts.kept(path, name) if options.resume else dict[str, Emulation]()
    cores = plan.target.cores
    runner = EmulatingRunner(partial(counted, task), cores, {key: one.counted for key, one in past.items()})

    def tell(event: Event) -> None:
        if isinstance(event, Measured) and (key := program_key(event.trace.program)) not in past:
            emulated_counts.keep(path, Emulation(name, key, encode_decisions(event.trace.decisions), runner.found[key]))
        if plan.on_event is not None:
            plan.on_event(event)

    turns = Turns(lambda given_up: tell(Sharing(given_up)))
    given = SearchInput(
        space=plan.model,
        program=plan.program,
        target=plan.target,
        options=options,
        runner=runner,
        threads=cores,
        past=Past(
            outcomes={key: one.counted.outcome(cores) for key, one in past.items()},
            decisions={key: decode_decisions(one.decisions) for key, one in past.items()},
        ),
        on_event=tell,
        verify=partial(_judge, plan.program, plan.bits_of),
        made_by=plan.made_by,
        expander=team.expander(Ground(plan.model, plan.target, sizing(plan.program).timed[-1]), turns),
    )
    return Search(given), runner, past


@contextmanager
def search_display(program: Program, target: Target, progress: bool | None) -> Generator[Listener | None]:
    """A context with a listener that shows a search on standard error; None without a terminal, unless `progress` is set."""
    if progress is False or (progress is None and not is_shown_live(sys.stderr)):
        yield None
        return
    standing = Standing()
    with show_progress(standing, sys.stderr) as follower:
        follower.begin(MEASURING)
        standing.roof = roof_of(program, target, target.cores, GLANCE)
        yield follower


# The failures of a search, as exceptions that can be pickled.


class NoValidCandidate(Exception):
    """A search found no kernel that works. `result` has the outcome of each trial."""

    def __init__(self, result: TuneResult) -> None:
        found = ", ".join(f"{count} {status}" for status, count in result.statuses.items())
        super().__init__(
            f"none of {units.counted(result.trials, 'candidate')} is valid: {found}"
            if result.trials
            else f"no candidate was tried: {_reason(result)}"
        )
        self.result = result

    def __reduce__(self) -> tuple[type[NoValidCandidate], tuple[TuneResult]]:
        return type(self), (self.result,)


class WrongSchedule(Exception):
    """A search found a schedule that computes another result than its task: a bug of a primitive or of the proof."""

    def __init__(self, trace: Trace, diagnostic: Diagnostic) -> None:
        super().__init__(f"a schedule is wrong: {diagnostic.code}: {diagnostic.message}")
        self.trace = trace
        self.diagnostic = diagnostic

    def __reduce__(self) -> tuple[type[WrongSchedule], tuple[Trace, Diagnostic]]:
        return type(self), (self.trace, self.diagnostic)


def _reason(result: TuneResult) -> str:
    """Why a search has no trials."""
    if result.exhausted is not None:
        refusals = units.counted(result.refusals, "expansion")
        return f"the space has no schedule that can be applied, {refusals} ended by a refusal"
    return "it was interrupted" if result.interrupted else "it was given no trials, or no time for one"


# What the records of a task teach about its draws, for the task as it is now and this machine.


@frozen(repr=False)
class Insight:
    """What a model of the trials says about the draws of a task.

    `importance` has the draws, the most important first, `posterior` the values that they have in schedules that are about as
    fast as the best, and `pins` the draws that can be pinned. `best` has the values of the fastest trial. The model learns
    from `valid` trials; `left_out` ones do not fit today's space. `explained` is the share of the variance of the log time
    that it explains in trials that it was not fitted to, so a small one means that the rest says little.
    """

    valid: int
    left_out: int
    explained: float
    best: Mapping[str, Decision]
    importance: tuple[Importance, ...]
    posterior: tuple[Learnt, ...]
    pins: tuple[Pin, ...]

    def __repr__(self) -> str:
        """The draws with their shares of the variance; the values are too many to print."""
        shares = ", ".join(f"{i.name} {percent(i.total)}" for i in self.importance)
        return f"Insight({shares}; {importance_caveat(self.explained, self.valid, self.left_out)})"


def insight_of_study(study: Study) -> Insight:
    """The analysis of a study; nothing is measured."""
    ranked, learnt = importance(study), posterior(study)
    best = decisions_of(study.best)
    return Insight(
        study.valid, study.left_out, study.surrogate.explained, best, ranked, learnt, pins(study, ranked, learnt)
    )


@problem(
    "E0712",
    "`{task}` has {valid} of today's space on this machine, each schedule counted once, and {needed} are needed",
    help="tune it, with more trials or another `--seed`; nothing is learnt of a space with fewer schedules",
)
def TOO_FEW(*, task: str, valid: str, needed: int) -> None: ...


def recorded_trials(task: TaskData, database: Database, on_warning: Callable[[Diagnostic], None]) -> list[Trial]:
    """The records of the task on this machine, in their order; a warning reports those that cannot be read."""
    trials: list[Trial] = []
    passed: list[Passed] = []
    for kept in database.of(program_key(task.program), task.target_key):
        if isinstance(kept.trial, Trial):
            trials.append(kept.trial)
        else:
            passed.append(Passed(kept.row, str(kept.trial)))
    if passed:
        on_warning(passed_over(database.path, task.name, passed))
    return trials


def studied(model: Model, task: str, trials: list[Trial]) -> Study:
    """What the trials teach. Raises TschedError (E0712) if they are too few."""
    found = study(model, task, trials)
    if isinstance(found, TooFew):
        raise TschedError(too_few(task, found))
    return found


def too_few(task: str, found: TooFew) -> Diagnostic:
    """The message where nothing can be learnt."""
    return TOO_FEW(None, task=task, valid=units.counted(found.valid, "valid trial"), needed=FEWEST)


# The result of a search of a task, which a notebook shows.


@frozen(repr=False)
class SearchResult(TuneResult):
    """A result that knows the `model` that was searched, and the `task` by its name."""

    model: Model = field(kw_only=True)
    task: str = field(kw_only=True)

    @staticmethod
    def of(found: TuneResult, model: Model, task: str) -> SearchResult:
        same = {f.name: getattr(found, f.name) for f in fields(TuneResult)}
        return SearchResult(**same, model=model, task=task)

    def insight(self) -> Insight:
        """What the trials of this search say about the draws. Raises TschedError (E0712) if they are too few."""
        return insight_of_study(studied(self.model, self.task, self._trials()))

    def _repr_html_(self) -> str:
        """The best time, how the search got there, and which draws matter, as a notebook shows it."""
        learnt = study(self.model, self.task, self._trials())
        return fragment(self, (learnt, importance(learnt)) if isinstance(learnt, Study) else None)

    def _trials(self) -> list[Trial]:
        """The trials as the analysis reads them, from records that need not exist."""
        return [
            Trial(
                task_key="", target_key="", task=self.task, strategy="", seed=self.seed, trial=n, status=str(o.status),
                decisions=t.decisions, trace=t.text, program_key=program_key(t.program), seconds=o.seconds,
            )
            for n, (t, o) in enumerate(zip(self.traces, self.outcomes, strict=True))
        ]  # fmt: skip
