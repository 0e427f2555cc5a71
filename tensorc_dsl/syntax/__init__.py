"""Text and its tree: lexer, parser, formatter, names with their spans.

Nothing here knows what a name means, or what a program is.
"""
