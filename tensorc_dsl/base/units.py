"""Formats numbers for people: three digits and a suitable unit."""

from __future__ import annotations


def seconds(value: float) -> str:
    """A duration: 431 ns, 12.3 µs, 1.31 ms, 21.3 s, 4 min 05 s."""
    if value >= 59.95:
        minutes, rest = divmod(round(value), 60)
        return f"{minutes} min {rest:02d} s"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale * 0.9995:
            return f"{_digits(value / scale)} {unit}"
    return f"{value * 1e9:.0f} ns"


def giga(value: float) -> str:
    """Operations or bytes per second in units of 1e9."""
    return _digits(value / 1e9)


def operations(value: float) -> str:
    """A number of operations: 431, 12.3 k, 4.10 M, 2.05 G."""
    for unit, scale in ((" G", 1e9), (" M", 1e6), (" k", 1e3)):
        if value >= scale * 0.9995:
            return f"{_digits(value / scale)}{unit}"
    return f"{value:.0f}"


def bytes_(value: float) -> str:
    """`48 KiB`; with three digits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{_digits(value)} {unit}"
        value /= 1024
    raise AssertionError


def share(value: float) -> str:
    """A fraction as a percentage: 93 %."""
    return f"{100 * value:.0f} %"


def counted(count: int, noun: str) -> str:
    """`no trials`, `1 trial`, `2 trials`, `2 crashes`."""
    ending = "" if count == 1 else "es" if noun.endswith(("s", "sh", "ch", "x")) else "s"
    return f"{count or 'no'} {noun}{ending}"


def _digits(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
