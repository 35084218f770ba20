-- The functions that decide what the data API has to take back in a session behind each transaction
-- (`wire/session.rs`): those that PostgreSQL may compute while it makes a plan, and those that may prepare
-- statements. Event triggers keep the lists in the transactions that change functions, so that a session that
-- has run such a function finds it there. Everybody may read the lists, and only a superuser may write them.
create schema if not exists portico_session;
revoke all on schema portico_session from public;
grant usage on schema portico_session to public;

create table if not exists portico_session.folding (function oid primary key);
create table if not exists portico_session.preparing (function oid primary key);
-- Functions of this program that were looked at: what they return depends on their arguments alone, or they run
-- no statement that prepares another. By the hash of their source, so that a replaced one counts.
create table if not exists portico_session.reviewed (function text, source text, primary key (function, source));
revoke all on all tables in schema portico_session from public;
grant select on portico_session.folding, portico_session.preparing to public;

-- C and internal functions (12 and 13) are a superuser's, and say the truth about themselves. Aggregates and
-- window functions are never computed while a plan is made. Only dynamic SQL, or a language that is not looked
-- into, can prepare a statement.
create or replace view portico_session.traits as
  select p.oid as function,
         p.provolatile operator(pg_catalog.=) 'i' and p.prokind operator(pg_catalog.=) 'f' as folds,
         l.lanname not in ('sql', 'plpgsql') or p.prosrc operator(pg_catalog.~*) '(execute|prepare)' as prepares
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
              and r.source operator(pg_catalog.=) pg_catalog.md5(p.prosrc));

grant select on portico_session.traits to public;

create or replace function portico_session.watch_functions() returns event_trigger
language plpgsql security definer set search_path = '' as $$
declare changed oid;
begin
  if tg_event = 'sql_drop' then
    delete from portico_session.folding
     where function in (select objid from pg_catalog.pg_event_trigger_dropped_objects() where classid = 1255);
    delete from portico_session.preparing
     where function in (select objid from pg_catalog.pg_event_trigger_dropped_objects() where classid = 1255);
    return;
  end if;
  -- 1255 is pg_proc
  for changed in select distinct objid from pg_catalog.pg_event_trigger_ddl_commands() where classid = 1255 loop
    delete from portico_session.folding where function = changed;
    delete from portico_session.preparing where function = changed;
    insert into portico_session.folding select function from portico_session.traits where function = changed and folds;
    insert into portico_session.preparing select function from portico_session.traits where function = changed and prepares;
  end loop;
end $$;
revoke all on function portico_session.watch_functions() from public;

-- They are created or replaced by the steps before this one, or belong to an extension of a superuser's
delete from portico_session.reviewed;
insert into portico_session.reviewed
select distinct n.nspname || '.' || p.proname, md5(p.prosrc)
  from pg_proc as p
  join pg_namespace as n on n.oid = p.pronamespace
 where n.nspname || '.' || p.proname in (
         'storage.foldername', 'storage.filename', 'storage.extension', 'storage.get_common_prefix',
         'storage.search', 'storage.search_by_timestamp', 'realtime.to_regrole', 'realtime.cast',
         'realtime.check_equality_op', 'realtime.build_prepared_statement_sql', 'realtime.apply_rls',
         'realtime.wal2json_escape_identifier', 'realtime.quote_wal2json',
         'extensions.grant_pg_net_access', 'extensions.grant_pg_graphql_access', 'extensions.set_graphql_placeholder',
         'portico_session.watch_functions', 'net._urlencode_string', 'net._encode_url_with_params')
   and pg_temp.is_superuser();
-- A project may have made this one itself: the hash of ours
insert into portico_session.reviewed values ('public.rls_auto_enable', '325053e28054ec4f19e9900af2677e20');

delete from portico_session.folding;
delete from portico_session.preparing;
insert into portico_session.folding select function from portico_session.traits where folds;
insert into portico_session.preparing select function from portico_session.traits where prepares;

do $$
begin
  if not exists (select from pg_catalog.pg_event_trigger where evtname = 'portico_functions_changed') then
    perform pg_temp.attempt('event trigger portico_functions_changed',
      'create event trigger portico_functions_changed on ddl_command_end execute function portico_session.watch_functions()');
  end if;
  if not exists (select from pg_catalog.pg_event_trigger where evtname = 'portico_functions_dropped') then
    perform pg_temp.attempt('event trigger portico_functions_dropped',
      'create event trigger portico_functions_dropped on sql_drop execute function portico_session.watch_functions()');
  end if;
  if pg_temp.is_superuser() then
    -- Also where a replica or a restore turns the others off
    alter event trigger portico_functions_changed enable always;
    alter event trigger portico_functions_dropped enable always;
  end if;
end $$;
