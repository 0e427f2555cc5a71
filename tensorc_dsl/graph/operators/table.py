"""Which function writes which operator."""

from __future__ import annotations

from collections.abc import Mapping

from tensorc_dsl.graph.operators import elementwise, movement, products, recurrent, reductions, windows
from tensorc_dsl.graph.operators.lowering import Writer

TABLE: Mapping[str, Writer] = {
    **elementwise.TABLE,
    **movement.TABLE,
    **products.TABLE,
    **recurrent.TABLE,
    **reductions.TABLE,
    **windows.TABLE,
}
