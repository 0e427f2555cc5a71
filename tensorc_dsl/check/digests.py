"""Which texts of the standard library need no check, since they are those in which nothing was found.

Half of the time in which files of the library are loaded went into their check, which finds nothing. Each process paid for
it, and again for each sequence of uses. `make reference` writes the digests of files that it has checked, and `tests/stdlib`
checks all. A file with another text is checked as any other.
"""

from __future__ import annotations

from hashlib import sha256

from tensorc_dsl.base.resources import stdlib_digests
from tensorc_dsl.base.source import Source


def is_checked(source: Source) -> bool:
    """Whether it is a file of the library whose text has no finding, as long as what it uses has none."""
    return stdlib_digests().get(source.name) == digest(source)


def digest(source: Source) -> str:
    """The SHA-256 of its text."""
    return sha256(source.text.encode()).hexdigest()
