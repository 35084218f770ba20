-- Finds the relation named $2 on which a privilege is missing. $1 is the role of the request, $3
-- its schema, $4 the names of its relations; the first of them is read or written with the
-- privileges $5. $6 and $7 are the schemas (empty: any) and names of the functions on the call
-- stack, the innermost first. Returns the relation's schema, the role that lacks the privilege,
-- whether the relation is the first one or lies below it, and the missing privileges. Two rows mean
-- that several relations are possible.
with recursive definer as (
  -- The innermost function that runs with its owner's privileges. `owner` is null if functions of
  -- the same name do not
  select case when pg_catalog.bool_and(p.prosecdef) and pg_catalog.min(p.proowner) = pg_catalog.max(p.proowner)
              then pg_catalog.min(p.proowner) end as owner
    from rows from (pg_catalog.unnest($6::text[]), pg_catalog.unnest($7::text[])) with ordinality as stack (schema, name, place)
    join pg_catalog.pg_proc as p on p.proname = stack.name
    join pg_catalog.pg_namespace as n on n.oid = p.pronamespace and (stack.schema = '' or n.nspname = stack.schema)
   group by stack.place
  having pg_catalog.bool_or(p.prosecdef)
   order by stack.place
   limit 1
), caller as (
  select r.oid from pg_catalog.pg_roles as r where r.rolname = $1 and not exists (select from definer)
  union all
  select owner from definer where owner is not null
), reached as (
  select c.oid, c.relname, c.relkind, c.relowner, c.reloptions, c.relnamespace, r.oid as acting, c.relname = ($4::text[])[1] as is_target
    from pg_catalog.pg_class as c
    join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
    join pg_catalog.pg_roles as r on r.rolname = $1
   where n.nspname = $3 and c.relname = any ($4::text[])
  union
  -- The owner of a view reads the relations below it, unless the view is a security invoker
  select below.oid, below.relname, below.relkind, below.relowner, below.reloptions, below.relnamespace,
         case
           when exists (
             select from pg_catalog.pg_options_to_table(above.reloptions) as o
              where o.option_name = 'security_invoker' and o.option_value::boolean) then above.acting
           else above.relowner
         end,
         above.is_target
    from reached as above
    join pg_catalog.pg_rewrite as w on w.ev_class = above.oid and w.ev_type = '1'
    join pg_catalog.pg_depend as d
      on d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass and d.objid = w.oid
     and d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.refobjid <> above.oid
    join pg_catalog.pg_class as below on below.oid = d.refobjid
   where above.relkind = 'v'
), named as (
  select reached.oid, relnamespace, acting, is_target, 0 as distance
    from reached
   where relname = $2
     -- The function has failed, and not the request's own statement
     and not exists (select from definer)
  union all
  -- Functions, triggers and policies read other relations, in schemas that the role may use:
  -- otherwise the error would name the schema
  select c.oid, c.relnamespace, r.oid, false, 1
    from pg_catalog.pg_class as c
    join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
   cross join caller as r
   where c.relname = $2 and c.relkind in ('r', 'p', 'v', 'm', 'f')
     and pg_catalog.has_schema_privilege(r.oid, n.oid, 'USAGE')
), lacking as (
  select named.*, (
           select pg_catalog.string_agg(p.name, ', ' order by p.place)
             from pg_catalog.unnest(
                    case when is_target then pg_catalog.string_to_array($5, ', ') else array['SELECT', 'INSERT', 'UPDATE', 'DELETE'] end
                  ) with ordinality as p (name, place)
            where not pg_catalog.has_table_privilege(acting, named.oid, p.name)) as privileges
    from named
)
select n.nspname::text, r.rolname::text, is_target, privileges
  from (select *, pg_catalog.rank() over (order by distance, is_target desc) as place from lacking where privileges is not null) as likely
  join pg_catalog.pg_namespace as n on n.oid = likely.relnamespace
  join pg_catalog.pg_roles as r on r.oid = likely.acting
 where place = 1
 limit 2
