from tensorc_dsl.ir.parse import parse_program
from tensorc_dsl.schedule.primitive import apply
from tensorc_dsl.schedule.refs import BlockRef, LoopRef
from tensorc_dsl.schedule.refusal import ScheduleRefusal
from tensorc_dsl.source import Source

TEXT = """
program pairs(X: f32[8], Y: f32[8], Z: f32[8]) {
    buffer T: f32[8] in "local"
    for i in 8 {
        block T { spatial v in 8 = i; T[v] = X[v] * 2.0 }
        block Y { spatial w in 8 = i; Y[w] = T[max(w - 1, 0)] }
    }
    for j in 8 { block Z { spatial x in 8 = j; Z[x] = T[x] } }
}
"""
try:
    apply(parse_program(Source("example", TEXT)), "reverse_compute_at", BlockRef("Z"), LoopRef("i"))
except ScheduleRefusal as refusal:
    print(refusal)
