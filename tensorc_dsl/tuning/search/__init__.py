"""Proposes candidates: features, surrogates, strategies, and the loop that tunes.

Nothing here prints.
"""
