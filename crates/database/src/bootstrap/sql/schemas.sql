-- Schemas, their owners, who may use them, and what objects made later are granted to whom.
do $$
begin
  if (select datdba from pg_database where datname = current_database()) <> 'postgres'::regrole then
    perform pg_temp.attempt('owner of the database', format('alter database %I owner to postgres', current_database()),
      'migrations may create nothing in schema public');
  end if;
  execute format('grant create, connect, temporary on database %I to supabase_storage_admin, supabase_auth_admin', current_database());
  execute format('grant all on database %I to dashboard_user, postgres, supabase_admin', current_database());
end $$;

-- The schema of Portico's own objects. Code that runs with a superuser's rights is here, where no
-- other role can create, rename or drop.
create schema if not exists portico;
revoke all on schema portico from public;
grant usage on schema portico to postgres;

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

-- Until 14 every role could create in public, and postgres did not own it
do $$
begin
  if current_setting('server_version_num')::int < 150000 then
    revoke create on schema public from public;
    grant create on schema public to postgres;
  end if;
  if (select nspowner from pg_namespace where nspname = 'public') <> 'pg_database_owner'::regrole then
    perform pg_temp.attempt('owner of schema public', 'alter schema public owner to pg_database_owner', '');
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

-- Functions of a superuser, as extensions create them, are not granted by default: some are for
-- superusers only, and their scripts revoke the right from PUBLIC alone. Neither are triggers on a
-- superuser's table and foreign keys to it: both run a project's functions with the rights of the
-- table's owner.
do $$
declare
  entry record;
  rights text;
begin
  for entry in
    select * from (values
      ('public', 'postgres, anon, authenticated, service_role', ''),
      ('graphql_public', 'postgres, anon, authenticated, service_role', ''),
      ('extensions', 'postgres', 'with grant option'),
      ('realtime', 'postgres, dashboard_user', ''),
      ('supabase_functions', 'postgres, anon, authenticated, service_role', '')
    ) as entries(schema, roles, options)
  loop
    execute format('alter default privileges in schema %I revoke all on functions from %s', entry.schema, entry.roles);
    execute format('alter default privileges in schema %I revoke all on tables from %s', entry.schema, entry.roles);
    execute format('alter default privileges in schema %I grant select, insert, update, delete, truncate on tables to %s %s', entry.schema, entry.roles, entry.options);
    execute format('alter default privileges in schema %I grant all on sequences to %s %s', entry.schema, entry.roles, entry.options);
  end loop;
end $$;

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

-- Revokes the rights that earlier versions granted in that way.
do $$
declare item record;
begin
  if not pg_temp.is_superuser() then
    return;
  end if;
  for item in
    select p.oid::regprocedure as name, grantee.rolname as grantee
      from pg_proc as p
      join pg_roles as owner on owner.oid = p.proowner and owner.rolsuper
      join pg_depend as d on d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e'
      join pg_extension as e on e.oid = d.refobjid and e.extname <> all ('{supabase_vault,pg_net,pg_cron,pg_graphql,pgjwt}')
     cross join lateral aclexplode(p.proacl) as a
      join pg_roles as grantee on grantee.oid = a.grantee and grantee.rolname = any ('{postgres,anon,authenticated,service_role,dashboard_user}')
     where not exists (select from aclexplode(p.proacl) as open where open.grantee = 0)
       and p.proname <> 'pg_stat_statements_reset'
  loop
    execute format('revoke all on function %s from %I cascade', item.name, item.grantee);
  end loop;
  for item in
    select c.oid::regclass as name, grantee.rolname as grantee
      from pg_class as c
      join pg_roles as owner on owner.oid = c.relowner and owner.rolsuper
      join pg_namespace as n on n.oid = c.relnamespace and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
     cross join lateral aclexplode(c.relacl) as a
      left join pg_roles as grantee on grantee.oid = a.grantee
     where a.privilege_type in ('TRIGGER', 'REFERENCES') and a.grantee <> c.relowner and not coalesce(grantee.rolsuper, false)
  loop
    execute format('revoke trigger, references on %s from %s cascade', item.name, coalesce(quote_ident(item.grantee), 'public'));
  end loop;
end $$;
