"""DuckDB's part of `tests.support.lake_engines`, run with the packages of the folder LAKE_DUCKDB."""

import json
import os
import sys
from pathlib import Path

import pyarrow as pa


def main(folder: Path) -> None:
    packages = os.environ["LAKE_DUCKDB"]
    sys.path.insert(0, packages)
    import duckdb

    connection = duckdb.connect()
    for name in ("httpfs", "avro", "iceberg", "delta"):
        for extension in Path(packages).glob(f"**/{name}.duckdb_extension"):
            connection.execute(f"LOAD '{extension}'")
    connection.execute("SET TimeZone = 'UTC'")
    for number, query in enumerate(json.loads((folder / "queries.json").read_text())):
        kind, at = ("iceberg", "snapshot_from_id") if query["iceberg"] else ("delta", "version")
        scan = f"{kind}_scan('{query['uri']}', {at}={query['version']})"
        table = connection.execute(f"WITH t AS (SELECT * FROM {scan}) {query['sql']}").to_arrow_table()
        with pa.ipc.new_file(folder / f"{number}.arrow", table.schema) as file:
            file.write_table(table)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
