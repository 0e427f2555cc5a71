"""The backend for CPUs, through LLVM: code generation, the runtime of kernels, libraries ahead of time.

`backend.py` is its interface; nothing outside of this folder imports the other files.
"""
