drop database if exists `gd_keys`;
create database `gd_keys`;
use `gd_keys`;
create table nopk (a int, b varchar(30));
create table comp (k1 varchar(20), k2 int, k3 datetime, v double, primary key (k1,k2,k3));
create table strpk (k varchar(50) primary key, v int);
create table decpk (k decimal(20,4) primary key, v text);
create table uuidpk (k uuid primary key, v int);
create table clus (a int, b int, c varchar(20)) cluster by (b,a);
create table clus1 (a int, b int) cluster by (b);
create table idx (id int auto_increment primary key, email varchar(60) unique, city varchar(30), key k_city (city));
create table ft (id int primary key, body text, fulltext key fk(body));
create table comp2 (k1 bigint, k2 decimal(10,2), k3 bool, k4 date, k5 varbinary(10), v int, primary key (k1,k2,k3,k4,k5));
drop publication if exists pub_keys;
create publication pub_keys database gd_keys account all;
insert into nopk values (57,'JéXDCGéLmlZGEONYlgCtjfIZ中SO'),(5,'zCPVNPkNa Hedcm中pMb'),(99,'uCL mHoOsFaQfD'),(83,'AJ fTquW'),(29,'sbeKXgzgésyebéRa'),(27,'🙂dEyTz'),(53,'KO'),(25,'RrvftvaAWhipTgadDZFlRJmC …
insert into comp values ('IhXYg0',-1612370649,'2010-01-02 03:04:05',0.5678743365247878),('Qf1',-822654609,'2011-01-02 03:04:05',0.35276306254771983),('pL2',-369699354,'2012-01-02 03:04:05',0.054299086 …
insert into strpk values ('0UmKRRwPdxgciDR qRqJDé xhdPPbEogbLk',0),('1kIwi',1),('2MS ßw',2),('3xQPUx中B',3),('4OLpßdRIusCXsOBDnaCEéqEM🙂GkGrdIixMxR',4),('5YUseDM',5),('6AZrz🙂REzREéwfhcSzIfRjCjKBgMoWjCP' …
-- … and more of the same
-- snapshot 1;
