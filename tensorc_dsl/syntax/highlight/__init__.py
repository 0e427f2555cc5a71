"""The words of the language by class, the patterns that find them in a text, and the lexer of Pygments.

A text is coloured as it is typed, so nothing here parses it; no module of another layer is imported.
"""
