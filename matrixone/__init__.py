"""MatrixOne's formats and protocol: object files, DDL, and the statements of an upstream. Imports nothing from the rest
of the project."""
