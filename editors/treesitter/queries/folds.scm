; Each thing with braces, and a description of several lines.

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
  (map)
  (doc)
] @fold
