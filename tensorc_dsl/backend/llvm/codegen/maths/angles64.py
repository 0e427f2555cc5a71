"""The reduction of an angle of f64 by quarter turns: a rest of about 100 bits, and the number of quarters."""

from __future__ import annotations

import math

from tensorc_dsl.backend.llvm.codegen.function import Module
from tensorc_dsl.backend.llvm.codegen.maths.lanes import Lanes
from tensorc_dsl.backend.llvm.codegen.maths.pairs import Pair, lost, plus, times
from tensorc_dsl.backend.llvm.codegen.values import Value
from tensorc_dsl.ir.dtypes import F64, I64

_HALF_PI = 1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33

_PER_TURN = (
    0x0000000000000000,
    0x28BE60DB9391054A,
    0x7F09D5F47D4D3770,
    0x36D8A5664F10E410,
    0x7F9458EAF7AEF158,
    0x6DC91B8E909374B8,
    0x01924BBA82746487,
    0x3F877AC72C4A69CF,
    0xBA208D7D4BAED121,
    0x3A671C09AD17DF90,
    0x4E64758E60D4CE7D,
    0x272117E2EF7E4A0E,
    0xC7FE25FFF7816603,
    0xFBCBC462D6829B47,
    0xDB4D9FB3C9F2C26D,
    0xD3D18FD9A797FA8B,
    0x5D49EEB1FAF97C5E,
    0xCF41CE7DE294A4BA,
    0x9AFED7EC47E35742,
    0x1580CC11BF1EDAEA,
    0xFC33EF0826BD0D87,
)
"""1/(2 pi) in words of 64 bits, the highest first, behind a word of zeros."""

_TABLE = f"@angle.table = internal constant [{len(_PER_TURN)} x i64] [{', '.join(f'i64 {w}' for w in _PER_TURN)}]"

_WORD = """\
  %at{0} = add i64 %word, {0}
  %place{0} = getelementptr i64, ptr @angle.table, i64 %at{0}
  %t{0} = load i64, ptr %place{0}, align 8"""

_TURNS = f"""\
define internal {{ double, double, i64 }} @angle.turns(double %x) nounwind memory(read) {{
  %bits = bitcast double %x to i64
  %magnitude = and i64 %bits, {2**63 - 1}
  %stored = lshr i64 %magnitude, 52
  %exponent = call i64 @llvm.umax.i64(i64 %stored, i64 {1023 + 40})
  %fraction = and i64 %bits, {2**52 - 1}
  %m = or i64 %fraction, {2**52}
  %places = sub i64 %exponent, {1023 + 52 - 64}
  %word = lshr i64 %places, 6
  %shift = and i64 %places, 63
{chr(10).join(_WORD.format(k) for k in range(4))}
{chr(10).join(f"  %w{k} = call i64 @llvm.fshl.i64(i64 %t{k}, i64 %t{k + 1}, i64 %shift)" for k in range(3))}
  %high = mul i64 %m, %w0
  %wide = zext i64 %m to i128
  %wide1 = zext i64 %w1 to i128
  %wide2 = zext i64 %w2 to i128
  %p1 = mul i128 %wide, %wide1
  %p2 = mul i128 %wide, %wide2
  %up2 = lshr i128 %p2, 64
  %low = add i128 %p1, %up2
  %lowest = trunc i128 %low to i64
  %up = lshr i128 %low, 64
  %carried = trunc i128 %up to i64
  %turns = add i64 %high, %carried
  %half = add i64 %turns, {2**61}
  %quarters = lshr i64 %half, 62
  %upper = call i64 @llvm.fshl.i64(i64 %turns, i64 %lowest, i64 2)
  %lower = shl i64 %lowest, 2
  %first = sitofp i64 %upper to double
  %held = call i64 @llvm.fptosi.sat.i64.f64(double %first)
  %left = sub i64 %upper, %held
  %left.float = sitofp i64 %left to double
  %lower.float = uitofp i64 %lower to double
  %small = fmul double %lower.float, {{unit}}
  %second = fadd double %left.float, %small
  %negative = icmp slt i64 %bits, 0
  %factor = select i1 %negative, double {{minus}}, double {{unit}}
  %r = fmul double %first, %factor
  %rest = fmul double %second, %factor
  %back = sub i64 0, %quarters
  %n = select i1 %negative, i64 %back, i64 %quarters
  %made0 = insertvalue {{ double, double, i64 }} poison, double %r, 0
  %made1 = insertvalue {{ double, double, i64 }} %made0, double %rest, 1
  %made2 = insertvalue {{ double, double, i64 }} %made1, i64 %n, 2
  ret {{ double, double, i64 }} %made2
}}""".replace("{unit}", "0x3BF0000000000000").replace("{minus}", "0xBBF0000000000000")
"""The quarter turns in an angle from 2**40 on (for others any), by the method of Payne and Hanek (Muller, chapter 11): the
nearest whole number modulo 4, and the rest as two floats. A float is m * 2**e: digits of 1/(2 pi) whose products with it are
whole turns are left out, and 128 of those behind them decide."""


def reduced(x: Lanes) -> tuple[Pair, Lanes]:
    """x - n*pi/2 as two floats, at most pi/4 in magnitude or a little above, and n as an integer. For |x| below 2**40.

    n*pi/2 is subtracted in three steps (Cody and Waite), of which the first is exact.
    """
    shifted = x.times_plus(2 / math.pi, x.format.rounder)
    n = shifted - x.format.rounder
    first = n.times_plus(-_HALF_PI[0], x)
    second, less = times(n, x.constant(_HALF_PI[1]))
    r = first - second
    rest = lost(first, -second, r) - n.times_plus(_HALF_PI[2], less)
    return plus(r, rest), shifted.bits()


def reduced_large(x: Lanes) -> tuple[Pair, Lanes]:
    """The same for angles from 2**40 on, lane by lane; NaN for infinities and NaN. Any value for smaller ones."""
    f, lanes = x.f, x.value.lanes
    _declare(f.module)
    kinds = (F64, F64, I64)
    parts: list[list[Value]] = [[], [], []]
    for k in range(max(lanes, 1)):
        made = f.op(f"call {{ double, double, i64 }} @angle.turns({f.lane(x.value, k).typed})")
        for n, t in enumerate(kinds):
            parts[n].append(Value(t, f.op(f"extractvalue {{ double, double, i64 }} {made}, {n}")))
    high, low, n = (Lanes(f, f.gather_lanes(p) if lanes else p[0]) for p in parts)
    product, less = times(high, x.constant(_HALF_PI[0]))
    rest = high.times_plus(_HALF_PI[1], low.times_plus(_HALF_PI[0], less))
    return plus(product + (x - x), rest), n


def _declare(module: Module) -> None:
    """Give the module the function, once."""
    for name, count in (("umax", 2), ("fshl", 3)):
        module.declare("i64", f"llvm.{name}.i64", ("i64",) * count)
    module.declare("i64", "llvm.fptosi.sat.i64.f64", ("double",))
    for text in (_TABLE, _TURNS):
        if text not in module.shared:
            module.shared[text] = text
            module.functions.append(text)
