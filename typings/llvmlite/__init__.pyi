# What tensorc_dsl uses of llvmlite, which ships no types.
