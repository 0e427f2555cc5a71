"""The table beside TensorIR names every step and draw, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from docs.generate.beside import named
from tensorc_dsl.schedule.primitives import PRIMITIVES
from tensorc_dsl.schedule.queries import QUERIES
from tensorc_dsl.schedule.trace.draws import DRAWS

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "tensorir.md").read_text(encoding="utf-8")


def ours() -> list[str]:
    """The names in the second column."""
    return named(PAGE)


def test_every_step_and_draw_is_on_the_page_once() -> None:
    names = [*ours(), *re.findall(r"^\[`(\w+)`\]", PAGE.partition("## Only here")[2], re.MULTILINE)]
    for name in (*PRIMITIVES, *DRAWS):
        assert names.count(name) == 1, name


def test_what_the_table_names_exists() -> None:
    queries = {name for group in QUERIES.values() for name in group}
    for name in ours():
        asked = re.fullmatch(r"[a-z]\.(\w+)(\(.*\))?", name)
        if asked:
            assert asked[1] in queries, name
        elif name != "either … or …":
            assert name in PRIMITIVES or name in DRAWS or name in queries, name


def test_theirs_are_all_there() -> None:
    """As of `tvm.s_tir.Schedule` in TVM 0.27, less what handles the schedule itself (its module, seed, trace …)."""
    steps = """annotate annotate_buffer_access add_unit_loop bind blockize cache_index cache_inplace cache_read cache_write
        can_decompose_padding compute_at compute_inline decompose_padding decompose_reduction enter_postproc fuse
        fuse_reduction_epilogue get_child_blocks get_consumers get_loops get_output_blocks get_producers get_sblock
        loop_partition merge pad_einsum parallel read_at reindex reindex_cache_read reindex_cache_write reorder
        reorder_block_iter_var reverse_compute_at reverse_compute_inline rfactor rolling_buffer sample_categorical
        sample_compute_location sample_partitioned_tile sample_perfect_tile set_scope split storage_align tensorize
        transform_block_layout transform_layout unannotate unroll unsafe_hide_buffer_access unsafe_set_dtype vectorize
        write_at""".split()
    named = set(re.findall(r"^\| `(\w+)`", PAGE, re.MULTILINE))
    assert set(steps) <= named, set(steps) - named
