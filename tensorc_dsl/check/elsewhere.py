"""What this language writes for names of other schedule languages, TVM's, Halide's, Triton's, and of its version 0.1.0."""

from __future__ import annotations

from tensorc_dsl.base.diagnostic import Note, help_note

_AXIS = 'an iteration of a loop is one block or thread of a GPU by `bind(loop, "block.x")`, `bind(loop, "thread.x")`'
_ROOT = "a stage stays in a nest of its own unless `compute_at` or `compute_inline` moves it"
_INSIDE = "`compute_at(block, loop)` moves a stage into the loop that reads it"

_STEPS_NOW = {
    "can_inline": "can_compute_inline", "can_reverse_inline": "can_reverse_compute_inline",
    "can_roll": "can_rolling_buffer", "can_leave": "can_reorder",
}  # fmt: skip

_WRITTEN = {
    "get_loops": "the loops of a block are `C.loops`",
    **dict.fromkeys(("get_block", "get_sblock"), "blocks are in scope by their names; `C` is one"),
    "find": "`find_loop(pattern)` and `find_block(pattern)` give the first one, `find_loops` and `find_blocks` all",
    "get_child_blocks": "the blocks in a loop are `l.blocks`",
    "get_producers": "the producers of a block are `b.producers`",
    "get_consumers": "the consumers of a block are `b.consumers`",
    "get_output_blocks": "the last blocks of a program are `p.outputs`",
    "reorder_block_iter_var": "the step is `reorder_block_iters`",
    "blockize": "`tensorize` matches a nest of loops as it is, so no step comes before it",
    **dict.fromkeys(("program_id", "blockIdx", "threadIdx", "gpu_blocks", "gpu_threads", "gpu_lanes"), _AXIS),
    **dict.fromkeys(("compute_root", "store_root"), _ROOT),
    **dict.fromkeys(("compute_with", "store_at"), _INSIDE),
    "gpu_tile": "`tile` makes the loops, and `bind` gives them to blocks and threads",
    "bound": "extents are those of the task's sizes, and need no step",
    **{old: f"it is `{new}` now, as the step is" for old, new in _STEPS_NOW.items()},
    "can_compute_once_at": "it is `is_computed_once_at` now: it asks for more than that `compute_at` is accepted",
    "estimate": "sizes are those of the task: `task small = f(N=64)`",
}


def elsewhere(name: str) -> tuple[Note, ...]:
    """The repair for a name of another language or version; none for other names."""
    return (help_note(_WRITTEN[name]),) if name in _WRITTEN else ()
