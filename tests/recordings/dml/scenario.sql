drop database if exists `gd_dml`;
create database `gd_dml`;
use `gd_dml`;
create table acc (id bigint primary key, owner varchar(40), balance decimal(15,2), updated datetime(3), tag char(3));
insert into acc select result, concat('o',result%997), result*1.01, '2026-01-01 00:00:00', 'ini' from generate_series(1,50000) g;
drop publication if exists pub_dml;
create publication pub_dml database gd_dml account all;
-- snapshot 1;
insert into acc values (50001,'ßJéXDCGéLmlZGEONYlgCtjfIZ中SO',-916239.33,'2026-02-01 10:00:00.123','new'),(50002,'CPVNPkNa Hedcm中pMbXDuCL m',38248.23,'2026-02-01 10:00:00.123','new'),(50003,'FaQfDPrAJ  …
insert into acc values (50011,'CpdclsxHKifxi文CvQUSHLiLcbE',820424.9,'2026-02-01 10:00:00.123','new'),(50012,'cbMOeEeUtuieeCIxVc文',872498.91,'2026-02-01 10:00:00.123','new'),(50013,'Y🙂vwfRE文',-844661.3 …
insert into acc values (50021,'mbX rpXjYdOhCgOIPOZxeRmm EqlT',-978466.66,'2026-02-01 10:00:00.123','new'),(50022,'ITclorXwISHGNWkzéYS文ofA文UyiCDm',251096.35,'2026-02-01 10:00:00.123','new'),(50023,'',- …
-- … and more of the same
-- snapshot 2;
update acc set balance=balance+1, tag='upd' where id%11=9;
-- snapshot 3;
delete from acc where id between 6846 and 12000;
-- snapshot 4;
select mo_ctl('cn','mergeobjects','t:gd_dml.acc:small');
select mo_ctl('cn','mergeobjects','t:gd_dml.acc:overlap');
-- snapshot 5;
