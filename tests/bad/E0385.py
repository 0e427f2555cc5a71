from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.schedule.queries import QUERIES
from tensorc_dsl.schedule.refs import BlockRef, LoopRef
from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tensorc_dsl.source import Source

TEXT = """
program copy(A: f32[M], B: f32[4, M]) {
    for i in 4, j in M {
        block B {
            spatial vi in 4 = i
            spatial vj in M = j
            B[vi, vj] = A[vj]
        }
    }
}
"""
try:
    QUERIES[BlockRef]["working_set"].function(parse_program(Source("copy", TEXT)), BlockRef("B"), LoopRef("i"))
except ScheduleRefusal as refusal:
    print(refusal)
