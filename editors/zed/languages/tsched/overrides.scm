; Where brackets are not closed by themselves.

(comment) @comment
(doc_line) @comment
(string) @string
