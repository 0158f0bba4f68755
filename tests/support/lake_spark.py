"""Spark's part of `tests.support.lake_engines`: a session with the jars of LAKE_JARS, and LAKE_CATALOG attached."""

import json
import os
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

SETTINGS = {
    "spark.jars": os.environ.get("LAKE_JARS", ""),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


CATALOG = os.environ.get("LAKE_CATALOG")
ATTACHED = {
    "spark.sql.extensions": f"{SETTINGS['spark.sql.extensions']},"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "rest",
    "spark.sql.catalog.lake.uri": f"{CATALOG}",
    "spark.sql.catalog.lake.oauth2-server-uri": f"{CATALOG}/v1/oauth/tokens",
    "spark.sql.catalog.lake.credential": "reader:secret",
    "spark.sql.catalog.lake.warehouse": "shop.lake",
}


def session() -> SparkSession:
    builder = SparkSession.Builder().master("local[2]")
    for name, value in (SETTINGS | ATTACHED if CATALOG else SETTINGS).items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("OFF")
    return found


def main(folder: Path) -> None:
    spark = session()
    for number, query in enumerate(json.loads((folder / "queries.json").read_text())):
        version = query["version"]
        options = {"readChangeFeed": True, "startingVersion": version, "endingVersion": version}
        chosen = options if query["changes"] else {"versionAsOf": version}
        form = "iceberg" if query["iceberg"] else "delta"
        if query["before"]:
            spark.sql(query["before"])
        if query["uri"]:
            spark.read.format(form).options(**chosen).load(query["uri"]).createOrReplaceTempView("t")
        table = spark.sql(query["sql"]).toArrow()
        with pa.ipc.new_file(folder / f"{number}.arrow", table.schema) as file:
            file.write_table(table)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
