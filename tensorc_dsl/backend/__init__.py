"""From flat loops to kernels that run: one protocol, one folder for each kind of target.

Nothing outside a folder imports it: `backend.find` does, by the kind of the target.
"""
