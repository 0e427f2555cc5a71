"""The reference that results are compared with: inputs, the evaluator and the interpreter of programs, tolerances.

Nothing here shares code with schedules or code generators.
"""
