"""Times the replay of a frozen schedule, a 3×3 convolution with 40 steps: `python -m bench.replay [--rounds 20]`.

The same steps are timed twice: as the text of a trace, parsed once and expanded many times, and as calls of
`schedule.primitive.apply` alone. Times are processor times, medians of the rounds. The first round is shown separately,
since it makes the proofs that later ones find cached (`affine` answers equal questions once per process), as the first
candidate of a search does.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.interp import calls
from tensorc_dsl.interp.space import Space, task_space
from tensorc_dsl.ir.target import Target
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.trace.trace import Trace
from tensorc_dsl.tuning.search.expansion import stream

ROOT = Path(__file__).resolve().parent.parent
SCHEDULE = """
schedule blocked for conv2d_nhwc {
    let Y_write = cache_write(Y, "local")
    let [n_1, oh, ow, co, kh, kw, ci] = Y.loops
    let [n_0, n_2] = split(n_1, [1, 1])
    let [oh_0, oh_1, oh_2] = split(oh, [14, 4, 1])
    let [ow_0, ow_1, ow_2] = split(ow, [2, 4, 7])
    let [co_0, co_1, co_2] = split(co, [2, 2, 16])
    let [kh_0, kh_1] = split(kh, [3, 1])
    let [kw_0, kw_1] = split(kw, [1, 3])
    let [ci_0, ci_1] = split(ci, [8, 8])
    reorder(n_0, oh_0, ow_0, co_0, n_2, oh_1, ow_1, co_1, kh_0, kw_0, ci_0, kh_1, kw_1, ci_1, oh_2, ow_2, co_2)
    reverse_compute_at(Y_write, co_1)
    compute_at(P, co_0)
    let F_local = cache_read(Y, F, "local")
    compute_at(F_local, ci_0)
    let P_local = cache_read(Y, P, "local")
    compute_at(P_local, ci_0)
    let [p_0, p_1, p_2] = P.loops[-3:]
    let [p_c, p_v] = split(p_2, [_, 16])
    reorder(p_1, p_0)
    vectorize(p_v)
    vectorize(F_local.loops[-1])
    unroll(F_local.loops[-2])
    unroll(F_local.loops[-3])
    vectorize(P_local.loops[-1])
    unroll(P_local.loops[-2])
    let Y_init = decompose_reduction(Y, kh_0)
    unroll(oh_2)
    unroll(ow_2)
    vectorize(co_2)
    let inits = Y_init.loops
    unroll(inits[-2])
    vectorize(inits[-1])
    let writes = Y_write.loops
    unroll(writes[-2])
    vectorize(writes[-1])
    unroll(kw_1)
    unroll(kh_1)
    unroll(kw_0)
    unroll(n_2)
    annotate(ci_1, "unroll.max_step", 16)
    let outer = fuse(n_0, oh_0)
    parallel(outer)
    annotate(root, "unroll.max_step", 64)
    annotate(Y, "note", "tile of 7 by 16")
}
"""

Step = tuple[str, Any, tuple[Any, ...], dict[str, Any]]
"""A primitive, the program that it is applied to, and its arguments."""


def space() -> Space:
    """The schedule over the layer of `examples/conv2d.tsched`."""
    text = (ROOT / "examples" / "conv2d.tsched").read_text(encoding="utf-8")
    task = "\ntask replayed = conv2d_nhwc(N=1, H=56, W=56, CI=64, CO=64, KH=3, KW=3, pad=1) with blocked\n"
    checked = load_source(Source("replay", text + SCHEDULE + task))
    return task_space(checked, "replayed", Target(vector_bits=256, cores=4))


def replayed(of: Space) -> Trace:
    return of.sample(stream(0, "replayed", "replay"))


def recorded(of: Space) -> list[Step]:
    """The steps that an expansion takes."""
    steps: list[Step] = []

    def noting(program: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        steps.append((name, program, args, kwargs))
        return apply(program, name, *args, **kwargs)

    calls.apply = noting
    try:
        replayed(of)
    finally:
        calls.apply = apply
    return steps


def milliseconds(work: Any) -> float:
    begin = time.process_time()
    work()
    return (time.process_time() - begin) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = range(parser.parse_args().rounds)
    of = space()
    first = milliseconds(lambda: replayed(of))
    whole = median(milliseconds(lambda: replayed(of)) for _ in rounds)
    steps = recorded(of)
    times: dict[str, list[float]] = defaultdict(list)
    for name, program, args, kwargs in steps:
        times[name].append(median(milliseconds(lambda: apply(program, name, *args, **kwargs)) for _ in rounds))  # noqa: B023
    alone = sum(map(sum, times.values()))
    print(f"{len(steps)} steps: first replay {first:.1f} ms, later {whole:.1f} ms; `apply` alone {alone:.1f} ms\n")
    print(f"{'primitive':<24}{'steps':>6}{'ms':>8}{'worst':>8}")
    for name, each in sorted(times.items(), key=lambda entry: -sum(entry[1])):
        print(f"{name:<24}{len(each):>6}{sum(each):>8.2f}{max(each):>8.2f}")


if __name__ == "__main__":
    main()
