"""The language server: answers requests of editors about open texts, from the compiler's own trees.

Each request has a file in `features`. Nothing here defines what a text means: the layers below do.
"""
