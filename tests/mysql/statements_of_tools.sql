-- What DBeaver, Metabase, Superset and Grafana ask for their trees and their charts, in our own words, and behind `-->`
-- the columns that the tool reads. `d` has the tables of tests/mysql/test_tools.py.
-- DBeaver
SHOW ENGINES --> Engine, Support, Comment
SHOW CHARSET --> Charset, Description, Default collation, Maxlen
SHOW COLLATION --> Collation, Charset, Id, Default, Compiled, Sortlen
SHOW PLUGINS --> Name, Status, Type, Library, License
SHOW PRIVILEGES --> Privilege, Context, Comment
SHOW GLOBAL STATUS --> Variable_name, Value
SHOW GLOBAL VARIABLES --> Variable_name, Value
SHOW FULL PROCESSLIST --> Id, User, Host, db, Command, Time, State, Info
SELECT @@GLOBAL.character_set_server, @@GLOBAL.collation_server
SELECT * FROM information_schema.SCHEMATA --> SCHEMA_NAME, DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME, SQL_PATH
SHOW FULL TABLES FROM `d` LIKE 'orders' --> Tables_in_d, Table_type
SHOW TABLE STATUS FROM `d` LIKE 'orders' --> Name, Engine, Rows, Auto_increment, Create_time, Collation, Comment
SELECT * FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = 'orders' ORDER BY ORDINAL_POSITION --> COLUMN_NAME, ORDINAL_POSITION, DATA_TYPE, CHARACTER_MAXIMUM_LENGTH, NUMERIC_SCALE, NUMERIC_PRECISION, IS_NULLABLE, COLUMN_DEFAULT, COLLATION_NAME, EXTRA, COLUMN_COMMENT, COLUMN_TYPE, COLUMN_KEY, GENERATION_EXPRESSION
SELECT * FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = 'orders' ORDER BY INDEX_NAME, SEQ_IN_INDEX --> INDEX_NAME, NON_UNIQUE, SEQ_IN_INDEX, COLUMN_NAME, COLLATION, NULLABLE, INDEX_TYPE, CARDINALITY
SELECT kc.CONSTRAINT_NAME, kc.TABLE_NAME, kc.COLUMN_NAME, kc.ORDINAL_POSITION FROM INFORMATION_SCHEMA.KEY_COLUMN_USAGE kc WHERE kc.TABLE_SCHEMA = 'd' AND kc.REFERENCED_TABLE_NAME IS NULL AND kc.TABLE_NAME = 'orders' ORDER BY kc.CONSTRAINT_NAME, kc.ORDINAL_POSITION --> CONSTRAINT_NAME, TABLE_NAME, COLUMN_NAME, ORDINAL_POSITION
SELECT c.CONSTRAINT_NAME, c.CHECK_CLAUSE, t.TABLE_NAME FROM (SELECT CONSTRAINT_NAME, CHECK_CLAUSE FROM INFORMATION_SCHEMA.CHECK_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = 'd') c, (SELECT TABLE_NAME, CONSTRAINT_NAME FROM INFORMATION_SCHEMA.TABLE_CONSTRAINTS WHERE TABLE_SCHEMA = 'd') t WHERE c.CONSTRAINT_NAME = t.CONSTRAINT_NAME --> CONSTRAINT_NAME, CHECK_CLAUSE, TABLE_NAME
SELECT * FROM information_schema.PARTITIONS WHERE TABLE_SCHEMA = 'd' ORDER BY PARTITION_ORDINAL_POSITION, SUBPARTITION_ORDINAL_POSITION --> PARTITION_NAME, PARTITION_METHOD, PARTITION_EXPRESSION, TABLE_ROWS
SELECT * FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = 'd' ORDER BY ROUTINE_NAME --> ROUTINE_NAME, ROUTINE_TYPE, DATA_TYPE, ROUTINE_COMMENT
SHOW FULL TRIGGERS FROM `d` --> Trigger, Event, Table, Timing
SELECT * FROM information_schema.EVENTS WHERE EVENT_SCHEMA = 'd' --> EVENT_NAME, EVENT_TYPE, STATUS
SELECT * FROM information_schema.VIEWS WHERE TABLE_SCHEMA = 'd' AND TABLE_NAME = 'orders' --> VIEW_DEFINITION, CHECK_OPTION, IS_UPDATABLE, DEFINER
SELECT TABLE_SCHEMA, TABLE_NAME FROM INFORMATION_SCHEMA.TABLES WHERE TABLE_NAME LIKE '%o%' AND TABLE_SCHEMA = 'd' ORDER BY TABLE_NAME LIMIT 100 --> TABLE_SCHEMA, TABLE_NAME
-- Metabase
SET @@session.time_zone = 'UTC'
SHOW GRANTS FOR CURRENT_USER() --> Grants for reader@%
SELECT CONCAT(DATE_FORMAT(current_timestamp, '%Y-%m-%d %H:%i:%S.%f' ), ' ', @@system_time_zone)
SELECT TRUE AS `_` FROM `d`.`orders` WHERE 1 <> 1 LIMIT 0 --> _
SELECT c.column_name AS `name`, c.ordinal_position - 1 AS `database-position`, UPPER(c.data_type) AS `database-type`, (c.extra = 'auto_increment') AS `database-is-auto-increment`, (c.column_default IS NULL OR LOWER(c.column_default) = 'null') AND c.is_nullable = 'NO' AND NOT (c.extra = 'auto_increment') AS `database-required`, ((c.column_key = 'PRI')) AS `pk?`, NULLIF(c.column_comment, '') AS `field-comment` FROM information_schema.columns c WHERE c.table_schema NOT IN ('information_schema', 'mysql') AND c.table_schema = 'd' ORDER BY c.table_name ASC, c.ordinal_position ASC --> name, database-position, database-type, database-is-auto-increment, database-required, pk?, field-comment
SELECT a.table_name AS `fk-table-name`, a.referenced_table_name AS `pk-table-name` FROM information_schema.key_column_usage a INNER JOIN information_schema.table_constraints b ON a.constraint_schema = b.constraint_schema AND a.constraint_name = b.constraint_name AND a.table_name = b.table_name WHERE b.constraint_type = 'FOREIGN KEY' AND a.table_schema = 'd' --> fk-table-name, pk-table-name
SELECT SUBSTRING(`orders`.`customer`, 1, 1234) AS `substring1`, `orders`.`id` AS `id` FROM `orders` LIMIT 10000 --> substring1, id
SELECT COUNT(DISTINCT `orders`.`customer`) AS `count`, AVG(CHAR_LENGTH(`orders`.`customer`)) AS `avg` FROM `orders` --> count, avg
SELECT STR_TO_DATE(CONCAT(DATE_FORMAT(`orders`.`placed`, '%Y-%m'), '-01'), '%Y-%m-%d') AS `placed`, COUNT(*) AS `count` FROM `orders` GROUP BY STR_TO_DATE(CONCAT(DATE_FORMAT(`orders`.`placed`, '%Y-%m'), '-01'), '%Y-%m-%d') ORDER BY STR_TO_DATE(CONCAT(DATE_FORMAT(`orders`.`placed`, '%Y-%m'), '-01'), '%Y-%m-%d') ASC --> placed, count
SELECT STR_TO_DATE(CONCAT(YEARWEEK(`orders`.`placed`), ' Sunday'), '%X%V %W') AS `placed`, SUM(`orders`.`total`) AS `sum` FROM `orders` GROUP BY STR_TO_DATE(CONCAT(YEARWEEK(`orders`.`placed`), ' Sunday'), '%X%V %W') --> placed, sum
SELECT STR_TO_DATE(CONCAT(YEAR(`orders`.`placed`), '-', ((QUARTER(`orders`.`placed`) * 3) - 2), '-01'), '%Y-%m-%d') AS `placed` FROM `orders` GROUP BY STR_TO_DATE(CONCAT(YEAR(`orders`.`placed`), '-', ((QUARTER(`orders`.`placed`) * 3) - 2), '-01'), '%Y-%m-%d') --> placed
SELECT STR_TO_DATE(DATE_FORMAT(`orders`.`placed`, '%Y-%m-%d %H'), '%Y-%m-%d %H') AS `placed` FROM `orders` GROUP BY STR_TO_DATE(DATE_FORMAT(`orders`.`placed`, '%Y-%m-%d %H'), '%Y-%m-%d %H') --> placed
SELECT COUNT(*) AS `count` FROM `orders` WHERE `orders`.`placed` >= DATE(DATE_ADD(NOW(6), INTERVAL -30 day)) AND `orders`.`placed` < DATE(NOW(6)) --> count
SELECT COUNT(*) AS `count` FROM `orders` WHERE (`orders`.`placed` >= timestamp '2026-01-01 00:00:00.000') AND (`orders`.`placed` < timestamp '2026-02-01 00:00:00.000') --> count
SELECT (FLOOR((`orders`.`total` / 10.0)) * 10.0) AS `total`, COUNT(*) AS `count` FROM `orders` GROUP BY (FLOOR((`orders`.`total` / 10.0)) * 10.0) --> total, count
-- Superset
SELECT DATE_ADD(DATE(placed), INTERVAL (HOUR(placed)*60*60 + MINUTE(placed)*60 + SECOND(placed)) SECOND) AS __timestamp, COUNT(*) AS count FROM orders GROUP BY DATE_ADD(DATE(placed), INTERVAL (HOUR(placed)*60*60 + MINUTE(placed)*60 + SECOND(placed)) SECOND) ORDER BY count DESC LIMIT 1000 --> __timestamp, count
SELECT DATE(DATE_SUB(placed, INTERVAL DAYOFWEEK(placed) - 1 DAY)) AS __timestamp, AVG(total) AS `AVG(total)` FROM orders WHERE placed >= STR_TO_DATE('2026-01-01 00:00:00.000000', '%Y-%m-%d %H:%i:%s.%f') GROUP BY DATE(DATE_SUB(placed, INTERVAL DAYOFWEEK(placed) - 1 DAY)) ORDER BY `AVG(total)` DESC LIMIT 10000 --> __timestamp, AVG(total)
SELECT MAKEDATE(YEAR(placed), 1) + INTERVAL QUARTER(placed) QUARTER - INTERVAL 1 QUARTER AS t FROM orders GROUP BY MAKEDATE(YEAR(placed), 1) + INTERVAL QUARTER(placed) QUARTER - INTERVAL 1 QUARTER --> t
SELECT `customer`, SUM(total) AS total FROM (SELECT * FROM orders) AS virtual_table GROUP BY `customer` ORDER BY total DESC LIMIT 100 --> customer, total
SELECT DATE_ADD(placed, INTERVAL (HOUR(placed) * 60 * 60 + MINUTE(placed) * 60 + SECOND(placed)) SECOND) AS placed, SUM(total) AS `SUM(total)` FROM d.orders WHERE placed >= STR_TO_DATE('2026-01-01 00:00:00.000000', '%Y-%m-%d %T.%f') GROUP BY DATE_ADD(placed, INTERVAL (HOUR(placed) * 60 * 60 + MINUTE(placed) * 60 + SECOND(placed)) SECOND) LIMIT 1000 --> placed, SUM(total)
SELECT DATE(DATE_SUB(placed, INTERVAL (DAYOFWEEK(DATE_SUB(placed, INTERVAL '1' DAY)) - 1) DAY)) AS placed, SUM(total) AS `SUM(total)` FROM d.orders GROUP BY DATE(DATE_SUB(placed, INTERVAL (DAYOFWEEK(DATE_SUB(placed, INTERVAL '1' DAY)) - 1) DAY)) LIMIT 1000 --> placed, SUM(total)
SELECT MAKEDATE(YEAR(placed), 1) + INTERVAL (QUARTER(placed)) QUARTER - INTERVAL '1' QUARTER AS placed FROM d.orders GROUP BY MAKEDATE(YEAR(placed), 1) + INTERVAL (QUARTER(placed)) QUARTER - INTERVAL '1' QUARTER --> placed
SELECT SUM(total) AS `SUM(total)` FROM d.orders WHERE LOWER(customer) LIKE LOWER('%C%') AND NOT customer IN ('new') AND paid IS TRUE LIMIT 1000 --> SUM(total)
SELECT customer AS customer, DATE(placed) AS placed, SUM(total) AS `SUM(total)` FROM d.orders INNER JOIN (SELECT customer AS customer__, SUM(total) AS mme_inner__ FROM d.orders GROUP BY customer ORDER BY SUM(total) DESC LIMIT 3) AS series_limit ON customer = customer__ GROUP BY customer, DATE(placed) LIMIT 1000 --> customer, placed
SELECT COUNT(*) AS rowcount FROM (SELECT customer AS customer, SUM(total) AS `SUM(total)` FROM d.orders GROUP BY customer LIMIT 1000) AS rowcount_qry --> rowcount
-- SQLAlchemy, knex, Sequelize, TypeORM, PHP's PDO
SELECT count(*) AS count_1 FROM orders WHERE lower(orders.customer) LIKE lower('C1%') AND orders.customer REGEXP '^c[12]' --> count_1
SELECT count(*) AS count_1 FROM orders WHERE total > '10.5' AND ratio > '0.5' AND paid = '1' AND id = '5' AND placed > '2026-1-5 0:0:0' --> count_1
SELECT CASE WHEN (orders.total > 100) THEN 'big' ELSE 'small' END AS s, count(*) AS n FROM orders GROUP BY s --> s, n
SELECT max(`placed`) AS `max` FROM `orders` AS `order`; --> max
SELECT `customer`.* FROM (SELECT `customer`.`id`, `customer`.`paid` FROM `orders` AS `customer` LIMIT 2) AS `customer` LEFT OUTER JOIN `a` AS `o` ON `customer`.`id` = `o`.`n`; --> id, paid
SELECT * FROM (SELECT * FROM `INFORMATION_SCHEMA`.`KEY_COLUMN_USAGE` `kcu` WHERE `kcu`.`TABLE_SCHEMA` = 'd' AND `kcu`.`TABLE_NAME` = 'orders') `kcu` WHERE `CONSTRAINT_NAME` = 'PRIMARY' --> COLUMN_NAME
SELECT `s`.* FROM (SELECT * FROM `INFORMATION_SCHEMA`.`STATISTICS` WHERE `TABLE_SCHEMA` = 'd' AND `TABLE_NAME` = 'orders') `s` LEFT JOIN (SELECT * FROM `INFORMATION_SCHEMA`.`REFERENTIAL_CONSTRAINTS` WHERE `CONSTRAINT_SCHEMA` = 'd') `rc` ON `s`.`INDEX_NAME` = `rc`.`CONSTRAINT_NAME` WHERE `s`.`INDEX_NAME` != 'PRIMARY' AND `rc`.`CONSTRAINT_NAME` IS NULL --> INDEX_NAME
-- DuckDB's MySQL extension
SELECT table_name, column_name, data_type, column_type, column_default, is_nullable, numeric_precision, numeric_scale FROM information_schema.columns WHERE table_schema='d' ORDER BY table_name, ordinal_position; --> table_name, numeric_scale
SELECT NULL FROM `d`.`orders`
SELECT `paid`, `ratio`, `id` FROM `d`.`orders` WHERE `ratio` > 3.0 AND `born` >= '2020-01-05' AND (`customer` >= 'c1' AND `customer` < 'c2') AND `id` IN (1, 2, 3, 11, 12) --> paid, ratio, id
-- ODBC of MariaDB; Perl
SELECT TABLE_SCHEMA AS TABLE_CAT, NULL AS TABLE_SCHEM, TABLE_NAME, if(TABLE_TYPE='BASE TABLE' OR TABLE_TYPE='SYSTEM VERSIONED','TABLE',TABLE_TYPE) AS TABLE_TYPE, TABLE_COMMENT AS REMARKS FROM INFORMATION_SCHEMA.TABLES WHERE 1=1 ORDER BY TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE --> TABLE_CAT, TABLE_TYPE
SET character_set_server = 'utf8mb4'
SELECT COLUMN_NAME, ORDINAL_POSITION KEY_SEQ, 'PRIMARY' PK_NAME FROM INFORMATION_SCHEMA.COLUMNS WHERE COLUMN_KEY = 'pri' AND TABLE_SCHEMA=DATABASE() AND TABLE_NAME = BINARY 'orders' --> PK_NAME
SET session_track_schema= ON
-- Grafana
SELECT DISTINCT TABLE_SCHEMA FROM information_schema.TABLES WHERE TABLE_TYPE != 'SYSTEM VIEW' ORDER BY TABLE_SCHEMA --> TABLE_SCHEMA
SELECT UNIX_TIMESTAMP(placed) DIV 300 * 300 AS "time", avg(total) AS "total" FROM orders WHERE placed BETWEEN FROM_UNIXTIME(1767225600) AND FROM_UNIXTIME(1769904000) GROUP BY 1 ORDER BY UNIX_TIMESTAMP(placed) DIV 300 * 300 --> time, total
