-- Domains, enums and row types of every schema, and the types of the system.
select t.oid,
       n.nspname::text,
       t.typname::text,
       t.typtype::text,
       t.typbasetype,
       t.typtypmod,
       t.typnotnull,
       t.typdefault,
       n.nspname = 'pg_catalog',
       pg_catalog.format_type(t.oid, null),
       e.labels
  from pg_catalog.pg_type as t
  join pg_catalog.pg_namespace as n on n.oid = t.typnamespace
  left join (
         select enumtypid, pg_catalog.array_agg(enumlabel::text order by enumsortorder) as labels
           from pg_catalog.pg_enum
          group by enumtypid
       ) as e on e.enumtypid = t.oid
 where t.typtype in ('d', 'e', 'c')
    or n.nspname = 'pg_catalog'
