drop database if exists `gd_acc`;
create database `gd_acc`;
use `gd_acc`;
create table p (id int primary key, v varchar(40));
create table q (a int, b double);
drop publication if exists pub_other_account;
create publication pub_other_account database gd_acc account sys;
insert into p values (0,'ßJéXDCGéLmlZGEONYlgCtjfIZ中SO'),(1,'Mz'),(2,'PVNPkNa Hedcm中pMbXDuCL mHoOs'),(3,'aQfDPrAJ fTquWoGsbeKXgzgésyebéR'),(4,''),(5,'n🙂dEyTzAeKOmX'),(6,'vftvaAWhipTgadDZF'),(7,'RJmCGmU …
insert into q values (0,0.3805128124817255),(1,0.9979475475449752),(2,0.091741293363087),(3,0.8497019306761325),(4,0.720940172597646),(5,0.7098576151376434),(6,0.47367985850284045),(7,0.74882822398818 …
-- snapshot 1;
delete from p where id%3=0;
update q set b=0 where a>50;
create table later (z int primary key);
insert into later values (7);
-- snapshot 2;
