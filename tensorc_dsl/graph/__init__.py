"""Models as graphs: reads them, fixes their sizes, folds what is constant, and writes each node as a compute.

Nothing here schedules, compiles or runs. A frontend makes a `Graph`; the passes and the table of operators are shared.
"""
