-- Which relations run functions of somebody's when their rows are read (`read`) or only when they are written (`written`), and to which the
-- transaction that they run in matters all the same (`seeing`). Somebody's are all but
-- those of pg_catalog and those that tell of the caller (`auth.uid()`); of pg_catalog those count that set something or run SQL that
-- they are given. A relation without a number means all of them: then plain comparisons, or JSON, may run such a function; or, as `cast`,
-- that somebody has made casts between types of PostgreSQL's own.
with recursive foreign_functions as materialized (
  select p.oid,
         p.prolang not in (12, 13) as is_interpreted
    from pg_catalog.pg_proc as p
    join pg_catalog.pg_namespace as n on n.oid = p.pronamespace
   where n.nspname not in ('pg_catalog', 'information_schema')
     and not (n.nspname = 'auth' and p.proname in ('uid', 'role', 'email', 'jwt') and p.pronargs = 0)
), calls as materialized (
  -- PostgreSQL notes no dependency on what it brings along: only the trees tell of these.
  select ':funcid (' || pg_catalog.string_agg(p.oid::text, '|') || ') ' as pattern
    from pg_catalog.pg_proc as p
   where p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace
     and p.proname = any ('{set_config, ts_stat, ts_rewrite, query_to_xml, query_to_xmlschema, query_to_xml_and_xmlschema,
           cursor_to_xml, cursor_to_xmlschema, table_to_xml, table_to_xmlschema, table_to_xml_and_xmlschema, schema_to_xml,
           schema_to_xmlschema, schema_to_xml_and_xmlschema, database_to_xml, database_to_xmlschema, database_to_xml_and_xmlschema}')
), writes as materialized (
  select ':funcid (' || pg_catalog.string_agg(p.oid::text, '|') || ') ' as pattern
    from pg_catalog.pg_proc as p
   where p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace
     and (p.proname = any ('{nextval, setval, setseed, lo_open, lo_creat, lo_create, lo_unlink, lowrite, lo_put, lo_truncate, lo_truncate64,
           lo_from_bytea, lo_import, pg_notify, pg_logical_emit_message, pg_cancel_backend, pg_terminate_backend, pg_reload_conf,
           pg_rotate_logfile, pg_switch_wal, pg_create_restore_point, pg_promote}')
          -- Locks of the session, slots that are consumed, figures that begin anew
          or p.proname ~ '^pg_(try_)?advisory_(un)?lock|^pg_logical_slot_get|^pg_stat_reset|^pg_(create|copy|drop|sync)_.*slot|slot_advance$'
          -- An extension's, wherever it was put
          or p.oid >= 16384)
), trees as (
  select 'pg_catalog.pg_rewrite'::pg_catalog.regclass as classid, r.oid as objid, r.ev_action::text as tree
    from pg_catalog.pg_rewrite as r
   where r.oid >= 16384
   union all
  select 'pg_catalog.pg_policy'::pg_catalog.regclass, p.oid, expression.tree::text
    from pg_catalog.pg_policy as p
   cross join lateral (values (p.polqual), (p.polwithcheck)) as expression (tree)
   union all
  select 'pg_catalog.pg_attrdef'::pg_catalog.regclass, e.oid, e.adbin::text from pg_catalog.pg_attrdef as e
   union all
  select 'pg_catalog.pg_constraint'::pg_catalog.regclass, k.oid, k.conbin::text
    from pg_catalog.pg_constraint as k
   where k.contype = 'c'
), dependents as materialized (
  select d.classid, d.objid, f.is_interpreted
    from foreign_functions as f
    join pg_catalog.pg_depend as d on d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass and d.refobjid = f.oid
), domains as (
  -- Domains whose checks or defaults run such a function, and domains over them.
  select t.oid, t.typarray
    from dependents as d
    left join pg_catalog.pg_constraint as k on d.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass and k.oid = d.objid
    join pg_catalog.pg_type as t
      on t.oid = case when d.classid = 'pg_catalog.pg_type'::pg_catalog.regclass then d.objid else k.contypid end
   where t.typtype = 'd'
   union
  select t.oid, t.typarray
    from domains as below
    join pg_catalog.pg_type as t on t.typbasetype = below.oid
), users as materialized (
  -- Rules, policies, defaults, constraints and indexes with such a function; what has such a domain, or an array of it.
  select d.classid, d.objid from dependents as d
   union all
  select d.classid, d.objid
    from domains as of
    join pg_catalog.pg_depend as d
      on d.refclassid = 'pg_catalog.pg_type'::pg_catalog.regclass and d.refobjid in (of.oid, of.typarray)
   union all
  -- A search for a plain text is much faster than the pattern: numbers of PostgreSQL's own functions are for ever.
  select t.classid, t.objid
    from trees as t
    join calls on t.tree ~ calls.pattern
   where pg_catalog.strpos(t.tree, ':funcid 2078 ') > 0
      or pg_catalog.strpos(t.tree, ':funcid 29') > 0
      or pg_catalog.strpos(t.tree, ':funcid 36') > 0
), edges as materialized (
  -- What reads what: views and policies. What a materialized view shows was read long ago.
  select d.refobjid as below, r.ev_class as above
    from pg_catalog.pg_rewrite as r
    join pg_catalog.pg_class as c on c.oid = r.ev_class and c.relkind = 'v'
    join pg_catalog.pg_depend as d
      on d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass and d.objid = r.oid
     and d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.refobjid <> r.ev_class
   where r.ev_type = '1' and r.oid >= 16384
   union
  select d.refobjid, p.polrelid
    from pg_catalog.pg_policy as p
    join pg_catalog.pg_depend as d
      on d.classid = 'pg_catalog.pg_policy'::pg_catalog.regclass and d.objid = p.oid
     and d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.refobjid <> p.polrelid
   union
  select i.inhrelid, i.inhparent from pg_catalog.pg_inherits as i
), read as (
  -- Views and tables with policies of that kind, foreign tables, and what reads these in its turn.
  select r.ev_class as oid
    from users as u
    join pg_catalog.pg_rewrite as r
      on u.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass and r.oid = u.objid and r.ev_type = '1'
    join pg_catalog.pg_class as c on c.oid = r.ev_class and c.relkind = 'v'
   union
  select p.polrelid
    from users as u
    join pg_catalog.pg_policy as p on u.classid = 'pg_catalog.pg_policy'::pg_catalog.regclass and p.oid = u.objid
   union
  select c.oid from pg_catalog.pg_class as c where c.relkind = 'f'
   union
  select e.above from read join edges as e on e.below = read.oid
), written as (
  -- Tables with triggers of somebody's, with defaults, checks or indexes of that kind, and those whose foreign keys change rows there.
  -- Of what is no plain table, other relations' triggers may run.
  select t.tgrelid as oid from pg_catalog.pg_trigger as t where not t.tgisinternal
   union
  select c.oid from pg_catalog.pg_class as c where c.relkind in ('p', 'v', 'f') or c.relhasrules or c.relhassubclass
   union
  select owner.oid
    from users as u
   cross join lateral (
           select e.adrelid as oid from pg_catalog.pg_attrdef as e
            where u.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass and e.oid = u.objid
            union all
           select k.conrelid from pg_catalog.pg_constraint as k
            where u.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass and k.oid = u.objid
            union all
           select coalesce(x.indrelid, c.oid)
             from pg_catalog.pg_class as c
             left join pg_catalog.pg_index as x on x.indexrelid = c.oid
            where u.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and c.oid = u.objid
         ) as owner
   union
  select k.confrelid
    from written as w
    join pg_catalog.pg_constraint as k
      on k.conrelid = w.oid and k.contype = 'f' and (k.confdeltype in ('c', 'n', 'd') or k.confupdtype in ('c', 'n', 'd'))
), seeing as (
  -- Views, policies, defaults and checks that call `current_setting`, views and policies that write numbers of sequences or large objects,
  -- and what reads or changes these in its turn.
  select coalesce(r.ev_class, p.polrelid, e.adrelid, k.conrelid) as oid
    from trees as t
    left join pg_catalog.pg_rewrite as r on t.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass and r.oid = t.objid
    left join pg_catalog.pg_policy as p on t.classid = 'pg_catalog.pg_policy'::pg_catalog.regclass and p.oid = t.objid
    left join pg_catalog.pg_attrdef as e on t.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass and e.oid = t.objid
    left join pg_catalog.pg_constraint as k on t.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass and k.oid = t.objid
   cross join writes
   where pg_catalog.strpos(t.tree, ':funcid 2077 ') > 0
      or pg_catalog.strpos(t.tree, ':funcid 3294 ') > 0
      or (t.classid in ('pg_catalog.pg_rewrite'::pg_catalog.regclass, 'pg_catalog.pg_policy'::pg_catalog.regclass)
          and t.tree ~ writes.pattern)
   union
  select e.above
    from seeing
    join (select below, above from edges
           union all
          select k.conrelid, k.confrelid
            from pg_catalog.pg_constraint as k
           where k.contype = 'f' and (k.confdeltype in ('c', 'n', 'd') or k.confupdtype in ('c', 'n', 'd'))) as e
      on e.below = seeing.oid
)
select r.oid, 'read' as what from read as r
 union all
select w.oid, 'written' from written as w
 union all
select l.oid, 'seeing' from seeing as l
 union all
select null, 'read'
 where exists (
         select
           from dependents as d
           left join pg_catalog.pg_cast as c on d.classid = 'pg_catalog.pg_cast'::pg_catalog.regclass and c.oid = d.objid
           left join pg_catalog.pg_type as source on source.oid = c.castsource
          where d.is_interpreted
            and (d.classid = 'pg_catalog.pg_operator'::pg_catalog.regclass
                 -- Of domains JSON takes what they are made of.
                 or (source.typtype <> 'd'
                     and c.casttarget in ('pg_catalog.json'::pg_catalog.regtype, 'pg_catalog.jsonb'::pg_catalog.regtype))))
 union all
select null, 'cast'
 where exists (
         select
           from pg_catalog.pg_cast as c
           join pg_catalog.pg_type as source on source.oid = c.castsource
           join pg_catalog.pg_type as target on target.oid = c.casttarget
          where c.oid >= 16384
            and source.typnamespace = 'pg_catalog'::pg_catalog.regnamespace
            and target.typnamespace = 'pg_catalog'::pg_catalog.regnamespace)
