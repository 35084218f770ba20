-- Schemas around the services: database webhooks, the history of migrations.
set role supabase_functions_admin;
select pg_temp.ensure_table('supabase_functions.migrations', $columns$
  version text not null
  inserted_at timestamptz not null default now()
$columns$, $constraints$
  migrations_pkey primary key (version)
$constraints$);
create sequence if not exists supabase_functions.hooks_id_seq;
select pg_temp.ensure_table('supabase_functions.hooks', $columns$
  id bigint not null default nextval('supabase_functions.hooks_id_seq')
  hook_table_id integer not null
  hook_name text not null
  created_at timestamptz not null default now()
  request_id bigint
$columns$, $constraints$
  hooks_pkey primary key (id)
$constraints$);
alter sequence supabase_functions.hooks_id_seq owned by supabase_functions.hooks.id;
comment on table supabase_functions.hooks is 'Supabase Functions Hooks: Audit trail for triggered hooks.';
create index if not exists supabase_functions_hooks_request_id_idx on supabase_functions.hooks (request_id);
create index if not exists supabase_functions_hooks_h_table_id_h_name_idx on supabase_functions.hooks (hook_table_id, hook_name);
insert into supabase_functions.migrations (version) values ('initial'), ('20210809183423_update_grants') on conflict do nothing;

create or replace function supabase_functions.http_request() returns trigger
language plpgsql security definer set search_path = supabase_functions as $$
declare
  request_id bigint;
  url text := tg_argv[0];
  method text := tg_argv[1];
  headers jsonb := '{"Content-Type": "application/json"}';
  params jsonb := '{}';
  timeout_ms integer := 1000;
begin
  if url is null or url = 'null' then
    raise exception 'url argument is missing';
  end if;
  if method is null or method = 'null' then
    raise exception 'method argument is missing';
  end if;
  if tg_argv[2] is not null and tg_argv[2] <> 'null' then
    headers := tg_argv[2]::jsonb;
  end if;
  if tg_argv[3] is not null and tg_argv[3] <> 'null' then
    params := tg_argv[3]::jsonb;
  end if;
  if tg_argv[4] is not null and tg_argv[4] <> 'null' then
    timeout_ms := tg_argv[4]::integer;
  end if;
  case method
    when 'GET' then
      request_id := net.http_get(url, params, headers, timeout_ms);
    when 'POST' then
      request_id := net.http_post(
        url,
        jsonb_build_object('old_record', old, 'record', new, 'type', tg_op, 'table', tg_table_name, 'schema', tg_table_schema),
        params, headers, timeout_ms);
    else
      raise exception 'method argument % is invalid', method;
  end case;
  insert into supabase_functions.hooks (hook_table_id, hook_name, request_id) values (tg_relid, tg_name, request_id);
  return new;
end $$;
revoke all on function supabase_functions.http_request() from public;
grant all on all tables in schema supabase_functions to postgres, anon, authenticated, service_role;
grant all on all sequences in schema supabase_functions to postgres, anon, authenticated, service_role;
grant execute on function supabase_functions.http_request() to postgres, anon, authenticated, service_role;
reset role;

set role postgres;
select pg_temp.ensure_table('supabase_migrations.schema_migrations', $columns$
  version text not null
  statements text[]
  name text
  created_by text
  idempotency_key text
  rollback text[]
$columns$, $constraints$
  schema_migrations_pkey primary key (version)
$constraints$);
select pg_temp.ensure_table('supabase_migrations.seed_files', $columns$
  path text not null
  hash text not null
$columns$, $constraints$
  seed_files_pkey primary key (path)
$constraints$);

-- Earlier versions created this function in every project. A session for migrations creates it
-- where one refers to it
do $outer$
begin
  if exists (select from pg_proc where oid = to_regprocedure('public.rls_auto_enable()') and md5(prosrc) = '325053e28054ec4f19e9900af2677e20')
     and not exists (select from pg_depend where refclassid = 'pg_proc'::regclass and refobjid = to_regprocedure('public.rls_auto_enable()') and deptype = 'n')
  then
    drop function public.rls_auto_enable();
  end if;
end $outer$;
reset role;
