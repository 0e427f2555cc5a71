"""The operators of PyTorch (ATen): for each, the nodes of ONNX that a call in a trace becomes.

A table says which function translates a call. What a function is given, and the graph that it adds to, are in `traced`.
"""
