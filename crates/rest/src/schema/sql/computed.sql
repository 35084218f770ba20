-- Functions from a row of one relation to rows of a relation, in all schemas.
select n.nspname::text,
       p.proname::text,
       origin_schema.nspname::text,
       origin.relname::text,
       target_schema.nspname::text,
       target.relname::text,
       not p.proretset or p.prorows = 1
  from pg_catalog.pg_proc as p
  join pg_catalog.pg_namespace as n on n.oid = p.pronamespace
  join pg_catalog.pg_type as argument on argument.oid = p.proargtypes[0] and argument.typtype = 'c'
  join pg_catalog.pg_class as origin on origin.oid = argument.typrelid and origin.relkind in ('r', 'p', 'v', 'm', 'f')
  join pg_catalog.pg_namespace as origin_schema on origin_schema.oid = origin.relnamespace
  join pg_catalog.pg_type as result on result.oid = p.prorettype and result.typtype = 'c'
  join pg_catalog.pg_class as target on target.oid = result.typrelid and target.relkind in ('r', 'p', 'v', 'm', 'f')
  join pg_catalog.pg_namespace as target_schema on target_schema.oid = target.relnamespace
 where p.pronargs = 1
   and p.prokind = 'f'
   and origin_schema.nspname = any ($1)
