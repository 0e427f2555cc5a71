from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.refs import BlockRef, LoopRef
from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tensorc_dsl.source import Source

TEXT = """
program running(A: f32[8], S: f32[1], R: f32[8]) {
    for k in 8 {
        block S {
            spatial vi in 1 = 0
            reduce vk in 8 = k
            init { S[vi] = 0.0 }
            S[vi] = S[vi] + A[vk]
        }
        block R {
            spatial vk in 8 = k
            R[vk] = S[0]
        }
    }
}
"""
try:
    apply(parse_program(Source("running", TEXT)), "rfactor", BlockRef("S"), LoopRef("k"))
except ScheduleRefusal as refusal:
    print(refusal)
