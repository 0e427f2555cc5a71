"""Answers whether this is the same: questions about integer sets, and proofs that two programs compute the same result.

Nothing here changes a program.
"""
