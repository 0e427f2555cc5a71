" Indents each file of $FILES anew, and writes it to the folder $OUT.
set nocompatible
execute 'set runtimepath^=' . fnameescape($EDITOR)
filetype plugin indent on
syntax on
for s:file in split($FILES, "\n")
  execute 'edit! ' . fnameescape(s:file)
  silent %left
  silent normal! gg=G
  execute 'silent write! ' . fnameescape($OUT . '/' . fnamemodify(s:file, ':t'))
endfor
qall!
