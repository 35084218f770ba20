-- Schemas, their owners, who may use them, and what objects made later are granted to whom.
do $$
begin
  if (select datdba from pg_database where datname = current_database()) <> 'postgres'::regrole then
    perform pg_temp.attempt('owner of the database', format('alter database %I owner to postgres', current_database()));
  end if;
  execute format('grant create, connect, temporary on database %I to supabase_storage_admin, supabase_auth_admin', current_database());
  execute format('grant all on database %I to dashboard_user, postgres, supabase_admin', current_database());
end $$;

select pg_temp.ensure_schema('auth', 'supabase_admin'),
       pg_temp.ensure_schema('storage', 'supabase_admin'),
       pg_temp.ensure_schema('realtime', 'supabase_admin'),
       pg_temp.ensure_schema('extensions', 'postgres'),
       pg_temp.ensure_schema('graphql_public', 'supabase_admin'),
       pg_temp.ensure_schema('graphql', 'supabase_admin'),
       pg_temp.ensure_schema('vault', 'supabase_admin'),
       pg_temp.ensure_schema('supabase_functions', 'supabase_admin'),
       pg_temp.ensure_schema('supabase_migrations', 'postgres'),
       pg_temp.ensure_schema('pgbouncer', 'pgbouncer'),
       pg_temp.ensure_schema('_realtime', 'postgres');

-- Until 14 everybody could create in public, and postgres did not own it
do $$
begin
  if current_setting('server_version_num')::int < 150000 then
    revoke create on schema public from public;
    grant create on schema public to postgres;
  end if;
  if (select nspowner from pg_namespace where nspname = 'public') <> 'pg_database_owner'::regrole then
    perform pg_temp.attempt('owner of schema public', 'alter schema public owner to pg_database_owner');
  end if;
end $$;
grant usage on schema public to postgres, anon, authenticated, service_role;

select pg_temp.act_as('supabase_admin');
grant usage on schema auth to anon, authenticated, service_role, postgres;
grant all on schema auth to supabase_auth_admin, dashboard_user;
grant usage on schema storage to anon, authenticated, service_role;
grant usage on schema storage to postgres with grant option;
grant all on schema storage to supabase_storage_admin with grant option;
grant all on schema storage to dashboard_user;
grant usage on schema realtime to anon, authenticated, service_role;
grant usage on schema realtime to postgres with grant option;
grant all on schema realtime to supabase_realtime_admin with grant option;
grant usage on schema graphql_public, graphql to anon, authenticated, service_role, postgres;
grant usage on schema vault to postgres with grant option;
grant usage on schema vault to service_role;
grant usage on schema supabase_functions to postgres, anon, authenticated, service_role;
grant all on schema supabase_functions to supabase_functions_admin;

alter default privileges in schema public grant all on tables to postgres, anon, authenticated, service_role;
alter default privileges in schema public grant all on sequences to postgres, anon, authenticated, service_role;
alter default privileges in schema public grant all on functions to postgres, anon, authenticated, service_role;
alter default privileges in schema graphql_public grant all on tables to postgres, anon, authenticated, service_role;
alter default privileges in schema graphql_public grant all on sequences to postgres, anon, authenticated, service_role;
alter default privileges in schema graphql_public grant all on functions to postgres, anon, authenticated, service_role;
alter default privileges in schema extensions grant all on tables to postgres with grant option;
alter default privileges in schema extensions grant all on sequences to postgres with grant option;
alter default privileges in schema extensions grant all on functions to postgres with grant option;
alter default privileges in schema realtime grant all on tables to postgres, dashboard_user;
alter default privileges in schema realtime grant all on sequences to postgres, dashboard_user;
alter default privileges in schema realtime grant all on functions to postgres, dashboard_user;
alter default privileges in schema supabase_functions grant all on tables to postgres, anon, authenticated, service_role;
alter default privileges in schema supabase_functions grant all on sequences to postgres, anon, authenticated, service_role;
alter default privileges in schema supabase_functions grant all on functions to postgres, anon, authenticated, service_role;

set role supabase_auth_admin;
alter default privileges in schema auth grant all on tables to postgres, dashboard_user;
alter default privileges in schema auth grant all on sequences to postgres, dashboard_user;
alter default privileges in schema auth grant all on functions to postgres, dashboard_user;

set role supabase_storage_admin;
alter default privileges in schema storage grant all on tables to postgres, anon, authenticated, service_role;
alter default privileges in schema storage grant all on sequences to postgres, anon, authenticated, service_role;
alter default privileges in schema storage grant all on functions to postgres, anon, authenticated, service_role;

set role postgres;
grant usage on schema extensions to anon, authenticated, service_role;
grant all on schema extensions to dashboard_user;
reset role;

-- Before anything is replaced or added there, since only an owner can
select pg_temp.adopt('auth', 'supabase_auth_admin'),
       pg_temp.adopt('storage', 'supabase_storage_admin'),
       pg_temp.adopt('realtime', 'supabase_realtime_admin', '{schema_migrations}')
 where pg_temp.is_superuser();
