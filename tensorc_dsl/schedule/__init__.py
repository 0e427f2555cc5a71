"""Steps that change a program and keep its results: primitives, queries, refusals.

A step is proved or refused; nothing here draws or searches.
"""
