autocmd BufNewFile,BufRead *.tsched setfiletype tsched
