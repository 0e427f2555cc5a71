"""The strategies of a search, a file each."""

from __future__ import annotations

import pkgutil

NAMES = tuple(sorted(m.name for m in pkgutil.iter_modules(__path__)))
"""Their names, which are those of their files: known before any of them is loaded."""
