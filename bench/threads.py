"""Measures the cost of a parallel loop, and the peak on one thread and on all: `python -m bench.threads`."""

from __future__ import annotations

from statistics import median

from tensorc_dsl.backend.llvm.runtime.native import fork_join_seconds
from tensorc_dsl.backend.llvm.runtime.peak import FMA, peak
from tensorc_dsl.tuning.machine.host import host_target

ROUNDS = 9


def main() -> None:
    target = host_target()
    times = sorted(fork_join_seconds(target.cores) for _ in range(ROUNDS))
    print(
        f"fork and join on {target.cores} threads: median {median(times) * 1e6:.2f} µs, worst {times[-1] * 1e6:.2f} µs"
    )
    for threads in sorted({1, target.cores}):
        rates = sorted(peak(FMA, target, threads) / 1e9 for _ in range(ROUNDS))
        print(
            f"FMA peak on {threads}: median {median(rates):.1f} GFLOP/s, lowest {rates[0]:.1f}, highest {rates[-1]:.1f}"
        )


if __name__ == "__main__":
    main()
