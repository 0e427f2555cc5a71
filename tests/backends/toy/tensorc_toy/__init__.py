"""C for elementwise programs: a backend as another package has it. Nothing of `tensorc_dsl` names it."""
