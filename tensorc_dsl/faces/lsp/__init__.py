"""The language server: answers requests of editors about open texts, from the compiler's own trees.

Nothing here defines what a text means: the layers below do.
"""
