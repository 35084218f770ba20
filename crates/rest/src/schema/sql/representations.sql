-- Implicit casts between domains and json or text.
select source.oid,
       target.oid,
       n.nspname::text,
       p.proname::text,
       source.typtype = 'd',
       case when source.typtype = 'd' then target.oid else source.oid end = 'pg_catalog.json'::pg_catalog.regtype
  from pg_catalog.pg_cast as c
  join pg_catalog.pg_type as source on source.oid = c.castsource
  join pg_catalog.pg_type as target on target.oid = c.casttarget
  join pg_catalog.pg_proc as p on p.oid = c.castfunc
  join pg_catalog.pg_namespace as n on n.oid = p.pronamespace
 where c.castcontext = 'i'
   and c.castmethod = 'f'
   and pg_catalog.has_function_privilege(c.castfunc, 'execute')
   and (
         (source.typtype = 'd' and target.oid = 'pg_catalog.json'::pg_catalog.regtype)
         or (target.typtype = 'd'
             and source.oid in ('pg_catalog.json'::pg_catalog.regtype, 'pg_catalog.text'::pg_catalog.regtype))
       )
