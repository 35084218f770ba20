-- Comments of the exposed schemas ($1).
select n.nspname::text, d.description
  from pg_catalog.pg_namespace as n
  join pg_catalog.pg_description as d
    on d.objoid = n.oid and d.objsubid = 0 and d.classoid = 'pg_catalog.pg_namespace'::pg_catalog.regclass
 where n.nspname = any ($1)
