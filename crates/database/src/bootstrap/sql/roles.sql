-- The roles that policies, grants, dumps and our own services name. An existing role is left as it is.
select pg_temp.ensure_role('supabase_admin', 'login createrole createdb', 'superuser replication bypassrls',
         '{"search_path = \"$user\", public, auth, extensions","log_statement = none"}'),
       pg_temp.ensure_role('anon', 'nologin inherit', '', '{"statement_timeout = ''3s''"}'),
       pg_temp.ensure_role('authenticated', 'nologin inherit', '', '{"statement_timeout = ''8s''"}'),
       pg_temp.ensure_role('service_role', 'nologin inherit', 'bypassrls', '{}'),
       -- The hosted service preloads two libraries for this role; named where they are missing, nobody could log in
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

-- A login that is no superuser acts as these while it sets up
select pg_temp.ensure_member(session_user, name, 'inherit true, set true')
  from unnest('{supabase_admin,postgres,supabase_auth_admin,supabase_storage_admin,supabase_realtime_admin,supabase_functions_admin,pgbouncer,anon,authenticated,service_role,authenticator,dashboard_user}'::text[]) as name
 where not pg_temp.is_superuser();

select pg_temp.ensure_member('authenticator', name, 'inherit false, set true') from unnest('{anon,authenticated,service_role}'::text[]) as name;
-- Since 16 a role can only be altered or granted by who holds it with admin option
select pg_temp.ensure_member('postgres', name, '', current_setting('server_version_num')::int >= 160000)
  from unnest('{anon,authenticated,service_role}'::text[]) as name;
select pg_temp.ensure_member('postgres', 'authenticator', '', true) where current_setting('server_version_num')::int >= 160000;
select pg_temp.ensure_member('postgres', name, '')
  from unnest('{pg_monitor,pg_read_all_data,pg_signal_backend,supabase_privileged_role}'::text[]) as name;
select pg_temp.ensure_member('postgres', 'pg_create_subscription', '') where current_setting('server_version_num')::int >= 160000;
-- The hosted service lets postgres write policies and triggers on these roles' tables through an extension in C.
-- Plain PostgreSQL knows one way: membership.
select pg_temp.ensure_member('postgres', name, 'inherit true, set true')
  from unnest('{supabase_auth_admin,supabase_storage_admin,supabase_realtime_admin,supabase_functions_admin}'::text[]) as name;
select pg_temp.ensure_member('supabase_storage_admin', 'authenticator', 'inherit false, set true');
select pg_temp.ensure_member('supabase_realtime_admin', name, 'inherit false, set true')
  from unnest('{anon,authenticated,service_role}'::text[]) as name;
select pg_temp.ensure_member(name, 'pg_read_all_data', '') from unnest('{supabase_read_only_user,supabase_etl_admin}'::text[]) as name;
