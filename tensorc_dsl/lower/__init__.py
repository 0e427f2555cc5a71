"""Turns a scheduled program into flat loops, in named passes.

Nothing here depends on a code generator or a processor; a backend does.
"""
