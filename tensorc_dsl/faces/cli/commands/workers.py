"""`workers`: who works for a scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tensorc_dsl.faces.cli.options import common_options, token_option
from tensorc_dsl.faces.report.terminal import say, show, show_object

if TYPE_CHECKING:
    from tensorc_dsl.tuning.cluster.pool import Seen


@click.command()
@click.argument("scheduler")
@token_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
@common_options
def workers(scheduler: str, token: str | None, as_json: bool) -> None:
    """List the workers of a Dask scheduler: their machines, what they do, their drift and their last error.

    The drift is how many times longer the reference kernel of the search takes than it took there at its fastest.
    """
    from tensorc_dsl.tuning.cluster.access import Address, read_token, require_dask
    from tensorc_dsl.tuning.cluster.pool import Pool

    require_dask()
    where = Address.of(scheduler)
    if where.here:
        raise click.UsageError("`local:` has no workers but during a search")
    with Pool(where, read_token(None if token is None else Path(token))) as pool:
        seen = pool.workers()
    if as_json:
        show_object([_facts(s) for s in seen], indent=2)
    elif not seen:
        say("no workers")
    else:
        from tensorc_dsl.faces.report.recorded import table

        rows = [[str(x) for x in _row(s)] for s in seen]
        show(table(("machine", "target", "builders", "timed", "built", "drift", "does", "last error"), rows))


def _facts(s: Seen) -> dict[str, Any]:
    st = s.standing
    return {
        "machine": s.name,
        "address": s.address,
        "target": s.facts.target.key,
        "times": s.facts.times,
        "builders": s.facts.builders,
        "version": s.facts.version,
        "doing": st.doing or None,
        "seconds": st.seconds,
        "timed": st.timed,
        "built": st.built,
        "drift": st.drift,
        "error": st.error or None,
        "unfit": s.unfit or None,
    }


def _row(s: Seen) -> tuple[object, ...]:
    st = s.standing
    does = s.unfit or (f"timing for {st.seconds:.1f} s" if st.doing else "waiting")
    target = s.facts.target.key if s.facts.times else "only builds"
    drift = "" if st.drift is None else f"{st.drift:.2f}"
    return s.name, target, s.facts.builders, st.timed, st.built, drift, does, st.error
