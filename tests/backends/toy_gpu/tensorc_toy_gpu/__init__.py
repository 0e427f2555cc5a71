"""A backend of another package for GPUs: it prints kernels, and runs none."""
