"""Text and its syntax tree: lexer, parser, formatter, and names with their spans.

Nothing here resolves names, or depends on programs.
"""
