"""The language server: what an editor asks about the texts that are open in it, answered from the compiler's own trees.

Each answer is a file of `features`. Nothing here decides what a text means: that is asked of the layers below.
"""
