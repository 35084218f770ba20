-- Relations of the exposed schemas ($1). Bits of the last column: 4 update, 8 insert, 16 delete (contract 2).
select c.oid,
       c.reltype,
       n.nspname::text,
       c.relname::text,
       c.relkind::text,
       d.description,
       case
         when c.relkind in ('r', 'p') then 28
         when c.relkind = 'm' then 0
         -- PostgreSQL can not tell, and fails, for a wrapper that has no handler.
         when c.relkind = 'f' and w.fdwhandler = 0 then 0
         else pg_catalog.pg_relation_is_updatable(c.oid, true)
       end as writable
  from pg_catalog.pg_class as c
  join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
  left join pg_catalog.pg_foreign_table as f on f.ftrelid = c.oid
  left join pg_catalog.pg_foreign_server as s on s.oid = f.ftserver
  left join pg_catalog.pg_foreign_data_wrapper as w on w.oid = s.srvfdw
  left join pg_catalog.pg_description as d
    on d.objoid = c.oid and d.objsubid = 0 and d.classoid = 'pg_catalog.pg_class'::pg_catalog.regclass
 where n.nspname = any ($1)
   and n.nspname not in ('pg_catalog', 'information_schema')
   and c.relkind in ('r', 'p', 'v', 'm', 'f')
   and not c.relispartition
