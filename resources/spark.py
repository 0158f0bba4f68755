"""The Spark session that copies objects, if one is wanted."""

from ccpr.dagster.spark_resource import SparkResource

spark = SparkResource()
