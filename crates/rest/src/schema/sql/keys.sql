-- Primary keys, unique constraints and foreign keys of all schemas: views may show those of hidden ones. A partition's are its
-- parent's.
select contype::text,
       conname::text,
       conrelid,
       confrelid,
       conkey,
       confkey
  from pg_catalog.pg_constraint
 where contype in ('p', 'u')
    or (contype = 'f' and conparentid = 0)
