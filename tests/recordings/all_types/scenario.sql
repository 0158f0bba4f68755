drop database if exists `gd_types`;
create database `gd_types`;
use `gd_types`;
create table every_type (id int primary key, b bool, bt1 bit(1), bt10 bit(10), bt64 bit(64), i8 tinyint, i16 smallint, i32 int, i64 bigint, u8 tinyint unsigned, u16 smallint unsigned, u32 int unsigned, u64 bigint unsigned, f32 float, f32p float(10,2), f64 double, d64 decimal(18,5), d128 decimal(38,10), d256 decimal(60,5), dt date, tm time, tm6 time(6), dtm datetime, dtm3 datetime(3), dtm6 datetime(6), ts timestamp, ts6 timestamp(6), yr year, ch char(10), vc varchar(200), tx text, bn binary(8), vb varbinary(60), bl blob, js json, uu uuid, en enum('red','green','blue'), st set('x','y','z'), v32 vecf32(3), v64 vecf64(4), dl datalink, ge geometry);
create table per_type_notnull (id int primary key, b bool not null, bt1 bit(1) not null, bt10 bit(10) not null, bt64 bit(64) not null, i8 tinyint not null, i16 smallint not null, i32 int not null, i64 bigint not null, u8 tinyint unsigned not null, u16 smallint unsigned not null, u32 int unsigned not null, u64 bigint unsigned not null, f32 float not null, f32p float(10,2) not null, f64 double not null, d64 decimal(18,5) not null, d128 decimal(38,10) not null, d256 decimal(60,5) not null, dt date not null, tm time not null, tm6 time(6) not null, dtm datetime not null, dtm3 datetime(3) not null, dtm6 datetime(6) not null, ts timestamp not null, ts6 timestamp(6) not null, yr year not null, ch char(10) not null, vc varchar(200) not null, tx text not null, bn binary(8) not null, vb varbinary(60) not null, bl blob not null, js json not null, uu uuid not null, en enum('red','green','blue') not null, st set('x','y','z') not null, v32 vecf32(3) not null, v64 vecf64(4) not null);
drop publication if exists pub_all_types;
create publication pub_all_types database gd_types account all;
-- snapshot 1;
insert into every_type values (0,1,1,268,288655873647353865,-128,0,-2147483648,9223372036854775807,1,65535,2399920227,0,909569.1419431651,2188.47,-1.5,-0.00001,9999999999999999999999999999.9999999999, …
insert into every_type values (100,0,0,91,1808329210256667615,127,-32768,-793996447,1,1,NULL,NULL,18446744073709551615,NULL,NULL,-1.5,0.00000,0.0000000001,466197319132943541158080627055624861401555589 …
insert into every_type values (200,1,NULL,296,13646809920298524633,127,32767,2147483647,-9223372036854775808,1,65535,0,1,-341021.07644667325,-9540.71,-917702.4951261195,8987628031540.13011,0.000000000 …
-- … and more of the same
insert into every_type (id) values (100000),(100001);
-- snapshot 2;
