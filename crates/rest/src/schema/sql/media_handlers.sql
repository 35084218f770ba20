-- Aggregates and functions of the exposed schemas ($1) that return a domain named like a media
-- type.
select n.nspname::text,
       p.proname::text,
       p.prokind = 'f',
       pg_catalog.lower(t.typname::text),
       origin_schema.nspname::text,
       origin.relname::text
  from pg_catalog.pg_proc as p
  join pg_catalog.pg_namespace as n on n.oid = p.pronamespace
  join pg_catalog.pg_type as t
    on t.oid = p.prorettype
   and t.typtype = 'd'
   and (t.typname::text ~ '^[A-Za-z0-9.-]+/[A-Za-z0-9.+-]+$' or t.typname = '*/*')
  left join pg_catalog.pg_type as argument on argument.oid = p.proargtypes[0] and argument.typtype = 'c'
  left join pg_catalog.pg_class as origin on origin.oid = argument.typrelid and origin.relkind in ('r', 'p', 'v', 'm', 'f')
  left join pg_catalog.pg_namespace as origin_schema on origin_schema.oid = origin.relnamespace
 where n.nspname = any ($1)
   and (
         (p.prokind = 'f' and not p.proretset)
         or (p.prokind = 'a'
             and p.pronargs = 1
             and (origin.oid is not null or p.proargtypes[0] = 'pg_catalog.anyelement'::pg_catalog.regtype))
       )
 order by 1, 2, 4, 5, 6
