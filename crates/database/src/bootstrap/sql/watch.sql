-- Event triggers: the API learns of new tables at once, extensions come with their grants. They are
-- the last step, so that the bootstrap's own statements do not set them off.
--
-- An event trigger runs with the rights of the role that sets it off, and the script of an
-- extension that postgres creates runs as a superuser. So the functions lie in our own schema and
-- not in `extensions`, which postgres owns, and name nothing outside of the catalog.

create or replace function portico.pgrst_ddl_watch() returns event_trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare command record;
begin
  for command in select * from pg_event_trigger_ddl_commands() loop
    if command.command_tag in (
         'CREATE SCHEMA', 'ALTER SCHEMA', 'CREATE TABLE', 'CREATE TABLE AS', 'SELECT INTO', 'ALTER TABLE',
         'CREATE FOREIGN TABLE', 'ALTER FOREIGN TABLE', 'CREATE VIEW', 'ALTER VIEW', 'CREATE MATERIALIZED VIEW',
         'ALTER MATERIALIZED VIEW', 'CREATE FUNCTION', 'ALTER FUNCTION', 'CREATE TRIGGER', 'CREATE TYPE', 'ALTER TYPE',
         'CREATE RULE', 'COMMENT',
         -- Objects by which a read may run a function: the API then resets the session.
         'CREATE POLICY', 'ALTER POLICY', 'CREATE DOMAIN', 'ALTER DOMAIN', 'CREATE CAST', 'CREATE OPERATOR')
       and command.schema_name is distinct from 'pg_temp'
       and coalesce(
         case when command.object_type in ('trigger', 'rule', 'policy') then
           (select c.relnamespace::regnamespace::text
              from (select tgrelid as relid from pg_catalog.pg_trigger where oid = command.objid and command.object_type = 'trigger'
                    union all
                    select ev_class from pg_catalog.pg_rewrite where oid = command.objid and command.object_type = 'rule'
                    union all
                    select polrelid from pg_catalog.pg_policy where oid = command.objid and command.object_type = 'policy') as o
              join pg_catalog.pg_class as c on c.oid = o.relid)
         end, command.schema_name, '') not in ('auth', 'realtime', '_realtime', 'storage')
    then
      notify pgrst, 'reload schema';
    end if;
  end loop;
end $$;

create or replace function portico.pgrst_drop_watch() returns event_trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare dropped record;
begin
  for dropped in select * from pg_event_trigger_dropped_objects() loop
    if dropped.object_type in ('schema', 'table', 'foreign table', 'view', 'materialized view', 'function', 'trigger', 'type', 'rule')
       and not dropped.is_temporary
    then
      notify pgrst, 'reload schema';
    end if;
  end loop;
end $$;

-- As their owner: a trusted extension is created by a role that owns nothing in it
create or replace function portico.grant_pg_cron_access() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if exists (select from pg_event_trigger_ddl_commands() as command join pg_catalog.pg_extension as extension on command.objid = extension.oid
              where extension.extname = 'pg_cron') then
    grant usage on schema cron to postgres with grant option;
    grant all on all functions in schema cron to postgres with grant option;
    grant all on all sequences in schema cron to postgres with grant option;
    grant select, insert, update, delete, truncate on table cron.job_run_details to postgres with grant option;
    grant select on table cron.job to postgres with grant option;
  end if;
end $$;
comment on function portico.grant_pg_cron_access() is 'Grants access to pg_cron';

create or replace function portico.grant_pg_net_access() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if exists (select from pg_event_trigger_ddl_commands() as command join pg_catalog.pg_extension as extension on command.objid = extension.oid
              where extension.extname = 'pg_net') then
    grant usage on schema net to supabase_functions_admin, postgres, anon, authenticated, service_role;
    grant execute on all functions in schema net to supabase_functions_admin, postgres, anon, authenticated, service_role;
  end if;
end $$;
comment on function portico.grant_pg_net_access() is 'Grants access to pg_net';

create or replace function portico.grant_pg_graphql_access() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $func$
begin
  if not exists (select from pg_event_trigger_ddl_commands() as command join pg_catalog.pg_extension as extension on command.objid = extension.oid
                  where extension.extname = 'pg_graphql') then
    return;
  end if;
  create or replace function graphql_public.graphql("operationName" text default null, query text default null,
                                                    variables jsonb default null, extensions jsonb default null)
  returns jsonb language sql as $$
    select graphql.resolve(query := query, variables := coalesce(variables, '{}'), "operationName" := "operationName", extensions := extensions);
  $$;
  grant usage on schema graphql to postgres, anon, authenticated, service_role;
  grant execute on all functions in schema graphql to postgres, anon, authenticated, service_role;
  grant execute on function graphql_public.graphql(text, text, jsonb, jsonb) to postgres, anon, authenticated, service_role;
end $func$;
comment on function portico.grant_pg_graphql_access() is 'Grants access to pg_graphql';

