"""A mirror served as an upstream: any MatrixOne, and this program, can subscribe to it."""
