"""Proves that two programs compute the same result, from their texts alone.

Nothing here knows a primitive: a mistake in one must not hide in its proof.
"""
