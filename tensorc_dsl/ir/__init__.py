"""The program: types, expressions, buffers, blocks, loops, with their printer and parser.

Nothing here evaluates or transforms a program.
"""
