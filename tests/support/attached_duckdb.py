"""DuckDB of the packages LAKE_DUCKDB, attached to a catalog: `uri warehouse query ...`, answers as JSON."""

import json
import os
import sys
from pathlib import Path


def main(uri: str, warehouse: str, *queries: str) -> None:
    packages = os.environ["LAKE_DUCKDB"]
    sys.path.insert(0, packages)
    import duckdb

    connection = duckdb.connect()
    for name in ("httpfs", "avro", "iceberg"):
        (extension,) = Path(packages).glob(f"**/{name}.duckdb_extension")
        connection.execute(f"LOAD '{extension}'")
    login = f"CLIENT_ID 'reader', CLIENT_SECRET 'secret', OAUTH2_SERVER_URI '{uri}/v1/oauth/tokens'"
    connection.execute(f"ATTACH '{warehouse}' AS lake (TYPE iceberg, ENDPOINT '{uri}', {login})")
    print(json.dumps([connection.execute(query).fetchall() for query in queries]))


if __name__ == "__main__":
    main(*sys.argv[1:])
