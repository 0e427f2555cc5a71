" What Vim and Neovim do in `.tsched` files.
if exists('b:did_ftplugin')
  finish
endif
let b:did_ftplugin = 1

setlocal comments=:///,:// commentstring=//\ %s
setlocal formatoptions-=t formatoptions+=croql
setlocal suffixesadd=.tsched
setlocal expandtab shiftwidth=4 softtabstop=4

" `=` keeps to the lines, `gq` over a whole file gives it its one layout, and `:make` lists what is wrong.
setlocal formatprg=tensorc-dsl\ fmt\ -
setlocal makeprg=tensorc-dsl\ check\ --color\ never\ %:S
setlocal errorformat=%E%trror[%.%#]:\ %m,%W%tarning[%.%#]:\ %m,%C\ %#-->\ %f:%l:%c,%-G%.%#

let b:undo_ftplugin = 'setlocal comments< commentstring< formatoptions< suffixesadd< expandtab< shiftwidth< softtabstop<'
      \ . ' formatprg< makeprg< errorformat<'
