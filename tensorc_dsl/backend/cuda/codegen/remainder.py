"""The exact remainder of two f64 on a GPU, where there is no instruction for it: what C's `fmod` is elsewhere.

A step takes the divisor times a power of two, `m`, so that the quotient `q = trunc(r / m)` is below 2**52. Rounding can make
`q` one too large and no smaller. `r - q * m` is a multiple of the last place of `m` and at most `m` in magnitude, so an fma
gives it exactly (Muller et al., Handbook of Floating-Point Arithmetic, 2nd ed., 2018, section 4.6). Each step takes at least
49 bits of the quotient; of numbers that are near to each other there is one.

A divisor below the normal numbers is taken as 2**60 times as large, and what remains is divided by the true one in the same
way, both multiplied by 2**60.
"""

from __future__ import annotations

from tensorc_dsl.backend.llvm.codegen.function import Module

_FMOD = """\
define internal double @fmod(double %a, double %b) {
entry:
  %x = call double @llvm.fabs.f64(double %a)
  %y = call double @llvm.fabs.f64(double %b)
  %finite = fcmp olt double %x, 0x7FF0000000000000
  %positive = fcmp ogt double %y, 0.0
  %defined = and i1 %finite, %positive
  br i1 %defined, label %begin, label %undefined
undefined:
  ret double 0x7FF8000000000000
begin:
  %small = fcmp olt double %y, 0x0010000000000000
  %up = fmul double %y, 0x43B0000000000000
  %d = select i1 %small, double %up, double %y
  %dbits = bitcast double %d to i64
  %dexp = lshr i64 %dbits, 52
  br label %loop
loop:
  %r = phi double [ %x, %begin ], [ %next, %step ], [ %larger, %again ]
  %left = phi i1 [ %small, %begin ], [ %left, %step ], [ false, %again ]
  %more = fcmp oge double %r, %d
  br i1 %more, label %step, label %below
step:
  %rbits = bitcast double %r to i64
  %rexp = lshr i64 %rbits, 52
  %apart = sub i64 %rexp, %dexp
  %over = sub i64 %apart, 50
  %far = icmp sgt i64 %over, 0
  %k = select i1 %far, i64 %over, i64 0
  %shift = shl i64 %k, 52
  %mbits = add i64 %dbits, %shift
  %m = bitcast i64 %mbits to double
  %ratio = fdiv double %r, %m
  %q = call double @llvm.trunc.f64(double %ratio)
  %minus = fneg double %q
  %rest = call double @llvm.fma.f64(double %minus, double %m, double %r)
  %beyond = fcmp olt double %rest, 0.0
  %back = fadd double %rest, %m
  %next = select i1 %beyond, double %back, double %rest
  br label %loop, !llvm.loop !0
below:
  br i1 %left, label %again, label %done
again:
  %larger = fmul double %r, 0x43B0000000000000
  br label %loop
done:
  %down = fmul double %r, 0x3C30000000000000
  %size = select i1 %small, double %down, double %r
  %made = call double @llvm.copysign.f64(double %size, double %a)
  ret double %made
}
"""

_CALLED = {"llvm.fabs.f64": 1, "llvm.trunc.f64": 1, "llvm.fma.f64": 3, "llvm.copysign.f64": 2}
"""The instructions that it calls, with their numbers of operands."""


def define_remainder(module: Module) -> None:
    """Give a module that calls `fmod` the function."""
    del module.declarations["fmod"]
    for name, count in _CALLED.items():
        module.declare("double", name, ("double",) * count)
    module.functions.append(_FMOD)
