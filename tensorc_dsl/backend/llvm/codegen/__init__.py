"""Flat loops become LLVM code, and that machine code.

Nothing here loads or runs a kernel.
"""
