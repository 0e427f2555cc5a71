" Colours for `.tsched`. The rules are those of tensorc_dsl/syntax/highlight/rules.py; of two that fit, Vim takes the later one here.
if exists('b:current_syntax')
  finish
endif
let s:cpo = &cpoptions
set cpoptions&vim

syntax case match
syntax iskeyword @,48-57,_

" generated: lists
let s:reserved = 'and|either|else|for|if|in|let|maybe|not|or|where|yield'
let s:constants = '_|false|inf|nan|true'
let s:soft = 'asm|assume|at|block|bound|buffer|call|compute|const|desc|identity|init|intrinsic|layout|like|'
      \ . 'lower|model|module|otherwise|parallel|pipelined|prior|program|reduce|reducer|requires|scan|schedule|'
      \ . 'select|sha256|space|spatial|step|strides|target|task|tensorized|try|unrolled|updates|use|'
      \ . 'vectorized|weights|when|with'
let s:defining = 'block|buffer|compute|intrinsic|model|module|prior|program|reducer|schedule|space|target|task'
let s:before_name = 'assume|block|buffer|compute|const|intrinsic|lower|model|module|prior|program|reduce|reducer|scan|'
      \ . 'schedule|select|space|spatial|target|task|updates|use|with'
let s:before_string = 'asm|call|layout|requires|sha256|weights'
let s:before_for = 'parallel|pipelined|tensorized|unrolled|vectorized'
let s:before_value = 'identity|init|like|step|when'
let s:reducers = 'all|any|argmax|argmin|max|min|prod|sum'
let s:dtypes = 'bf16|bool|f16|f32|f64|f8e4m3|f8e5m2|i16|i32|i64|i8|u16|u32|u64|u8'
let s:types = 'Block|Buffer|Instruction|Loop|Module|Node|Program|Target|bf16|bool|f16|f32|f64|f8e4m3|f8e5m2|'
      \ . 'float|i16|i32|i64|i8|int|list|str|u16|u32|u64|u8'
let s:builtins = 'abs|acos|acosh|all|any|asin|asinh|atan|atan2|atanh|bit_and|bit_not|bit_or|bitcast|cbrt|ceil|'
      \ . 'clamp|clz|concat|copysign|cos|cosh|ctz|erf|erfc|exp|exp2|expm1|floor|hypot|interleave|isfinite|'
      \ . 'isinf|isnan|len|log|log10|log1p|log2|max|min|popcount|pow|product|range|reversed|round|rsqrt|'
      \ . 'saturate|select|shift_left|shift_right|sigmoid|sign|sin|sinh|so_far|sqrt|sum|tan|tanh|tf32|'
      \ . 'tile_levels|trunc|within|xor'
let s:primitives = 'accumulate_at|add_unit_loop|annotate|atomic|bind|cache_inplace|cache_read|cache_write|compute_at|'
      \ . 'compute_inline|decompose_padding|decompose_reduction|double_scan|expand_reduction|fission|fold_scan|fuse|'
      \ . 'fuse_reduction_epilogue|join_nodes|keep_order|look_back|loop_partition|merge|move_behind|online_sums|'
      \ . 'pad_einsum|parallel|persist|prefetch|read_at|reindex|reindex_cache_read|reindex_cache_write|reorder|'
      \ . 'reorder_block_iters|reverse_compute_at|reverse_compute_inline|rfactor|rolling_buffer|scatter|set_scope|'
      \ . 'skew|skip_zeros|software_pipeline|specialize|split|split_scan|storage_align|storage_swizzle|stream_k|'
      \ . 'tensorize|tile|transform_block_layout|transform_layout|unannotate|unroll|vectorize|write_at'
let s:draws = 'sample_categorical|sample_compute_location|sample_int|sample_partial_tile|sample_partitioned_tile|'
      \ . 'sample_perfect_tile|sample_permutation'
let s:annotations = 'intrinsic|pipeline[.]asynchronous|pipeline[.]order|pipeline[.]stages|reducer|specialize[.]registers|'
      \ . 'specialize[.]roles|store[.]nontemporal|unroll[.]max_step'
" end: lists

" A group for each class of words, and words that begin with one of the patterns.
function! s:word(group, pattern, ...) abort
  execute 'syntax match tsched' . a:group . ' /\v' . escape(a:pattern, '/') . '/ ' . get(a:, 1, '')
endfunction

