"""Generates LLVM code from flat loops, and machine code from that.

Nothing here loads or runs a kernel.
"""
