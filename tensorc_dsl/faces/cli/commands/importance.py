"""`importance`: show which draws of a task matter, by its records."""

from __future__ import annotations

from pathlib import Path

import click

from tensorc_dsl.faces.cli.options import (
    common_options,
    file_argument,
    records_option,
    task_argument,
    task_of_options,
    threads_option,
)
from tensorc_dsl.faces.report.terminal import begin, show, show_diagnostics, show_object


@click.command()
@file_argument
@task_argument
@threads_option
@records_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
@common_options
def importance(file: str, task: str | None, threads: int | None, records: str | None, as_json: bool) -> None:
    """Show how much each draw of a task decides about its time, and which draws can be pinned.

    The figures come from a model of the trials that are recorded for the task on this machine, so they are as good as the
    model; the last line of the table states how good that is. Nothing is measured.
    """
    from tensorc_dsl.base.units import counted
    from tensorc_dsl.faces.api.searching import recorded_trials, studied
    from tensorc_dsl.faces.report.recorded import importance_facts, importance_text
    from tensorc_dsl.tuning.insight import importance as importances
    from tensorc_dsl.tuning.insight import pins, posterior
    from tensorc_dsl.tuning.records.database import Database

    found = task_of_options(file, task, threads)
    with Database.required(Path(records) if records else None) as database:
        trials = recorded_trials(found, database, show_diagnostics)
    begin(f"learning from {counted(len(trials), 'record')}")
    study = studied(found.model, found.name, trials)
    ranked = importances(study)
    pinned = pins(study, ranked, posterior(study))
    if as_json:
        show_object({"task": found.name} | importance_facts(study, ranked, pinned))
    else:
        show(importance_text(study, ranked, pinned, ("tensorc-dsl", "tune", file, found.name)))
