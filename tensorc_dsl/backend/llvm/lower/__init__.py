"""The last passes of lowering, which know how many registers a CPU has and how long its vectors are.

Nothing here writes LLVM code.
"""
