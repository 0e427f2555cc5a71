"""The last passes of lowering, which depend on the number of a CPU's registers and the length of its vectors.

Nothing here writes LLVM code.
"""
