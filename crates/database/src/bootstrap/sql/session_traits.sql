-- The functions that decide what the data API has to take back in a session behind each transaction
-- (`wire/session/reset.rs`): those that PostgreSQL may compute while it makes a plan, those that
-- may prepare statements, and those whose values PostgreSQL keeps outside of plans. Event triggers
-- keep the list in the transactions that change functions and expressions, so that a session that
-- has run such a function finds it there. Every role may read the list, and only a superuser may
-- write it.
create schema if not exists portico_session;
revoke all on schema portico_session from public;
grant usage on schema portico_session to public;

drop table if exists portico_session.folding, portico_session.preparing;
-- One row for each function and property. `bit`: 1 it may be computed while a plan is made, 2 it
-- may prepare statements, 4 what it returns is kept for a session. A property that is no longer
-- there stays in the list, since a transaction that used the function may still ask for it;
-- `gone_at` is the time of the change. The row with bit 8 is the time when the last row with bit 4
-- left the list: a session of a connection pooler that is older may still keep a value.
create table if not exists portico_session.noted (function oid, bit int, gone_at timestamptz, primary key (function, bit));
-- For databases without event triggers: a version of the expressions (below) among which none keeps
-- values, and the time when that was found. A session of a connection pooler that is younger keeps
-- none while the version is the same.
create table if not exists portico_session.valueless (version int8 not null, since timestamptz not null);
-- Functions of this program that were looked at: what they return depends on their arguments alone,
-- or they run no statement that prepares another. By the hash of their source, so that a replaced
-- one counts.
create table if not exists portico_session.reviewed (function text, source text, primary key (function, source));
revoke all on all tables in schema portico_session from public;
grant select on portico_session.noted, portico_session.valueless to public;

-- C and internal functions (12 and 13) are a superuser's, and say the truth about themselves.
-- Aggregates and window functions are never computed while a plan is made. Only dynamic SQL, a
-- function that runs a text, or a language that is not looked into, can prepare a statement.
create or replace view portico_session.traits as
  select p.oid as function,
         p.provolatile operator(pg_catalog.=) 'i' and p.prokind operator(pg_catalog.=) 'f' as folds,
         l.lanname not in ('sql', 'plpgsql') or coalesce(pg_catalog.pg_get_function_sqlbody(p.oid), p.prosrc) operator(pg_catalog.~*)
             '(execute|prepare|query_to_xml|crosstab|connectby|xpath_table|\mdo\M(?!\s+(nothing|update|instead|also)\M))' as prepares
    from pg_catalog.pg_proc as p
    join pg_catalog.pg_language as l on l.oid operator(pg_catalog.=) p.prolang
   where p.oid operator(pg_catalog.>=) '16384'::pg_catalog.oid
     and p.prolang not in (12, 13)
     and p.prokind in ('f', 'p')
     -- Temporary ones go with their schema, which is looked for by itself
     and p.pronamespace::pg_catalog.regnamespace::text operator(pg_catalog.!~) '^pg_temp'
     and not exists (
           select from portico_session.reviewed as r
            where r.function operator(pg_catalog.=) (p.pronamespace::pg_catalog.regnamespace::text operator(pg_catalog.||) '.' operator(pg_catalog.||) p.proname)
              -- Where another role has the part of this one, the source was written with its name
              and r.source operator(pg_catalog.=) pg_catalog.md5(pg_catalog.regexp_replace(p.prosrc, '\mpostgres\M', pg_catalog.concat('post', 'gres'), 'g')));

grant select on portico_session.traits to public;

-- A number that changes with everything that `find_kept` reads. Where no event trigger maintains
-- the list, the data API compares it with the number at which it has looked for such expressions. A
-- row that changes gets another `xmin`.
create or replace view portico_session.expressions (version) as
  select pg_catalog.hashtextextended(coalesce(sum(pg_catalog.hashtextextended(row_version, 0)), 0)::text, 0)
    from (select 'function ' || oid || ' ' || xmin::text from pg_catalog.pg_proc where oid >= '16384'::pg_catalog.oid and prolang not in (12, 13)
          union all
          select 'index ' || indexrelid || ' ' || xmin::text from pg_catalog.pg_index
           where indexrelid >= '16384'::pg_catalog.oid and (indexprs is not null or indpred is not null)
          union all
          select 'domain ' || oid || ' ' || xmin::text from pg_catalog.pg_constraint where contypid > '0'::pg_catalog.oid and oid >= '16384'::pg_catalog.oid
          union all
          select 'table ' || partrelid || ' ' || xmin::text from pg_catalog.pg_partitioned_table where partexprs is not null) as read (row_version);

grant select on portico_session.expressions to public;

