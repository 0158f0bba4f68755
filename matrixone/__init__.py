"""What MatrixOne looks like, as bytes and as SQL. Imports nothing of the rest of the project."""
