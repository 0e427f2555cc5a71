" Indentation as `tensorc-dsl fmt` gives it, for the lines of most texts.
if exists('b:did_indent')
  finish
endif
let b:did_indent = 1

setlocal indentexpr=TschedIndent(v:lnum) indentkeys=0{,0},0),0],!^F,o,O,0=and\ ,0=or\ ,0=else,0=otherwise,0=when,0=where
setlocal autoindent nosmartindent nolisp
let b:undo_indent = 'setlocal indentexpr< indentkeys< autoindent< smartindent< lisp<'

if exists('*TschedIndent')
  finish
endif

let s:goes_on = '\v^\s*%(<%(and|or|else)>|<otherwise>\s*\{|[-+*/%<>=.~]|:\=|!\=)'

" generated: lists
let s:reducers = 'all|any|argmax|argmin|max|min|prod|sum'
" end: lists

" A line after which a value must come: it ends in an operator, or in the head of a reduction.
let s:unfinished = '\v%([-+*/%=~]|<%(' . s:reducers . '|scan|reduce\s+\h\w*)\[[^][]*\])\s*$'
let s:skip = 'synIDattr(synID(line("."), col("."), 0), "name") =~# "\\vString|Escape|Annotation|Comment|Doc|Todo"'

" The line in which the statement of a line begins.
function! s:first(line) abort
  let line = a:line
  while line > 1 && getline(line) =~# s:goes_on && getline(line) !~# '^\s*//'
    let line = prevnonblank(line - 1)
  endwhile
  return line
endfunction

" Whether a line stands in the head of a compute, whose parts have no indentation, other than those of a reducer.
function! s:in_compute(line) abort
  let line = prevnonblank(a:line - 1)
  while line > 1 && getline(line) =~# '^\s'
    let line = prevnonblank(line - 1)
  endwhile
  return getline(line) =~# '\v^%(compute>|where>|assume>|\))'
endfunction

function! TschedIndent(line) abort
  let text = getline(a:line)
  let above = prevnonblank(a:line - 1)
  if above == 0
    return 0
  endif
  call cursor(a:line, 1)
  " The innermost bracket that is open at the beginning of the line.
  let open = searchpair('[[({]', '', '[])}]', 'bnW', s:skip)
  let base = open ? indent(s:first(open)) : 0
  if text =~# '^\s*[])}]'
    return base
  endif
  let base += open ? shiftwidth() : 0
  if text =~# '^\s*//'
    return base
  endif
  if text =~# s:goes_on && text !~# '^\s*->'
    let first = s:first(above)
    return open ? base + shiftwidth() : indent(first) + shiftwidth()
  endif
  if !open
    if text =~# '\v^\s*<%(desc|layout|lower|identity|assume)>' && !s:in_compute(a:line)
      return shiftwidth()
    endif
    " where A = …,
    "       B = …
    if getline(above) =~# ',\s*$'
      return indent(above) + strlen(matchstr(getline(above), '\v^\s*\zs%(where|assume)\s'))
    endif
  endif
  if getline(above) =~# s:unfinished && getline(above) !~# '^\s*//'
    return indent(s:first(above)) + shiftwidth()
  endif
  return base
endfunction
