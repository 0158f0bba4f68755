"""The system variables of every emulated upstream."""

from typing import Final

SERVER_VERSION: Final = "8.0.30-MatrixOne-v1.3.0"
# The variables that clients read when they connect.
VARIABLES: Final[dict[str, str | int]] = {
    "auto_increment_increment": 1,
    "autocommit": 1,
    "character_set_client": "utf8mb4",
    "character_set_connection": "utf8mb4",
    "character_set_database": "utf8mb4",
    "character_set_results": "utf8mb4",
    "character_set_server": "utf8mb4",
    "collation_connection": "utf8mb4_0900_ai_ci",
    "collation_database": "utf8mb4_bin",
    "collation_server": "utf8mb4_bin",
    "init_connect": "",
    "interactive_timeout": 28800,
    "license": "APACHE",
    "lower_case_table_names": 1,
    "max_allowed_packet": 67108864,
    "net_buffer_length": 16384,
    "net_write_timeout": 60,
    "performance_schema": 0,
    "sql_mode": "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES",
    "system_time_zone": "UTC",
    "time_zone": "SYSTEM",
    "transaction_isolation": "REPEATABLE-READ",
    "transaction_read_only": 0,
    "tx_isolation": "REPEATABLE-READ",
    "version": SERVER_VERSION,
    "version_comment": "emulator of MatrixOne",
    "wait_timeout": 28800,
}


def variables_of(server: str) -> dict[str, str | int]:
    """Those of a server that calls itself so."""
    return {**VARIABLES, "version_comment": f"{server} of MatrixOne"}
