-- Primary keys, unique constraints and foreign keys of all schemas, since views may show keys of
-- hidden ones. The keys of a partition are those of its parent.
select contype::text,
       conname::text,
       conrelid,
       confrelid,
       conkey,
       confkey
  from pg_catalog.pg_constraint
 where contype in ('p', 'u')
    or (contype = 'f' and conparentid = 0)