create or replace function portico.set_graphql_placeholder() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $func$
begin
  if not exists (select from pg_event_trigger_dropped_objects() as dropped
                  where dropped.object_type = 'extension' and dropped.object_name = 'pg_graphql') then
    return;
  end if;
  create or replace function graphql_public.graphql("operationName" text default null, query text default null,
                                                    variables jsonb default null, extensions jsonb default null)
  returns jsonb language plpgsql as $$
  begin
    return jsonb_build_object('errors', jsonb_build_array(jsonb_build_object('message', 'pg_graphql extension is not enabled.')));
  end $$;
  grant execute on function graphql_public.graphql(text, text, jsonb, jsonb) to postgres, anon, authenticated, service_role;
end $func$;
comment on function portico.set_graphql_placeholder() is 'Reintroduces placeholder function for graphql_public.graphql';

-- As public.rls_auto_enable, which postgres owns and may replace
create or replace function portico.rls_auto_enable() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare command record;
begin
  for command in
    select * from pg_event_trigger_ddl_commands()
     where command_tag in ('CREATE TABLE', 'CREATE TABLE AS', 'SELECT INTO')
       and object_type in ('table', 'partitioned table') and schema_name = 'public'
  loop
    begin
      execute format('alter table %s enable row level security', command.object_identity);
    exception when others then
      raise log 'rls_auto_enable: % on %', sqlerrm, command.object_identity;
    end;
  end loop;
end $$;

do $$
declare
  watch record;
  wanted regprocedure;
  present oid;
begin
  for watch in
    select * from (values
      ('pgrst_ddl_watch', 'on ddl_command_end', 'pgrst_ddl_watch'),
      ('pgrst_drop_watch', 'on sql_drop', 'pgrst_drop_watch'),
      ('issue_pg_cron_access', 'on ddl_command_end when tag in (''CREATE EXTENSION'')', 'grant_pg_cron_access'),
      ('issue_pg_net_access', 'on ddl_command_end when tag in (''CREATE EXTENSION'')', 'grant_pg_net_access'),
      ('issue_pg_graphql_access', 'on ddl_command_end when tag in (''CREATE EXTENSION'')', 'grant_pg_graphql_access'),
      ('issue_graphql_placeholder', 'on sql_drop when tag in (''DROP EXTENSION'')', 'set_graphql_placeholder')
    ) as watches(name, moment, routine)
  loop
    wanted := format('portico.%I()', watch.routine)::regprocedure;
    present := (select evtfoid from pg_event_trigger where evtname = watch.name);
    if present = wanted then
      continue;
    end if;
    -- One that calls a function elsewhere is the hosted service's or an older version's
    if present is not null and not pg_temp.attempt(format('event trigger %s', watch.name), format('drop event trigger %I', watch.name), '') then
      continue;
    end if;
    perform pg_temp.attempt(format('event trigger %s', watch.name),
      format('create event trigger %I %s execute function %s', watch.name, watch.moment, wanted), '');
    if pg_temp.is_superuser() and (select rolsuper from pg_roles where rolname = 'supabase_admin') then
      execute format('alter event trigger %I owner to supabase_admin', watch.name);
    end if;
  end loop;
end $$;

-- Event triggers whose functions a role of the project owns, which an older version allowed
do $$
declare trigger record;
begin
  if not pg_temp.is_superuser() or (select rolsuper from pg_roles where rolname = 'postgres') then
    return;
  end if;
  for trigger in
    select evtname as name, evtfoid as routine, evtevent, evttags
      from pg_event_trigger join pg_proc as p on p.oid = evtfoid join pg_roles as owner on owner.oid = p.proowner
     where not owner.rolsuper and owner.rolname <> 'portico_events' and pg_has_role('postgres', owner.oid, 'member')
  loop
    if trigger.routine = to_regprocedure('public.rls_auto_enable()') then
      execute format('drop event trigger %I', trigger.name);
      execute format('create event trigger %I on %s %s execute function portico.rls_auto_enable()', trigger.name, trigger.evtevent,
        (select 'when tag in (' || string_agg(quote_literal(tag), ', ') || ')' from unnest(trigger.evttags) as tag));
    elsif current_setting('server_version_num')::int >= 160000 then
      perform portico.confine(trigger.routine);
    else
      insert into portico_limitation values (format('event trigger %s', trigger.name),
        'before PostgreSQL 16 only a superuser can own one', 'its function runs with the rights of a superuser who sets it off') on conflict do nothing;
    end if;
  end loop;
end $$;

revoke all on all functions in schema portico from public;
do $$
begin
  if to_regprocedure('portico.run(text)') is not null then
    grant execute on function portico.run(text) to postgres;
  end if;
end $$;

-- Used by the settings step. Never taken away: a project may have made this event trigger itself.
create or replace function pg_temp.secure_new_tables(wanted boolean) returns void language plpgsql as $$
begin
  if wanted and not exists (select from pg_event_trigger where evtname = 'ensure_rls') then
    perform pg_temp.attempt('event trigger ensure_rls',
      'create event trigger ensure_rls on ddl_command_end when tag in (''CREATE TABLE'', ''CREATE TABLE AS'', ''SELECT INTO'')
       execute function portico.rls_auto_enable()', 'new tables in public have no row-level security until a migration enables it');
  end if;
end $$;
