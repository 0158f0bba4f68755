"""Where Spark looks for `format("matrixone")` when no class of that name was registered: for a class `DefaultSource` in
a module `pyspark_<format>`."""

from ccpr.pipeline.spark.source import MatrixOneDataSource as DefaultSource

__all__ = ["DefaultSource"]
