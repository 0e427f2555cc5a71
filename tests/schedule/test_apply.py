"""Results of steps are kept: a rule asks whether a step would be accepted before it makes it."""

from tensorc_dsl.ir.program import blocks
from tensorc_dsl.schedule.primitive import accepts, apply
from tensorc_dsl.schedule.step import BlockRef
from tests.interp.spaces import schedule


def test_a_step_that_was_asked_about_is_not_made_again() -> None:
    program = schedule("", compute="chain").program
    assert accepts(program, "compute_inline", BlockRef("E"))
    made = apply(program, "compute_inline", BlockRef("E"))
    assert apply(program, "compute_inline", BlockRef("E")) is made


def test_true_and_one_are_two_arguments() -> None:
    program = schedule("", compute="chain").program
    for value in (1, True, 1.0, "1"):
        made = apply(program, "annotate", BlockRef("Y"), "x", value).program
        ((_, kept),) = next(b for b in blocks(made) if b.name == "Y").annotations
        assert (type(kept), kept) == (type(value), value)
