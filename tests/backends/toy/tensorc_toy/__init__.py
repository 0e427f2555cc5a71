"""A backend for elementwise programs as C text, in a package of its own. No file of `tensorc_dsl` names it."""
