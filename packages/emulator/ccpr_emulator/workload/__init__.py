"""What changes an upstream, and what must be there then? A stream of changes for soak tests and benchmarks."""
