"""Proves that two programs compute the same result, from their texts alone.

Nothing here depends on primitives, so that it finds their mistakes.
"""
