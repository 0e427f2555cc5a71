"""`worker`: build and time kernels for searches on other machines."""

from __future__ import annotations

from pathlib import Path

import click

from tensorc_dsl.faces.cli.options import common_options, duration, threads_option, token_option
from tensorc_dsl.faces.report.terminal import say

PATIENCE = 600.0
"""How long a scheduler is looked for by default, in seconds."""


@click.command()
@click.argument("scheduler")
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    metavar="KIND",
    help="What kernels are timed on: cpu, cuda for the GPU, or none, so that the worker only builds.",
)
@click.option(
    "--builders",
    type=click.IntRange(0, 256),
    metavar="N",
    help="Kernels that are built at once, by default one per core but one; with 0 the worker only times.",
)
@threads_option
@click.option("--name", metavar="NAME", help="The machine's name in records and reports, by default its host's.")
@click.option(
    "--patience",
    metavar="TIME",
    callback=duration,
    help="How long a scheduler that is not there is looked for, by default 10m.",
)
@token_option
@common_options
def worker(
    scheduler: str,
    device: str,
    builders: int | None,
    threads: int | None,
    name: str | None,
    patience: float | None,
    token: str | None,
) -> None:
    """Build and time kernels for searches: those of `tune --on SCHEDULER` whose token is the same.

    SCHEDULER is the address of a Dask scheduler, tcp://127.0.0.1:8786 or tls://HOST:8786. Kernels run in processes of
    their own, one at a time, and one that crashes ends no worker. A scheduler that goes away is looked for again. SIGTERM
    or Ctrl-C ends the worker.

    What a worker runs is code: give its token only to those who may run programs as you.
    """
    from tensorc_dsl.processes.machine import usable_cores
    from tensorc_dsl.tuning.cluster.access import Address, read_token, require_dask
    from tensorc_dsl.tuning.machine.host import host_target, machine_target

    require_dask()
    where = Address.of(scheduler)
    if where.here:
        raise click.UsageError("`local:` needs no worker: `tune --on local:4` starts its own")
    secret = read_token(None if token is None else Path(token))
    target = host_target(threads)
    if device not in ("cpu", "none"):
        found = machine_target(device)
        if found is None:
            raise click.BadParameter(f"there is no kind {device!r}", param_hint="--device")
        target = found
    from tensorc_dsl.tuning.cluster.pool import serve
    from tensorc_dsl.tuning.cluster.station import Station

    many = max(1, usable_cores() - 1) if builders is None else builders
    if device == "none" and not many:
        raise click.UsageError("a worker that neither builds nor times does nothing")
    station = Station(target, secret, machine=name or "", builders=many, times=device != "none")
    does = f"times kernels for {target.key}" if device != "none" else "only builds"
    say(f"{station.facts.machine}: {does}, {many} built at once", err=True)
    serve(where, [station], patience=PATIENCE if patience is None else patience, told=lambda line: say(line, err=True))
