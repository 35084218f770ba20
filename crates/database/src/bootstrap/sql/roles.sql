-- Before 16 a role with CREATEROLE can grant every role that is no superuser, also those that run
-- programs and read files. Marked as superusers, those three can only be granted by one. They
-- cannot log in, and have no members.
do $$
declare
  closed constant text[] := '{pg_execute_server_program,pg_read_server_files,pg_write_server_files}';
  granted record;
begin
  if current_setting('server_version_num')::int >= 160000 then
    return;
  end if;
  if not pg_temp.is_superuser() then
    return;
  end if;
  for granted in
    select g.rolname as name, m.rolname as member
      from pg_auth_members as a join pg_roles as g on g.oid = a.roleid join pg_roles as m on m.oid = a.member
     -- On the embedded cluster every member was granted by the project
     where g.rolname = any (closed) and (pg_temp.has_key_file() or m.rolname ~ '^supabase_' or m.rolname = any ('{postgres,dashboard_user,authenticator,anon,authenticated,service_role,pgbouncer}'))
  loop
    execute format('revoke %I from %I cascade', granted.name, granted.member);
  end loop;
  if exists (select from pg_auth_members as a join pg_roles as g on g.oid = a.roleid where g.rolname = any (closed)) then
    insert into portico_limitation values ('the fence around roles with CREATEROLE', 'a role is a member of pg_execute_server_program, pg_read_server_files or pg_write_server_files',
      'roles with CREATEROLE can grant themselves these roles') on conflict do nothing;
    return;
  end if;
  update pg_authid set rolsuper = true where rolname = any (closed) and not rolsuper;
end $$;

-- The roles that policies, grants, dumps and our own services name. An existing role is left as it
-- is.
select pg_temp.ensure_role('supabase_admin', 'login createrole createdb', 'superuser replication bypassrls',
         '{"search_path = \"$user\", public, auth, extensions","log_statement = none"}'),
       pg_temp.ensure_role('anon', 'nologin inherit', '', '{"statement_timeout = ''3s''"}'),
       pg_temp.ensure_role('authenticated', 'nologin inherit', '', '{"statement_timeout = ''8s''"}'),
       pg_temp.ensure_role('service_role', 'nologin inherit', 'bypassrls', '{}'),
       -- The hosted service preloads two libraries for this role; named where they are missing,
       -- every login would fail
       pg_temp.ensure_role('authenticator', 'login noinherit', '', '{"statement_timeout = ''8s''","lock_timeout = ''8s''"}'),
       -- The backslash is an old slip of the hosted service; tools compare it
       pg_temp.ensure_role('postgres', 'login createrole createdb', 'replication bypassrls',
         '{"search_path = \"\\$user\", public, extensions"}'),
       pg_temp.ensure_role('supabase_auth_admin', 'login noinherit createrole', '',
         '{"search_path = auth","idle_in_transaction_session_timeout = 60000","log_statement = none"}'),
       pg_temp.ensure_role('supabase_storage_admin', 'login noinherit createrole', '',
         '{"search_path = storage","log_statement = none"}'),
       pg_temp.ensure_role('supabase_realtime_admin', 'nologin noinherit', '', '{"search_path = public, extensions, realtime"}'),
       pg_temp.ensure_role('supabase_functions_admin', 'login noinherit createrole', '', '{"search_path = supabase_functions"}'),
       pg_temp.ensure_role('dashboard_user', 'nologin createrole createdb', 'replication', '{}'),
       pg_temp.ensure_role('pgbouncer', 'login', '', '{}'),
       pg_temp.ensure_role('supabase_replication_admin', 'login', 'replication', '{}'),
       pg_temp.ensure_role('supabase_read_only_user', 'login', 'bypassrls', '{"default_transaction_read_only = on"}'),
       pg_temp.ensure_role('supabase_etl_admin', 'login', 'replication bypassrls', '{}'),
       pg_temp.ensure_role('supabase_privileged_role', 'nologin', '', '{}');

-- Two roles without login and members: the owner of the vault's tables, which has no other rights,
-- and the owner of the project's functions that event triggers call, which has the rights of
-- postgres. If a superuser owned these objects, casts in foreign keys and functions of the project
-- would run with a superuser's rights.
do $$
declare
  name text;
  granted record;
begin
  if not pg_temp.is_superuser() then
    return;
  end if;
  foreach name in array '{portico_vault,portico_events}'::text[] loop
    perform pg_temp.ensure_role(name, 'nologin', '', '{}');
    execute format('alter role %I nosuperuser nologin nocreaterole nocreatedb noreplication nobypassrls password null', name);
    for granted in
      select m.rolname as member, g.rolname as grantor
        from pg_auth_members as a join pg_roles as m on m.oid = a.member join pg_roles as g on g.oid = a.grantor
       where a.roleid = name::regrole
    loop
      execute format('revoke %I from %I granted by %I cascade', name, granted.member, granted.grantor);
    end loop;
  end loop;
