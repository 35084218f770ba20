-- What is there without asking. An extension that lies in another schema stays there.
select pg_temp.ensure_extension(name, 'extensions') from unnest('{pgcrypto,uuid-ossp,pg_stat_statements}'::text[]) as name;
