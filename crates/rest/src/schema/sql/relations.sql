-- Relations of the exposed schemas ($1). The bits of `writable` are 4 for update, 8 for insert, 16
-- for delete.
with recursive handlerless as (
  -- Foreign tables whose wrapper has no handler, and the views over them: PostgreSQL cannot tell
  -- which writes they allow, and fails.
  select f.ftrelid as oid
    from pg_catalog.pg_foreign_table as f
    join pg_catalog.pg_foreign_server as s on s.oid = f.ftserver
    join pg_catalog.pg_foreign_data_wrapper as w on w.oid = s.srvfdw
   where w.fdwhandler = 0
  union
  select r.ev_class
    from handlerless as h
    join pg_catalog.pg_depend as d
      on d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.refobjid = h.oid
     and d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass
    join pg_catalog.pg_rewrite as r on r.oid = d.objid
)
select c.oid,
       c.reltype,
       n.nspname::text,
       c.relname::text,
       c.relkind::text,
       d.description,
       case
         when c.relkind in ('r', 'p') then 28
         when c.relkind = 'm' then 0
         when c.oid in (select h.oid from handlerless as h) then 0
         else pg_catalog.pg_relation_is_updatable(c.oid, true)
       end as writable,
       -- PostgreSQL writes through views of one relation, each row at most once. A unique index
       -- guarantees the same for a materialized view.
       case c.relkind
         when 'v' then c.oid in (select h.oid from handlerless as h) or pg_catalog.pg_relation_is_updatable(c.oid, false) & 16 = 0
         when 'm' then not exists (
           select from pg_catalog.pg_index as i where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indpred is null)
         else false
       end as repeats_keys
  from pg_catalog.pg_class as c
  join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
  left join pg_catalog.pg_description as d
    on d.objoid = c.oid and d.objsubid = 0 and d.classoid = 'pg_catalog.pg_class'::pg_catalog.regclass
 where n.nspname = any ($1)
   and n.nspname not in ('pg_catalog', 'information_schema')
   and c.relkind in ('r', 'p', 'v', 'm', 'f')
   and not c.relispartition
