"""Where Spark looks for `format("matrixone")` when nobody has registered it: a module of this name with a class
`DefaultSource`.

Source: spec/spark.md.
"""

from replication.spark.source import MatrixOneDataSource as DefaultSource

__all__ = ["DefaultSource"]
