"""Functions of MySQL and MatrixOne that DuckDB has not, as its macros."""

from typing import Final

MACROS: Final = (
    "mo_concat(parts) AS CASE WHEN list_count(parts) < len(parts) THEN NULL ELSE array_to_string(parts, '') END",
    "mo_length(x) AS CASE WHEN typeof(x) = 'BLOB' THEN octet_length(CAST(x AS BLOB)) "
    "ELSE strlen(CAST(x AS VARCHAR)) END",
    "mo_truncate(x, d) AS trunc(CAST(x AS DOUBLE) * pow(10, d)) / pow(10, d)",
    "uuid() AS CAST(gen_random_uuid() AS VARCHAR)",
    "substring_index(s, d, n) AS CASE WHEN n >= 0 THEN array_to_string(list_slice(string_split(s, d), 1, n), d) "
    "ELSE array_to_string(list_slice(string_split(s, d), greatest(len(string_split(s, d)) + n + 1, 1), "
    "len(string_split(s, d))), d) END",
    "find_in_set(s, l) AS coalesce(list_position(string_split(l, ','), s), 0)",
    "field2(s, l) AS coalesce(list_position(l, s), 0)",
    "locate(a, b) AS strpos(b, a)",
    "space(n) AS repeat(' ', n)",
    "strcmp(a, b) AS CASE WHEN a = b THEN 0 WHEN a < b THEN -1 ELSE 1 END",
    "unix_timestamp(t) AS CAST(floor(epoch(CAST(t AS TIMESTAMP))) AS BIGINT)",
    "from_unixtime(n) AS make_timestamp(CAST(n * 1000000 AS BIGINT))",
    "datediff(a, b) AS CAST(CAST(a AS DATE) - CAST(b AS DATE) AS BIGINT)",
    "mo_to_days(a) AS CAST(CAST(a AS DATE) - DATE '0001-01-01' AS BIGINT) + 366",
    "time_to_sec(t) AS CAST(floor(epoch_us(CAST(t AS INTERVAL)) / 1000000) AS BIGINT)",
    "sec_to_time(n) AS to_seconds(CAST(n AS BIGINT))",
    "timediff(a, b) AS CAST(a AS TIMESTAMP) - CAST(b AS TIMESTAMP)",
    "inet_aton(s) AS list_sum(list_transform(string_split(s, '.'), lambda p, i: CAST(p AS BIGINT) * "
    "CAST(pow(256, 4 - i) AS BIGINT)))",
    "json_unquote(j) AS CASE WHEN json_valid(CAST(j AS VARCHAR)) THEN json_extract_string(CAST(j AS JSON), '$') "
    "ELSE CAST(j AS VARCHAR) END",
    "l2_distance(a, b) AS list_distance(CAST(a AS DOUBLE[]), CAST(b AS DOUBLE[]))",
    "l2_distance_sq(a, b) AS pow(list_distance(CAST(a AS DOUBLE[]), CAST(b AS DOUBLE[])), 2)",
    "inner_product(a, b) AS -list_inner_product(CAST(a AS DOUBLE[]), CAST(b AS DOUBLE[]))",
    "cosine_similarity(a, b) AS list_cosine_similarity(CAST(a AS DOUBLE[]), CAST(b AS DOUBLE[]))",
    "cosine_distance(a, b) AS 1 - list_cosine_similarity(CAST(a AS DOUBLE[]), CAST(b AS DOUBLE[]))",
    "vector_dims(a) AS len(CAST(a AS DOUBLE[]))",
    "serial(a, b) AS concat(a, b)",
    "st_geomfromtext(s) AS CAST(s AS VARCHAR)",
    "st_astext(g) AS CAST(g AS VARCHAR)",
    "sleep(n) AS 0",
    "mo_ctl(a, b, c) AS error('mo_ctl stands alone in its SELECT')",
)
