-- Run once, when the server's volume is empty. The database of the state and the user are made by the image itself.
CREATE DATABASE dagster CHARACTER SET utf8mb4;
GRANT ALL ON dagster.* TO 'ccpr'@'%';
