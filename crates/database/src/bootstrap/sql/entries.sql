-- Functions in schemas of the platform: the entry of GraphQL, the look-up of the pooler.
select pg_temp.act_as('supabase_admin');

do $outer$
begin
  if to_regprocedure('graphql_public.graphql(text,text,jsonb,jsonb)') is null then
    create function graphql_public.graphql("operationName" text default null, query text default null,
                                           variables jsonb default null, extensions jsonb default null)
    returns jsonb language plpgsql as $$
    begin
      return jsonb_build_object('errors', jsonb_build_array(jsonb_build_object('message', 'pg_graphql extension is not enabled.')));
    end $$;
  end if;
end $outer$;
grant execute on function graphql_public.graphql(text, text, jsonb, jsonb) to postgres, anon, authenticated, service_role;

reset role;

select pg_temp.act_as('pgbouncer');
create or replace function pgbouncer.get_auth(p_usename text) returns table (username text, password text)
language plpgsql security definer set search_path = '' as $$
begin
  return query
    select rolname::text, case when rolvaliduntil < now() then null else rolpassword::text end
      from pg_catalog.pg_authid
     where rolname = $1 and rolcanlogin;
end $$;
revoke all on function pgbouncer.get_auth(text) from public;
grant execute on function pgbouncer.get_auth(text) to pgbouncer, postgres;
reset role;

-- A function of schema realtime keeps its lines out of the log
do $$
begin
  if current_setting('server_version_num')::int >= 150000 and not has_parameter_privilege('supabase_realtime_admin', 'log_min_messages', 'set') then
    perform pg_temp.attempt('log_min_messages by supabase_realtime_admin', 'grant set on parameter log_min_messages to supabase_realtime_admin', '');
  end if;
end $$;
