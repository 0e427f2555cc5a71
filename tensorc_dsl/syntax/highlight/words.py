"""The words of the language by class. `make reference` writes this file from the grammar and the declarations."""

RESERVED: tuple[str, ...] = (
    "and", "either", "else", "for", "if", "in", "let", "maybe", "not", "or", "where", "yield",
)  # fmt: skip
"""Words that are no names."""

CONSTANTS: tuple[str, ...] = (
    "_", "false", "inf", "nan", "true",
)  # fmt: skip
"""Words that are values."""

SOFT: tuple[str, ...] = (
    "asm", "assume", "at", "block", "bound", "buffer", "call", "compute", "const", "desc", "identity", "init",
    "intrinsic", "layout", "like", "lower", "model", "module", "otherwise", "parallel", "pipelined", "prior",
    "program", "reduce", "reducer", "requires", "scan", "schedule", "select", "sha256", "space", "spatial", "step",
    "strides", "target", "task", "tensorized", "try", "unrolled", "updates", "use", "vectorized", "weights", "when",
    "with",
)  # fmt: skip
"""Words that are names where a name is expected. Each is in one of the four lists `BEFORE_…`,
or is the first of a form of its own: `desc (`, `bound (`, `at [`, `strides [`, `scan [`, `init {`, `try {`,
`otherwise {`."""

DEFINING: tuple[str, ...] = (
    "block", "buffer", "compute", "intrinsic", "model", "module", "prior", "program", "reducer", "schedule",
    "space", "target", "task",
)  # fmt: skip
"""Soft words that the name of what they define follows. `const` is not among them: types follow it, too."""

BEFORE_NAME: tuple[str, ...] = (
    "assume", "block", "buffer", "compute", "const", "intrinsic", "lower", "model", "module", "prior", "program",
    "reduce", "reducer", "scan", "schedule", "select", "space", "spatial", "target", "task", "updates", "use",
    "with",
)  # fmt: skip
"""Soft words that a name follows."""

BEFORE_STRING: tuple[str, ...] = (
    "asm", "call", "layout", "requires", "sha256", "weights",
)  # fmt: skip
"""Soft words that a string follows."""

BEFORE_FOR: tuple[str, ...] = (
    "parallel", "pipelined", "tensorized", "unrolled", "vectorized",
)  # fmt: skip
"""Soft words that `for` follows."""

BEFORE_VALUE: tuple[str, ...] = (
    "identity", "init", "like", "step", "when",
)  # fmt: skip
"""Soft words that a value follows, and comes before."""

REDUCERS: tuple[str, ...] = (
    "all", "any", "argmax", "argmin", "max", "min", "prod", "sum",
)  # fmt: skip
"""Names that begin a reduction in front of `[`."""

DTYPES: tuple[str, ...] = (
    "bf16", "bool", "f16", "f32", "f64", "f8e4m3", "f8e5m2", "i16", "i32", "i64", "i8", "u16", "u32", "u64", "u8",
)  # fmt: skip
"""Element types."""

TYPES: tuple[str, ...] = (
    "Block", "Buffer", "Instruction", "Loop", "Module", "Node", "Program", "Target", "bf16", "bool", "f16", "f32",
    "f64", "f8e4m3", "f8e5m2", "float", "i16", "i32", "i64", "i8", "int", "list", "str", "u16", "u32", "u64", "u8",
)  # fmt: skip
"""All types: of elements, and of parameters."""

BUILTINS: tuple[str, ...] = (
    "abs", "acos", "acosh", "all", "any", "asin", "asinh", "atan", "atan2", "atanh", "bit_and", "bit_not", "bit_or",
    "bitcast", "cbrt", "ceil", "clamp", "clz", "concat", "copysign", "cos", "cosh", "ctz", "erf", "erfc", "exp",
    "exp2", "expm1", "floor", "hypot", "interleave", "isfinite", "isinf", "isnan", "len", "log", "log10", "log1p",
    "log2", "max", "min", "popcount", "pow", "product", "range", "reversed", "round", "rsqrt", "saturate", "select",
    "shift_left", "shift_right", "sigmoid", "sign", "sin", "sinh", "so_far", "sqrt", "sum", "tan", "tanh", "tf32",
    "tile_levels", "trunc", "within", "xor",
)  # fmt: skip
"""Functions, in front of `(`."""

PRIMITIVES: tuple[str, ...] = (
    "accumulate_at", "add_unit_loop", "annotate", "atomic", "bind", "cache_inplace", "cache_read", "cache_write",
    "compute_at", "compute_inline", "decompose_padding", "decompose_reduction", "double_scan", "expand_reduction",
    "fission", "fold_scan", "fuse", "fuse_reduction_epilogue", "join_nodes", "keep_order", "look_back",
    "loop_partition", "merge", "move_behind", "online_sums", "pad_einsum", "parallel", "persist", "prefetch",
    "read_at", "reindex", "reindex_cache_read", "reindex_cache_write", "reorder", "reorder_block_iters",
    "reverse_compute_at", "reverse_compute_inline", "rfactor", "rolling_buffer", "scatter", "set_scope", "skew",
    "skip_zeros", "software_pipeline", "specialize", "split", "split_scan", "storage_align", "storage_swizzle",
    "stream_k", "tensorize", "tile", "transform_block_layout", "transform_layout", "unannotate", "unroll",
    "vectorize", "write_at",
)  # fmt: skip
"""Steps, in front of `(`."""

DRAWS: tuple[str, ...] = (
    "sample_categorical", "sample_compute_location", "sample_int", "sample_partial_tile", "sample_partitioned_tile",
    "sample_perfect_tile", "sample_permutation",
)  # fmt: skip
"""Distributions, in front of `(`."""

ANNOTATIONS: tuple[str, ...] = (
    "intrinsic", "pipeline.asynchronous", "pipeline.order", "pipeline.stages", "reducer", "specialize.registers",
    "specialize.roles", "store.nontemporal", "unroll.max_step",
)  # fmt: skip
"""Keys of annotations that something reads."""
