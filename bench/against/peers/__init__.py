"""One file for each library: `prepare` makes of a job what its users would call, or None where it has no such operator."""
