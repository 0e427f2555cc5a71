from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.refs import BlockRef, LoopRef
from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tensorc_dsl.source import Source

TEXT = """
program total(A: f32[16], S: f32[1]) {
    for k in 16 {
        block S {
            spatial vi in 1 = 0
            reduce vk in 16 = 15 - k
            init { S[vi] = 0.0 }
            S[vi] = S[vi] + A[vk]
        }
    }
}
"""
try:
    apply(parse_program(Source("total", TEXT)), "decompose_reduction", BlockRef("S"), LoopRef("k"))
except ScheduleRefusal as refusal:
    print(refusal)
