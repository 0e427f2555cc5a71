"""Notebooks: the cell magic `%%tsched`, and how tasks, programs, schedules and proofs are shown below a cell.

Nothing here computes or decides anything: `api` does. IPython is imported only by what IPython loads.
"""
