; In the words of nvim-treesitter: what is inside of brackets stands further to the right, and a bracket that closes does not.

[
  (compute)
  (desc)
  (space)
  (prior)
  (body)
  (program)
  (loop)
  (block)
  (init)
  (call)
  (list)
  (map)
] @indent.begin

[ ")" "]" "}" ] @indent.branch @indent.end

(ERROR) @indent.auto
[
  (comment)
  (doc)
] @indent.ignore
