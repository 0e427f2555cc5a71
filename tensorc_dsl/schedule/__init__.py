"""Steps that change a program and keep its result: primitives, queries, refusals.

A step is proved or refused; nothing here draws or searches.
"""
