-- Kinds of events of MariaDB: compressed rows and statements, XA.
DROP DATABASE IF EXISTS tg;
CREATE DATABASE tg;
USE tg;
CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(50), j JSON);
SET GLOBAL log_bin_compress_min_len = 20;
SET GLOBAL log_bin_compress = ON;
CREATE TABLE packed_statement (id INT PRIMARY KEY) COMMENT 'a statement that is long enough to be compressed, compressed, compressed';
INSERT INTO t SELECT seq, REPEAT('packed', 5), '{"a":  1}' FROM seq_1_to_200;
UPDATE t SET v = REPEAT('updated', 5) WHERE id < 100;
DELETE FROM t WHERE id > 150;
SET GLOBAL log_bin_compress = OFF;
XA START 'global', 'branch', 7;
UPDATE t SET v = 'xa' WHERE id = 2;
XA END 'global', 'branch', 7;
XA PREPARE 'global', 'branch', 7;
XA COMMIT 'global', 'branch', 7;
SET gtid_domain_id = 3;
UPDATE t SET v = 'domain' WHERE id = 1;
