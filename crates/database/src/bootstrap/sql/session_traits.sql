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
         l.lanname not in ('sql', 'plpgsql') or p.prosrc operator(pg_catalog.~*) '(execute|prepare|\mdo\s*(language\M|\$|[eu&]*''))' as prepares
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
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
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

delete from portico_session.reviewed;
insert into portico_session.reviewed values
  ('cron._check_schedule', '81d29e557908ccbba6af9b8ee1248650'),
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
  ('portico.run', '9ac7fe15e81170914f48eccdb3d6bea8'),
  ('portico.set_graphql_placeholder', 'd90663752f9a59497c4556af37ed5fe3'),
  ('public.rls_auto_enable', '325053e28054ec4f19e9900af2677e20'),
  ('realtime.apply_rls', '702d58d8febe8f7914f539e47ceb1701'),
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
  ('storage.search', '7eb8289cc80ba09314c0688b12e8b735'),
  ('storage.search_by_timestamp', '7bd7e711bc56de7f2929820596b7c230');
insert into portico_session.reviewed
select 'portico_session.watch_functions', md5(prosrc) from pg_proc where oid = 'portico_session.watch_functions()'::regprocedure;

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
