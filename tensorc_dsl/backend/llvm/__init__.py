"""CPUs, through LLVM: code generation, the runtime of kernels, libraries ahead of time.

`backend.py` is its door; nothing outside of this folder imports any of it.
"""
