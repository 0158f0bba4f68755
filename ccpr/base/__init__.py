"""What every room above MatrixOne's formats uses: errors, an error as a value, progress, file modes, words."""
