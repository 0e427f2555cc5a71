" Writes the group of each byte of each file of $FILES to $OUT: the names of the groups, then a file in a line, bytes apart by commas.
set nocompatible
execute 'set runtimepath^=' . fnameescape($EDITOR)
filetype plugin indent on
syntax on
set synmaxcol=0 redrawtime=0
let s:names = ['']
let s:known = {}
let s:lines = []
for s:file in split($FILES, "\n")
  execute 'edit ' . fnameescape(s:file)
  let s:row = [&filetype]
  for s:at in range(1, line('$'))
    for s:column in range(1, col([s:at, '$']) - 1)
      let s:id = synID(s:at, s:column, 0)
      if !has_key(s:known, s:id)
        let s:known[s:id] = len(s:names)
        call add(s:names, synIDattr(s:id, 'name'))
      endif
      call add(s:row, s:known[s:id])
    endfor
    call add(s:row, 0)
  endfor
  call add(s:lines, join(s:row, ','))
endfor
call writefile([join(s:names, ',')] + s:lines, $OUT)
qall!
