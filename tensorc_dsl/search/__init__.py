"""What to try next: features, surrogates, strategies, and the loop that tunes.

Nothing here prints.
"""
