"""The filters of `std.image` as algorithms of Halide (Ragan-Kelley et al., 2013), each with a schedule by hand."""
