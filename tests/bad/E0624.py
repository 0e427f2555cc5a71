from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.refs import BufferRef
from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tensorc_dsl.source import Source

TEXT = """
program steps(A: f32[6], C: f32[6]) {
    buffer B: f32[7]
    for t in 6 {
        block B {
            spatial vt in 6 = t
            where t == 0
            B[vt] = 0.0
        }
        block next {
            scan vt in 6 = t
            B[vt + 1] = B[vt] * 0.5 + A[vt]
        }
        block C {
            spatial vt in 6 = t
            C[vt] = B[vt + 1]
        }
    }
}
"""
try:
    apply(parse_program(Source("example", TEXT)), "set_scope", BufferRef("B"), "local")
except ScheduleRefusal as refusal:
    print(refusal)
