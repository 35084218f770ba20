-- The rewrite rules of the views of the exposed ($1) and of the extra schemas ($2), as PostgreSQL
-- stores them.
select c.oid,
       r.ev_action::text
  from pg_catalog.pg_class as c
  join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
  join pg_catalog.pg_rewrite as r on r.ev_class = c.oid and r.ev_type = '1' and r.is_instead
 where (n.nspname = any ($1) or n.nspname = any ($2))
   and n.nspname not in ('pg_catalog', 'information_schema')
   and c.relkind in ('v', 'm')