end $$;
select pg_temp.ensure_member('portico_events', 'postgres', 'inherit true, set false')
 where pg_temp.is_superuser() and current_setting('server_version_num')::int >= 160000;

-- A login that is no superuser acts as these while it sets up
select pg_temp.ensure_member(session_user, name, 'inherit true, set true')
  from unnest('{supabase_admin,postgres,supabase_auth_admin,supabase_storage_admin,supabase_realtime_admin,supabase_functions_admin,pgbouncer,anon,authenticated,service_role,authenticator,dashboard_user}'::text[]) as name
 where not pg_temp.is_superuser();

insert into portico_limitation
select 'owner of the project''s objects', format('%s is a superuser, and an earlier version gave the objects to it', rolname),
       'migrations, and functions with SECURITY DEFINER, run with a superuser''s rights (a dump that is loaded into a database which is set up anew has another owner)'
  from pg_roles where rolname = 'postgres' and rolsuper
on conflict do nothing;

-- Row security is for people; keys of services and the owner of the tables are beyond it
insert into portico_limitation
select format('attribute bypassrls of %s', r.rolname), 'only a role that has it can give it, and before PostgreSQL 16 only a superuser',
       case r.rolname when 'service_role' then 'requests with the secret key see only the rows that policies give to service_role'
         else 'functions with SECURITY DEFINER obey the policies of tables that another role owns' end,
       format('alter role %I bypassrls;', r.rolname)
  from pg_roles as r where r.rolname = any ('{service_role,postgres}') and not r.rolbypassrls and not r.rolsuper
on conflict do nothing;

select pg_temp.ensure_member('authenticator', name, 'inherit false, set true', false, format('requests of the data API as %s are refused', name)) from unnest('{anon,authenticated,service_role}'::text[]) as name;
-- Since 16 a role can only be altered or granted by who holds it with admin option
select pg_temp.ensure_member('postgres', name, '', current_setting('server_version_num')::int >= 160000)
  from unnest('{anon,authenticated,service_role}'::text[]) as name;
select pg_temp.ensure_member('postgres', 'authenticator', '', true) where current_setting('server_version_num')::int >= 160000;
select pg_temp.ensure_member('postgres', name, '')
  from unnest('{pg_monitor,pg_signal_backend,supabase_privileged_role}'::text[]) as name;
-- The hosted service lets postgres write policies and triggers on these roles' tables through an
-- extension in C. Plain PostgreSQL knows one way: membership.
select pg_temp.ensure_member('postgres', name, 'inherit true, set true', false, 'migrations may not change tables of the services')
  from unnest('{supabase_auth_admin,supabase_storage_admin,supabase_realtime_admin,supabase_functions_admin}'::text[]) as name;
select pg_temp.ensure_member('supabase_storage_admin', 'authenticator', 'inherit false, set true');
select pg_temp.ensure_member('supabase_realtime_admin', name, 'inherit false, set true')
  from unnest('{anon,authenticated,service_role}'::text[]) as name;
-- pg_read_all_data reads every table. Where the key of the vault has to be in a table, this
-- membership is not granted.
select pg_temp.ensure_member(name, 'pg_read_all_data', '')
  from unnest('{postgres,supabase_read_only_user,supabase_etl_admin}'::text[]) as name
 where pg_temp.has_key_file();
do $$
declare name text;
begin
  if pg_temp.is_superuser() and not pg_temp.has_key_file() then
    for name in
      select m.rolname from pg_auth_members as a join pg_roles as m on m.oid = a.member
       where a.roleid = 'pg_read_all_data'::regrole and m.rolname = any ('{postgres,supabase_read_only_user,supabase_etl_admin}') and not m.rolsuper
    loop
      execute format('revoke pg_read_all_data from %I', name);
    end loop;
  end if;
end $$;

-- pg_create_subscription is not granted either: a subscription passes any parameter of a connection
-- to libpq, which from version 18 on appends the keys of TLS to the file that `sslkeylogfile` names
do $$
begin
  if pg_temp.is_superuser() and exists (select from pg_auth_members as a join pg_roles as g on g.oid = a.roleid join pg_roles as m on m.oid = a.member
                                         where g.rolname = 'pg_create_subscription' and m.rolname = 'postgres' and not m.rolsuper)
  then
    revoke pg_create_subscription from postgres;
  end if;
end $$;

-- On the embedded cluster the superuser logs in through the socket only. An earlier version set the
-- published password in development, with which SQL could connect to its own server as the
-- superuser
do $$
begin
  if not pg_temp.has_key_file() then
    return;
  end if;
  if (select rolpassword is not null from pg_authid where rolname = session_user) then
    execute format('alter role %I password null', session_user);
  end if;
end $$;
