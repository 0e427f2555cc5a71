"""The queries, one file for each thing that can be asked. Importing this package declares them all.

Whoever needs the table of all queries takes `QUERIES` from here, so that it is filled.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from tensorc_dsl.schedule.query import QUERIES

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["QUERIES"]
