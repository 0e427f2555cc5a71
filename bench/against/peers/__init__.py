"""One file for each library: `prepare` returns the calls that its users would write for a job; None if it has none."""