-- Returns the functions that an expression calls without a column's value, from its node tree.
-- Nodes are taken away from the inside to the outside; `~` stands for what contains a column.
create or replace function portico_session.calls_without_column(tree text) returns oid[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  callees oid[] := '{}';
begin
  tree := regexp_replace(replace(tree, '~', ''), '\\.', '', 'g');
  tree := regexp_replace(tree, '\{(VAR|COERCETODOMAINVALUE)\M[^{}]*\}', '~', 'g');
  while tree ~ '\{[^{}]*\}' loop
    callees := callees || array(
      select call[1]::oid from regexp_matches(tree, '\{[A-Z]+ [^{}~]*:(?:funcid|opfuncid) (\d+)\M[^{}~]*\}', 'g') as call);
    tree := regexp_replace(tree, '\{[^{}]*~[^{}]*\}', '~', 'g');
    tree := regexp_replace(tree, '\{[^{}~]*\}', '', 'g');
  end loop;
  return callees;
end $$;

-- Finds in the body of a function in SQL, which PostgreSQL may inline, calls of a function in
-- `folding` that pass none of the caller's arguments on, in it or in the functions in SQL that it
-- calls. `callers`: those that were looked at. `names`: the names of `folding` in lower case.
create or replace function portico_session.body_calls_without_argument(callers oid[], folding oid[], names text[]) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  caller constant pg_proc := (select p from pg_proc as p where p.oid = callers[cardinality(callers)]);
  source constant text := lower(coalesce(pg_get_function_sqlbody(caller.oid), caller.prosrc));
  callee text;
  outer_source text;
  body text;
begin
  -- 14 is SQL
  if caller.prolang <> 14 then
    return false;
  -- An identifier may be written with escapes
  elsif position('u&"' in source) > 0 then
    return true;
  end if;
  for at in 1 .. cardinality(folding) loop
    continue when position(names[at] in source) = 0 or folding[at] = any (callers);
    if outer_source is null then
      outer_source := regexp_replace(replace(source, '~', ''), '\$[0-9]+', '~', 'g');
      outer_source := regexp_replace(outer_source, '''[^'']*''', '', 'g');
      for i in 1 .. coalesce(cardinality(caller.proargnames), 0) loop
        if caller.proargnames[i] ~ '^[[:alnum:]_]+$' then
          outer_source := regexp_replace(outer_source, '\m' || lower(caller.proargnames[i]) || '\M(?!\s*\()', '~', 'g');
        end if;
      end loop;
    end if;
    body := outer_source;
    callee := regexp_replace(names[at], '[^[:alnum:]_]', '.', 'g');
    while body ~ '\([^()]*\)' loop
      if body ~ (callee || '"?\s*\([^()~]*\)') then
        return true;
      end if;
      body := regexp_replace(body, '\([^()]*~[^()]*\)', '~', 'g');
      body := regexp_replace(body, '\([^()~]*\)', '', 'g');
    end loop;
    if portico_session.body_calls_without_argument(callers || folding[at], folding, names) then
      return true;
    end if;
  end loop;
  return false;
end $$;

-- The expressions whose parts PostgreSQL computes once and keeps for a session, outside of plans,
-- and the functions called there without a column: checks of domains, expressions and conditions of
-- indexes, keys of partitions. Of the indexes, domains and tables in `objects` (null: all).
create or replace function portico_session.find_kept(objects oid[]) returns table (holder text, function oid)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  folding oid[];
  names text[];
  constant_calls oid[];
  expression record;
begin
  for expression in
    select format('index %s', indexrelid::regclass) as holder, concat_ws(' ', indexprs::text, indpred::text) as tree
      from pg_index
     where (indexprs is not null or indpred is not null) and case when objects is null then indexrelid >= 16384 else indexrelid = any (objects) end
    union all
    select format('domain %s', contypid::regtype), conbin::text
      from pg_constraint
     where contypid <> 0 and conbin is not null and case when objects is null then oid >= 16384 else contypid = any (objects) end
    union all
    select format('table %s', partrelid::regclass), partexprs::text
      from pg_partitioned_table
     where partexprs is not null and (objects is null or partrelid = any (objects))
  loop
    continue when expression.tree !~ ':(funcid|opfuncid) \d{5}';
    if folding is null then
      select coalesce(array_agg(p.oid), '{}'), array_agg(lower(p.proname)) into folding, names
        from portico_session.traits as t join pg_proc as p on p.oid = t.function where t.folds;
    end if;
    exit when folding = '{}';
    constant_calls := portico_session.calls_without_column(expression.tree);
    return query
      select distinct expression.holder, call[1]::oid
        from regexp_matches(expression.tree, ':(?:funcid|opfuncid) (\d+)', 'g') as call
       where call[1]::oid = any (folding)
         and (call[1]::oid = any (constant_calls)
              or portico_session.body_calls_without_argument(array[call[1]::oid], folding, names));
  end loop;
end $$;

-- Returns the functions of PostgreSQL and its extensions that run any text, also one that prepares
-- statements, and that an expression of the objects calls (null: of all objects): of a view, a
-- policy, a default, a constraint, a trigger. In the source of a function their names are seen.
create or replace function portico_session.find_text_runners(changed oid[]) returns setof oid
language sql stable set search_path = pg_catalog, pg_temp as $$
  with expression (tree) as (
    select ev_action::text from pg_rewrite where case when changed is null then oid >= 16384 else ev_class = any (changed) or oid = any (changed) end
    union all
    select concat(polqual::text, polwithcheck::text) from pg_policy where changed is null or oid = any (changed)
    union all
    select adbin::text from pg_attrdef where changed is null or adrelid = any (changed)
    union all
    select conbin::text from pg_constraint
     where conbin is not null and case when changed is null then oid >= 16384 else conrelid = any (changed) or contypid = any (changed) end
    union all
    select tgqual::text from pg_trigger where tgqual is not null and (changed is null or oid = any (changed))
  )
  select p.oid from pg_proc as p
   where p.prolang in (12, 13) and p.proname = any ('{query_to_xml,crosstab,crosstab2,crosstab3,crosstab4,connectby,xpath_table}')
     and exists (select from expression where expression.tree like '%:funcid ' || p.oid || ' %')
$$;

-- Brings the list in agreement with the functions and other objects in `changed` (null: all), and
-- with the expressions that keep values.
create or replace function portico_session.note(changed oid[], is_drop boolean default false) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  kept oid[];
  -- A function of an expression has changed, or there may be fewer expressions
  looks_at_all boolean := changed is null or is_drop and exists (select from portico_session.noted where bit = 4 and gone_at is null);
begin
  if changed is null then
    update portico_session.noted set gone_at = clock_timestamp()
     where bit = 2 and gone_at is null and function not in (select t.function from portico_session.traits as t);
  end if;
  if changed is null or changed <> '{}' then
    insert into portico_session.noted select runner, 2 from portico_session.find_text_runners(changed) as runner
    on conflict (function, bit) do update set gone_at = null where noted.gone_at is not null;
    insert into portico_session.noted
    select t.function, bit from portico_session.traits as t, unnest(array[case when t.folds then 1 end, case when t.prepares then 2 end]) as bit
     where (changed is null or t.function = any (changed)) and bit is not null
    on conflict (function, bit) do update set gone_at = null where noted.gone_at is not null;
    update portico_session.noted as n set gone_at = clock_timestamp()
     where bit <> 4 and gone_at is null and n.function >= '16384' and (changed is null or n.function = any (changed))
       and not exists (select from portico_session.traits as t
                        where t.function = n.function and case when n.bit = 1 then t.folds else t.prepares end);
  end if;
  if not exists (select from portico_session.noted where bit <> 8) then
    return;
  end if;
  looks_at_all := looks_at_all or exists (select from portico_session.noted where bit = 1 and function = any (changed));
  kept := array(select distinct k.function from portico_session.find_kept(case when not looks_at_all then changed end) as k);
  insert into portico_session.noted select k, 4 from unnest(kept) as k
  on conflict (function, bit) do update set gone_at = null where noted.gone_at is not null;
  if looks_at_all then
    update portico_session.noted set gone_at = clock_timestamp() where bit = 4 and gone_at is null and function <> all (kept);
  end if;
  -- No transaction that used the function is under way, nor the statements right behind it
  with left_list as (
    delete from portico_session.noted
     where bit <> 8 and gone_at < clock_timestamp() - interval '1 minute'
       and not exists (select from pg_stat_activity where xact_start < gone_at + interval '1 minute' and pid <> pg_backend_pid())
    returning bit)
  insert into portico_session.noted select 0, 8, clock_timestamp() from left_list where bit = 4 limit 1
  on conflict (function, bit) do update set gone_at = excluded.gone_at;
end $$;

-- Brings `portico_session.valueless` in agreement with the expressions.
create or replace function portico_session.note_version() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  -- Before the search, so that a change meanwhile counts as another version
  found constant int8 := (select version from portico_session.expressions);
begin
  delete from portico_session.valueless where version <> found or exists (select from portico_session.find_kept(null));
  insert into portico_session.valueless
  select found, clock_timestamp()
   where not exists (select from portico_session.valueless) and not exists (select from portico_session.find_kept(null));
end $$;

create or replace function portico_session.watch_functions() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if tg_event = 'sql_drop' then
    perform portico_session.note(array(select objid from pg_event_trigger_dropped_objects()), true);
  elsif tg_tag !~ '^(GRANT|REVOKE|COMMENT|SECURITY LABEL|ALTER DEFAULT PRIVILEGES)' then
    perform portico_session.note(array(select distinct objid from pg_event_trigger_ddl_commands()));
  end if;
end $$;
revoke all on function portico_session.note(oid[], boolean), portico_session.note_version(), portico_session.find_text_runners(oid[]), portico_session.watch_functions() from public;

delete from portico_session.reviewed;
insert into portico_session.reviewed values
  ('cron._check_schedule', '057e17651d33d0baad5ee3ef776b4069'),
  ('extensions.algorithm_sign', 'a13c19559cd77fb635f0100aee8587cd'),
  ('extensions.sign', '1360c2ca77b3b4ccc0082f99da07729c'),
  ('extensions.try_cast_double', '586cbd355c5bd2d314ff031927a04f73'),
  ('extensions.url_decode', '6a56ba1bd4f71b56c5e4ec5a96e7d9e9'),
  ('extensions.url_encode', '2eea2a5b5f14814f91599b9919aa5b54'),
  ('extensions.verify', '241e470e84d209ffe1de20d093733431'),
  ('graphql.comment_directive', '0fbb706f8d4a0967ace4a78d185ed550'),
  ('net._encode_url_with_params', 'eed6fa1a23c33418f4f0067d34be2f6c'),
  ('net._urlencode_string', 'd8927082b5bf182d14dc6f600d62eb57'),
  ('portico.confine', '3019caaaa4fa0a192764254e4ba58055'),
  ('portico.grant_pg_graphql_access', '2f2c6dc47fac39078ab8f54dfeafe07a'),
  ('portico.grant_pg_net_access', '5ed920c9127272ea5aea1e153297b2db'),
  ('portico.rls_auto_enable', '207689c5ee53f61cd57cd922afac7ae5'),
  ('portico.run', '1989aa2d461a68b0e0b0769ff800bbdd'),
  ('portico.set_graphql_placeholder', 'd90663752f9a59497c4556af37ed5fe3'),
  ('public.rls_auto_enable', '325053e28054ec4f19e9900af2677e20'),
  ('realtime.apply_rls', 'e69ba986070429bd70eed01499c6bbca'),
  ('realtime.build_prepared_statement_sql', 'fd68c67ef65b7230fc140739bfdbd1cf'),
  ('realtime.cast', '20e7b266d26d13695c0d7ffb6e1b620b'),
  ('realtime.check_equality_op', '3412e035a3c7925d2146d5778c52f447'),
  ('realtime.check_equality_op', 'eed67d556f5d1ab05ebe7725e5c22f6b'),
  ('realtime.quote_wal2json', '327cb2b5faac5106b44c40455749c0ca'),
  ('realtime.to_regrole', '5f48a9ebcc8c067a55dafa2685d46b03'),
  ('realtime.wal2json_escape_identifier', '332642f002ef9056cecc7e2a04347e8c'),
  ('storage.extension', '3f2c94f5f5b4cb86b8acca24e029d7e1'),
  ('storage.filename', 'f15eac78cd8c0ab0d35d28423d7d3837'),
  ('storage.foldername', '7e2d46a79633ac75f02d1ea9926eeddb'),
  ('storage.get_common_prefix', 'e62439ccbf6e901883cc942984026b69'),
  ('storage.search', 'd5e09445882b47fe047f26d95b16fbbc'),
  ('storage.search_by_timestamp', '7bd7e711bc56de7f2929820596b7c230');
insert into portico_session.reviewed
select distinct 'portico_session.' || proname, md5(prosrc) from pg_proc where pronamespace = 'portico_session'::regnamespace;

select portico_session.note(null);
select portico_session.note_version();

do $$
begin
  if not exists (select from pg_catalog.pg_event_trigger where evtname = 'portico_functions_changed') then
    perform pg_temp.attempt('event trigger portico_functions_changed',
      'create event trigger portico_functions_changed on ddl_command_end execute function portico_session.watch_functions()', '');
  end if;
  if not exists (select from pg_catalog.pg_event_trigger where evtname = 'portico_functions_dropped') then
    perform pg_temp.attempt('event trigger portico_functions_dropped',
      'create event trigger portico_functions_dropped on sql_drop execute function portico_session.watch_functions()', '');
  end if;
  if pg_temp.is_superuser() then
    -- Also where a replica or a restore turns the others off
    alter event trigger portico_functions_changed enable always;
    alter event trigger portico_functions_dropped enable always;
  end if;
end $$;
