"""Text and its syntax tree: lexer, parser, formatter, and names with their spans.

Nothing here knows what a name means, or what a program is.
"""
