"""Reads table `orders` with Spark's JDBC source, in four parts, and prints its rows: URL PASSWORD JAR."""

import sys

from pyspark.sql import SparkSession

url, password, jar = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.extraClassPath", jar)
    .config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
login = {"url": url, "user": "reader", "password": password, "driver": "com.mysql.cj.jdbc.Driver", "fetchsize": "100"}
parts = {"partitionColumn": "id", "lowerBound": "0", "upperBound": "1000", "numPartitions": "4"}
orders = spark.read.format("jdbc").options(**login, **parts, dbtable="orders").load()
assert orders.where("customer = 'c1' AND total > 100").count() == 85
for row in orders.orderBy("id").collect():
    print(*row, sep="\t")
