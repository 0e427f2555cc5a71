"""`db`: lists, shows, copies, prunes and verifies records."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from tensorc_dsl.base.diagnostic import TschedError
from tensorc_dsl.faces.cli.failures import ExitCode
from tensorc_dsl.faces.cli.options import (
    Group,
    common_options,
    file_argument,
    files_argument,
    load,
    records_option,
    task_argument,
    threads_option,
)
from tensorc_dsl.faces.report.terminal import say, show, show_diagnostics, show_object, write

if TYPE_CHECKING:
    from collections.abc import Generator

    from tensorc_dsl.tuning.records import database
    from tensorc_dsl.tuning.records.database import Database
    from tensorc_dsl.tuning.records.errors import Passed
    from tensorc_dsl.tuning.records.trial import Subject, Trial

name_option = click.option("--task", metavar="NAME", help="Records of tasks of this name only.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")


@click.group(cls=Group)
@common_options
def db() -> None:
    """List, show, copy, prune and verify the records of searches."""


def _path(records: str | None) -> Path:
    from tensorc_dsl.tuning.records.database import default_path

    return Path(records) if records else default_path()


@contextmanager
def _read(records: str | None) -> Generator[Database | None]:
    """The database, opened for reading; None, with a message, if the user has none yet.

    Raises TschedError (E0711) if there is none where `records` says.
    """
    from tensorc_dsl.tuning.records.database import Database

    database = Database.required(_path(records)) if records else Database.reading(_path(records))
    if database is None:
        say(f"there are no records in {_path(records)}", err=True)
        yield None
        return
    with database:
        yield database


def _grouped(database: Database, task: str | None) -> tuple[database.Group, ...]:
    """The records grouped by task and target; unreadable ones are skipped with a warning."""
    from tensorc_dsl.tuning.records.database import grouped

    groups, passed = grouped(database.all(), task)
    _warn(database, passed, task)
    return groups


def _warn(database: Database, passed: Sequence[Passed], task: str | None) -> None:
    from tensorc_dsl.tuning.records.errors import passed_over

    if passed:
        show_diagnostics(passed_over(database.path, task or "all tasks", passed))


@db.command("list")
@name_option
@records_option
@json_option
@common_options
def list_(task: str | None, records: str | None, as_json: bool) -> None:
    """List the tasks with records: the machine, the number of records and the best time of each."""
    from tensorc_dsl.faces.report import recorded

    with _read(records) as database:
        groups = _grouped(database, task) if database else ()
    if as_json:
        show_object([recorded.group_facts(g) for g in groups])
    elif groups:
        show(recorded.listed(groups))


@db.command()
@name_option
@records_option
@json_option
@common_options
def best(task: str | None, records: str | None, as_json: bool) -> None:
    """Show the best record of each task on each machine, with its number for `db show`."""
    from tensorc_dsl.faces.report import recorded

    with _read(records) as database:
        groups = [g for g in (_grouped(database, task) if database else ()) if g.ranked()]
    if as_json:
        show_object([recorded.group_facts(g) for g in groups])
    elif groups:
        show(recorded.best(groups))


@db.command("show")
@click.argument("record", type=click.IntRange(0), metavar="RECORD")
@records_option
@json_option
@common_options
def show_(record: int, records: str | None, as_json: bool) -> None:
    """Show all fields of the record of that number. The output is a file that `replay` takes."""
    import msgspec

    from tensorc_dsl.faces.report import recorded
    from tensorc_dsl.tuning.records import errors
    from tensorc_dsl.tuning.records.schema import BadRow

    with _read(records) as database:
        kept = database.row(record) if database else None
        if kept is None:
            raise errors.no_record(_path(records), record)
        assert database is not None
        if isinstance(kept.trial, BadRow):
            raise errors.damaged(database.path, f"row {record} cannot be read: {kept.trial}")
        workloads, targets = database.subjects()
    text = targets.get(kept.trial.fingerprint)
    facts = None if text is None else msgspec.json.decode(text)
    if as_json:
        more = {"program": workloads.get(kept.trial.task_key), "target": facts}
        show_object(recorded.facts(kept.row, kept.trial) | more)
    else:
        machine = None if facts is None else ", ".join(f"{k} {v}" for k, v in facts.items() if v and k != "features")
        write(recorded.described(kept.row, kept.trial, machine))


@db.command()
@click.option("--output", type=click.Path(), metavar="PATH", help="The file to write, in place of the usual one.")
@name_option
@records_option
@common_options
def export(output: str | None, task: str | None, records: str | None) -> None:
    """Print the records as JSON Lines, which `db import` takes; docs/records.md describes their fields."""
    from tensorc_dsl.base.outputs import Output
    from tensorc_dsl.tuning.records.database import Database
    from tensorc_dsl.tuning.records.exchange import written

    with Database.required(_path(records)) as database:
        groups = _grouped(database, task)
        trials = dict(sorted((row, t) for g in groups for row, t in g.trials.items()))
        lines = b"".join(written(trials.values(), *database.subjects()))
    if output is not None:
        Output(Path(output), typed=True).write(lines)
    else:
        write(lines.decode())


@db.command("import")
@files_argument
@records_option
@common_options
def import_(files: tuple[str, ...], records: str | None) -> None:
    """Add the records in files of JSON Lines, or on standard input for `-`; records that exist are not added twice.

    Each line is checked; a line that is no valid record is skipped with a warning.
    """
    from tensorc_dsl.tuning.records import errors, exchange
    from tensorc_dsl.tuning.records.database import Database

    found: list[tuple[str, exchange.Read]] = []
    for file in files:
        with _opened(file) as source:
            read = exchange.read(source)
        if read.newer is not None:
            raise errors.newer_schema(Path(file), read.newer, exchange.SCHEMA_VERSION)
        if read.passed and not (read.trials or read.subjects):
            raise errors.records_not_exported(file, f"line {read.passed[0].row}: {read.passed[0].why}")
        found.append((file, read))
    with Database.open(_path(records)) as database:
        for file, read in found:
            added = database.add_all(read.trials, read.subjects)
            if read.passed:
                show_diagnostics(errors.lines_passed(file, read.passed))
            _say_added(file, added, len(read.trials))


@db.command()
@click.argument("url", metavar="URL")
@records_option
@common_options
def sync(url: str, records: str | None) -> None:
    """Share records with a team: add those at URL to the database, and those of the database there.

    URL is a folder, or what fsspec reaches, such as s3://bucket/records. Files there are never changed, and each is
    checked by its digest. It needs the extra `cluster` of the package.
    """
    from tensorc_dsl.base.units import counted
    from tensorc_dsl.tuning.cluster.access import require_dask
    from tensorc_dsl.tuning.records.database import Database
    from tensorc_dsl.tuning.records.exchange import sync as synced

    require_dask()
    with Database.open(_path(records)) as database:
        done = synced(database, url)
    show_diagnostics(*done.damaged)
    say(f"{counted(done.files, 'file')} read, {counted(done.added, 'record')} added")
    say(f"{counted(done.sent, 'record')} written" + (f" to {done.wrote}" if done.wrote else ""))
    if done.damaged:
        click.get_current_context().exit(ExitCode.FINDINGS)


@contextmanager
def _opened(file: str) -> Generator[BinaryIO]:
    from tensorc_dsl.faces.report.files import unreadable

    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        source = open(file, "rb")  # noqa: SIM115 (an error in the body is none of opening)
    except OSError as e:
        raise unreadable(file, e, "give a file that `tensorc-dsl db export` wrote") from e
    with source:
        yield source


def _say_added(file: str, added: int, offered: int) -> None:
    from tensorc_dsl.base.units import counted

    there = offered - added
    say(f"{file}: {counted(added, 'record')} added" + (f", {there} there already" if there else ""))


@db.command()
@click.argument("databases", metavar="DATABASE...", nargs=-1, required=True)
@records_option
@common_options
def merge(databases: tuple[str, ...], records: str | None) -> None:
    """Add the records of other databases, which are only read; records that exist are not added twice.

    Of a damaged database those are added that can be read.
    """
    from tensorc_dsl.base.units import counted
    from tensorc_dsl.tuning.records import errors
    from tensorc_dsl.tuning.records.database import Database, salvaged

    with Database.open(_path(records)) as into:
        for name in databases:
            try:
                trials, subjects = _all_of(Path(name))
            except TschedError as e:
                if not errors.is_damage(e):
                    raise
                trials, subjects = salvaged(Path(name))
                show_diagnostics(errors.salvage(Path(name), counted(len(trials), "record")))
            _say_added(name, into.add_all(trials, subjects), len(trials))


def _all_of(path: Path) -> tuple[list[Trial], list[Subject]]:
    """The records of a database, and what it says of their tasks and machines; a warning tells which are skipped."""
    from tensorc_dsl.tuning.records.database import Database
    from tensorc_dsl.tuning.records.errors import Passed
    from tensorc_dsl.tuning.records.trial import Subject, Trial

    with Database.required(path) as source:
        kept = [*source.all()]
        workloads, targets = source.subjects()
    _warn(source, [Passed(k.row, str(k.trial)) for k in kept if not isinstance(k.trial, Trial)], None)
    subjects = [Subject(key, program, "", "") for key, program in workloads.items()]
    subjects += [Subject("", "", key, facts) for key, facts in targets.items()]
    return [k.trial for k in kept if isinstance(k.trial, Trial)], subjects


@db.command()
@click.option(
    "--keep", type=click.IntRange(1), required=True, metavar="K", help="How many programs of a task to keep, the best."
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@name_option
@records_option
@common_options
def prune(keep: int, dry_run: bool, task: str | None, records: str | None) -> None:
    """Remove all records but those of the K best programs of each task on each machine.

    Searches learn from the removed records, also from failures.
    """
    from tensorc_dsl.base.units import counted
    from tensorc_dsl.tuning.records.database import Database

    path = _path(records)
    with Database.required(path) as database:
        groups = _grouped(database, task)
    gone = [row for g in groups for row in g.beyond(keep)]
    left = sum(len(g.trials) for g in groups) - len(gone)
    if gone and not dry_run:
        with Database.open(path) as writable:
            writable.remove(gone)
    say(f"{counted(len(gone), 'record')} {'would be ' if dry_run else ''}removed, {left} kept")


@db.command()
@file_argument
@task_argument
@threads_option
@click.option(
    "--best", "most", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="How many records."
)
@click.option("--time", "timed", is_flag=True, help="Show the times of today beside the recorded ones.")
@records_option
@json_option
@common_options
@click.pass_context
def verify(
    ctx: click.Context, file: str, task: str | None, threads: int | None, most: int, timed: bool, records: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Replay the best records of a task, or of all tasks of a file, and run their kernels against the reference.

    Times that an earlier version divided by wrong factors are first replaced by the times as they were measured.

    Exit status 1: a record makes another program than the recorded one, or a kernel that fails.
    """
    from tensorc_dsl.base.units import counted, seconds
    from tensorc_dsl.faces.api.recorded import repaired, reviewed
    from tensorc_dsl.faces.report.recorded import table

    tasks = load(file, threads)
    chosen = [tasks[task]] if task is not None else [*tasks.values()]
    found: list[dict[str, object]] = []
    for one in chosen if _path(records).exists() else ():
        if count := repaired(one, _path(records)):
            what = counted(count, "record")
            say(f"{one.name}: {what} had times divided by wrong factors, and now have them as measured", err=True)
    with _read(records) as database:
        for one in chosen if database else ():
            assert database is not None
            for r in reviewed(one, database, most):
                now = None if r.outcome is None else r.outcome.seconds
                facts: dict[str, object] = {
                    "task": one.name,
                    "record": r.row,
                    "problem": r.problem or None,
                    "recorded": r.trial.seconds,
                }
                found.append(facts | ({"now": now} if timed else {}))
    if as_json:
        show_object(found)
    elif found:
        head = ("task", "record", *(("recorded", "now") if timed else ()), "result")
        rows: list[Sequence[str]] = []
        for f in found:
            times = [seconds(x) if isinstance(x, float) else "" for x in (f["recorded"], f.get("now"))] if timed else []
            rows.append((str(f["task"]), str(f["record"]), *times, str(f["problem"] or "right")))
        show(table(head, rows))
    if any(f["problem"] for f in found):
        ctx.exit(ExitCode.FINDINGS)
