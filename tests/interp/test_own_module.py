"""`examples/own_module.tsched`: a module in a file of one's own changes the space of an operator of the library."""

from pathlib import Path

from tensorc_dsl.base.source import Source
from tensorc_dsl.check.scope import load_source
from tensorc_dsl.faces.api import TaskFile
from tensorc_dsl.ir.target import Target
from tensorc_dsl.tuning.search.expansion import stream

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "own_module.tsched"


def test_the_module_decides_about_the_sums_of_the_pooling() -> None:
    file = TaskFile(load_source(Source.read(EXAMPLE)), Target(vector_bits=512, cores=2, features="+avx2,+fma"))
    attempts = file["pool"].space.explain(file["pool"].space.sample(stream(0, "pool", "test")))
    assert [(a.subject, bool(a.reasons)) for a in attempts if a.module == "results_in_lanes"] == [
        ("Y", True),
        ("S", False),
    ]
