"""`erf` and `erfc`."""

from __future__ import annotations

from tensorc_dsl.backend.llvm.codegen.maths.exp import exp, exp_of_moderate
from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes
from tensorc_dsl.backend.llvm.codegen.maths.pairs import lost, over, times
from tensorc_dsl.ir.dtypes import F32, F64

# erf(x) / x - 1 in x^2 for 0 <= x <= 1
_NEAR = {
    F32: (
        7.920303323771805e-05, -0.0008030750323086977, 0.005190733354538679, -0.02685512602329254, 0.11283618211746216,
        -0.3761262893676758, 0.12837916612625122,
    ),
    F64: (
        5.960734682363823e-11, -1.1374984413037129e-09, 1.4660335969418314e-08, -1.6350397266341223e-07,
        1.6461008572046525e-06, -1.4925595777716748e-05, 0.00012055331133167845, -0.0008548326981430699,
        0.005223977624828505, -0.02686617064507788, 0.11283791670954885, -0.3761263890318375, 0.1283791670955126,
    ),
}  # fmt: skip

# log(erfc(x)) for 1 <= x <= 4; an error of it counts erfc(x) times in the result
_FAR = (
    0.0001855772570706904, -0.0029396265745162964, 0.021805359050631523, -0.10303740203380585, -0.6382256746292114,
    -1.1270400285720825, -0.00035372094134800136,
)  # fmt: skip

# exp(x^2) erfc(x) (1 + 2x) in (x - 4) / (x + 4) for 0 <= x <= 28: it goes from 1 to 2 / sqrt(pi), through 1.28
_SCALED = (
    -1.7162455602581445e-09, -1.3398907591458981e-08, -7.817456604775876e-09, 1.1457547953167116e-07,
    6.249191117066149e-08, -8.342229073640516e-07, 3.018343226981021e-07, 5.7172522333990035e-06, -1.1225200987500523e-05,
    -2.4402906473094203e-05, 0.00015062243751732846, -0.00019925557641178388, -0.0007577733958838441,
    0.0050319697673496255, -0.01619773404991162, 0.03716751556131269, -0.06633036581241723, 0.09373283499686472,
    -0.10103906603630877, 0.06809705425473522, 0.015379652102619922, -0.1396211168405629, 1.2329951186255526,
)  # fmt: skip

_BORDER, _MIDDLE = 1.0, 0.8
_ONE_FROM_HERE = 4.0
"""A value above 3.92, from where on erf is within half an ulp of 1."""

_ZERO_FROM_HERE = 28.0
"""A value above 27.3, from where on erfc is below the least f64."""


def erf(x: Lanes) -> Lanes:
    """The error function, never outside -1 … 1: a polynomial near 0, else 1 - erfc(|x|).

    NaN does not compare as beyond the border, so it passes through the polynomial.
    """
    a = x.size()
    near = (a * a).polynomial(_NEAR[x.dtype]).times_plus(a, a)
    if x.dtype == F32:
        rest = exp_of_moderate(a.limited(_BORDER, _ONE_FROM_HERE).polynomial(_FAR))
    else:
        rest = _beyond(a.limited(_BORDER, _ZERO_FROM_HERE))
    return (a >= _BORDER).choose(x.constant(1.0) - rest, near).signed_as(x)


def erfc(x: Lanes) -> Lanes:
    """1 - erf(x), computed in f64: next to 0 by its polynomial, 2 - erfc(-x) for another negative x."""
    wide = x.to(F64)
    a = wide.size()
    near = wide.constant(1.0) - (a * a).polynomial(_NEAR[F64]).times_plus(wide, wide)
    rest = _beyond(a.limited(_MIDDLE, _ZERO_FROM_HERE))
    far = (wide < 0.0).choose(wide.constant(2.0) - rest, rest)
    return (a >= _MIDDLE).choose(far, near).to(x.dtype)


def _beyond(a: Lanes) -> Lanes:
    """erfc(a) of f64 for 0 <= a <= 28: exp(-a^2) times what changes little (M. M. Shepherd and J. G. Laframboise, Chebyshev
    Approximation of (1 + 2x) exp(x^2) erfc x in 0 <= x < infinity, Mathematics of Computation 36(153), 1981)."""
    square, lacks = times(a, a)
    changing = ((a - 4.0) / (a + 4.0)).polynomial(_SCALED)
    below = a.times_plus(2.0, 1.0)
    return exp(-square, -lacks) * over((changing, a.constant(0.0)), (below, lost(a.constant(1.0), a * 2.0, below)))
