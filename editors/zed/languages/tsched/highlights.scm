; `make reference` writes this file from editors/treesitter/queries/highlights.scm.
; What each word is. No two patterns take the same word, so it does not matter which of two an editor prefers.

(comment) @comment
(doc_line) @comment.doc

[
  (integer)
  (float)
] @number

[
  (boolean)
  (float_constant)
  (wildcard)
] @constant.builtin

(escape) @string.escape

[
  "+" "-" "*" "/" "%" "=" "+=" ":=" "~" "->" "=>" "@" ".."
  (comparator)
  (rest)
] @operator

[ "(" ")" "[" "]" "{" "}" ] @punctuation.bracket
[ "," ":" ";" "." ] @punctuation.delimiter

(attribute attribute: (identifier) @property)
(use attribute: (identifier) @property)

(reducer_name) @function.builtin

[
  (compute name: (identifier) @function)
  (reducer name: (identifier) @function)
  (intrinsic name: (identifier) @function)
  (const name: (identifier) @function)
  (module name: (identifier) @function)
  (space name: (identifier) @function)
  (schedule name: (identifier) @function)
  (prior name: (identifier) @function)
  (target name: (identifier) @function)
  (task name: (identifier) @function)
  (model name: (identifier) @function)
  (program name: (identifier) @function)
  (block name: (identifier) @function)
  (buffer name: (identifier) @function)
]

; generated: lists

[
  "and" "either" "else" "for" "if" "in" "let" "maybe" "not" "or" "where" "yield" "asm" "assume" "at" "block" "bound"
  "buffer" "call" "compute" "const" "desc" "identity" "init" "intrinsic" "layout" "like" "lower" "model" "module"
  "otherwise" "parallel" "pipelined" "prior" "program" "reduce" "reducer" "requires" "scan" "schedule" "select"
  "sha256" "space" "spatial" "step" "strides" "target" "task" "tensorized" "try" "unrolled" "updates" "use"
  "vectorized" "weights" "when" "with"
] @keyword

((string) @attribute
  (#match? @attribute "^\"(intrinsic|pipeline[.]asynchronous|pipeline[.]order|pipeline[.]stages|reducer|specialize[.]registers|specialize[.]roles|store[.]nontemporal|unroll[.]max_step)\"$"))

((string) @string
  (#not-match? @string "^\"(intrinsic|pipeline[.]asynchronous|pipeline[.]order|pipeline[.]stages|reducer|specialize[.]registers|specialize[.]roles|store[.]nontemporal|unroll[.]max_step)\"$"))

([
  (tensor_type type: (identifier) @type.builtin)
  (type name: (identifier) @type.builtin)
]
  (#any-of? @type.builtin
    "Block" "Buffer" "Instruction" "Loop" "Module" "Node" "Program" "Target" "bf16" "bool" "f16" "f32" "f64" "f8e4m3"
    "f8e5m2" "float" "i16" "i32" "i64" "i8" "int" "list" "str" "u16" "u32" "u64" "u8"))

((call function: (identifier) @type.builtin)
  (#any-of? @type.builtin
    "bf16" "bool" "f16" "f32" "f64" "f8e4m3" "f8e5m2" "i16" "i32" "i64" "i8" "u16" "u32" "u64" "u8"))

((call function: (identifier) @function.primitive)
  (#any-of? @function.primitive
    "accumulate_at" "add_unit_loop" "annotate" "atomic" "bind" "cache_inplace" "cache_read" "cache_write" "compute_at"
    "compute_inline" "decompose_padding" "decompose_reduction" "double_scan" "expand_reduction" "fission" "fold_scan"
    "fuse" "fuse_reduction_epilogue" "join_nodes" "keep_order" "look_back" "loop_partition" "merge" "move_behind"
    "online_sums" "pad_einsum" "parallel" "persist" "prefetch" "read_at" "reindex" "reindex_cache_read"
    "reindex_cache_write" "reorder" "reorder_block_iters" "reverse_compute_at" "reverse_compute_inline" "rfactor"
    "rolling_buffer" "scatter" "set_scope" "skew" "skip_zeros" "software_pipeline" "specialize" "split" "split_scan"
    "storage_align" "storage_swizzle" "stream_k" "tensorize" "tile" "transform_block_layout" "transform_layout"
    "unannotate" "unroll" "vectorize" "write_at"))

((call function: (identifier) @function.draw)
  (#any-of? @function.draw
    "sample_categorical" "sample_compute_location" "sample_int" "sample_partial_tile" "sample_partitioned_tile"
    "sample_perfect_tile" "sample_permutation"))

((call function: (identifier) @function.builtin)
  (#any-of? @function.builtin
    "abs" "acos" "acosh" "all" "any" "asin" "asinh" "atan" "atan2" "atanh" "bit_and" "bit_not" "bit_or" "bitcast"
    "cbrt" "ceil" "clamp" "clz" "concat" "copysign" "cos" "cosh" "ctz" "erf" "erfc" "exp" "exp2" "expm1" "floor"
    "hypot" "interleave" "isfinite" "isinf" "isnan" "len" "log" "log10" "log1p" "log2" "max" "min" "popcount" "pow"
    "product" "range" "reversed" "round" "rsqrt" "saturate" "select" "shift_left" "shift_right" "sigmoid" "sign" "sin"
    "sinh" "so_far" "sqrt" "sum" "tan" "tanh" "tf32" "tile_levels" "trunc" "within" "xor"))

; end: lists
