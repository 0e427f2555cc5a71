"""The queries, by subject. Importing this package declares them all.

Import `QUERIES` from here, so that the table is filled.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from tensorc_dsl.schedule.query import QUERIES

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["QUERIES"]
