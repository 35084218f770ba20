-- Columns of the relations of the exposed schemas ($1). The sequence of an identity is looked up by
-- index, and only where there is one, since pg_depend may be huge.
select a.attrelid,
       a.attnum,
       a.attname::text,
       d.description,
       a.attnotnull,
       a.atttypid,
       a.atttypmod,
       pg_catalog.format_type(a.atttypid, a.atttypmod),
       case
         when a.attgenerated <> '' then null
         when a.attidentity = 'd' then (
           select pg_catalog.format('nextval(%L)', s.objid::pg_catalog.regclass)
             from pg_catalog.pg_depend as s
            where s.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
              and s.refobjid = a.attrelid
              and s.refobjsubid = a.attnum
              and s.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
              and s.deptype = 'i'
            limit 1)
         -- Without the relation, which takes most of the time. Only generated columns refer to it.
         else pg_catalog.pg_get_expr(e.adbin, 0)
       end as default_expression,
       a.attgenerated <> '' or a.attidentity <> '' as is_made
  from pg_catalog.pg_class as c
  join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
  join pg_catalog.pg_attribute as a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
  left join pg_catalog.pg_attrdef as e on e.adrelid = a.attrelid and e.adnum = a.attnum and a.atthasdef
  left join pg_catalog.pg_description as d
    on d.objoid = a.attrelid and d.objsubid = a.attnum and d.classoid = 'pg_catalog.pg_class'::pg_catalog.regclass
 where n.nspname = any ($1)
   and n.nspname not in ('pg_catalog', 'information_schema')
   and c.relkind in ('r', 'p', 'v', 'm', 'f')
   and not c.relispartition
