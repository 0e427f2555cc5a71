"""Writes kernels of a GPU as LLVM code: for NVPTX, and as coroutines that emulate their threads on the CPU.

Statements and expressions are written by the generator of the backend for CPUs.
"""