let s:subscript = '\[%([^][]|\[[^][]*\])*\]'
let s:no_word = '%(<%(' . s:reserved . ')>)@!'
" A value begins with some reserved words too.
let s:no_value = '%(<%(' . join(filter(split(s:reserved, '|'), 'v:val !=# "not" && v:val !=# "for"'), '|') . ')>)@!'

syntax match tschedName /\v<\h\w*>/
syntax match tschedPunctuation /[][(){},:;]/
syntax match tschedPunctuation /\./ nextgroup=tschedAttribute
syntax match tschedAttribute /\v<\h\w*>/ contained
syntax match tschedOperator /[-+*\/%=@~<>]/
syntax match tschedOperator /\V:=\|+=\|->\|=>\|<=\|>=\|==\|!=\|...\|../

call s:word('Builtin', '<%(' . s:builtins . ')>%(\s*\()@=')
call s:word('Primitive', '<%(' . s:primitives . ')>%(\s*\()@=')
call s:word('Draw', '<%(' . s:draws . ')>%(\s*\()@=')
call s:word('Type', '<%(' . s:dtypes . ')>\(@=')
call s:word('Type', '%(<const )@7<=<%(' . s:dtypes . ')>')
call s:word('Type', '%(: )@2<=<%(' . s:types . ')>')
call s:word('Type', '%(\(|, )@2<=\u@=<%(' . s:types . ')>[,()]@=')
call s:word('Type', '%(Module\(|list\()@7<=<%(' . s:types . ')>')
call s:word('Builtin', '<%(' . s:reducers . ')>%(\s*\[)@=%(\s*' . s:subscript . '\s*%(\+\=|\=\=@!|\@))@!')
call s:word('Keyword', '<%(' . s:reserved . ')>')
call s:word('Constant', '<%(' . s:constants . ')>')
call s:word('Keyword', '<scan>%(\s*' . s:subscript . '\s*%(<init>|//|$))@=')
call s:word('Keyword', '%([A-Za-z0-9_)\]] )@2<=<at>%(\s*\[)@=')
call s:word('Keyword', '%(\a )@2<!<%(init|otherwise|try)>%(\s*\{)@=')
call s:word('Keyword', '<desc>%(\s*\(\s*\h\w*\s*:)@=')
call s:word('Keyword', '<%(' . s:before_value . ')>%(\s+' . s:no_value . '%([A-Za-z0-9_"([]|-\S))@=')
call s:word('Keyword', '<bound>%(\("[^"]*"\)\s+<for>)@=')
call s:word('Keyword', '<%(' . s:before_for . ')>%(\s+<for>)@=')
call s:word('Keyword', '<%(' . s:before_string . ')>%(\s*")@=')
call s:word('Keyword', '<%(' . s:before_name . ')>%(\s+' . s:no_word . '\h)@=')
" `const` stands in front of a type, too.
call s:word('Keyword', '<const>%(\s+\h\w*\s*\=)@=', 'nextgroup=tschedDefinition skipwhite')
call s:word('Keyword', '<%(' . s:defining . ')>%(\s+' . s:no_word . '\h)@=', 'nextgroup=tschedDefinition skipwhite')
syntax match tschedDefinition /\v<\h\w*>/ contained

syntax match tschedNumber /\v<\d+/
syntax match tschedNumber /\v<\d+[eE][+-]?\d+/
syntax match tschedNumber /\v<\d+\.\d+%([eE][+-]?\d+)?/

syntax region tschedString start=/"/ end=/"\|$/ contains=tschedEscape oneline
syntax match tschedEscape /\v\\%(["\\ntr]|u\{\x+\})/ contained
call s:word('Annotation', '"%(' . s:annotations . ')"')

syntax keyword tschedTodo TODO FIXME contained
syntax match tschedComment /\/\/.*/ contains=tschedTodo,@Spell
syntax match tschedDoc /\/\/\/\/\@!.*/ contains=tschedTodo,@Spell

syntax sync minlines=1

highlight default link tschedComment Comment
highlight default link tschedDoc SpecialComment
highlight default link tschedTodo Todo
highlight default link tschedKeyword Keyword
highlight default link tschedConstant Constant
highlight default link tschedNumber Number
highlight default link tschedString String
highlight default link tschedEscape SpecialChar
highlight default link tschedAnnotation PreProc
highlight default link tschedDefinition Function
highlight default link tschedType Type
highlight default link tschedBuiltin Identifier
highlight default link tschedPrimitive Statement
highlight default link tschedDraw Special
highlight default link tschedOperator Operator
highlight default link tschedPunctuation Delimiter

let b:current_syntax = 'tsched'
let &cpoptions = s:cpo
unlet s:cpo
