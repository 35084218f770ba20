-- Functions of the exposed schemas ($1) that can be called. The rule on unnamed parameters is
-- applied later.
select n.nspname::text,
       p.proname::text,
       d.description,
       p.proargnames,
       p.proargmodes::text[],
       array(
         select pg_catalog.format_type(a.type, null)
           from pg_catalog.unnest(coalesce(p.proallargtypes, p.proargtypes::oid[])) with ordinality as a (type, at)
          order by a.at
       ) as types,
       p.pronargs,
       p.pronargdefaults,
       p.provolatile::text,
       p.provariadic <> 0,
       p.proconfig,
       p.proretset,
       p.prorettype,
       p.oid
  from pg_catalog.pg_proc as p
  join pg_catalog.pg_namespace as n on n.oid = p.pronamespace
  left join pg_catalog.pg_description as d
    on d.objoid = p.oid and d.objsubid = 0 and d.classoid = 'pg_catalog.pg_proc'::pg_catalog.regclass
 where n.nspname = any ($1)
   and p.prokind = 'f'
   and p.prorettype <> 'pg_catalog.trigger'::pg_catalog.regtype
