"""Makes kernels that run from flat loops: one protocol, one folder for each kind of target.

Nothing outside a folder imports it, except `backend.protocol`, by the kind of the target.
"""
