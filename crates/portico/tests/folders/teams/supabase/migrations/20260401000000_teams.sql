-- Organisations, with helpers in a schema apart and everything granted by hand
create extension if not exists "citext" with schema "extensions";
create extension if not exists "pgjwt" with schema "extensions";
create extension if not exists "pg_graphql" with schema "graphql";
create extension if not exists "supabase_vault" with schema "vault";
create schema if not exists private;
grant usage on schema private to authenticated, service_role;
alter default privileges in schema public revoke execute on functions from public;
alter default privileges in schema public revoke execute on functions from anon, authenticated;
alter default privileges in schema public grant all on tables to service_role;
alter default privileges for role postgres in schema private grant select on tables to service_role;
revoke all on schema public from public;
grant usage on schema public to anon, authenticated, service_role;
revoke execute on function public.rls_auto_enable() from public, anon, authenticated;

create table public.orgs (id uuid primary key default gen_random_uuid(), name extensions.citext not null unique, created_at timestamptz default now());
create table public.members (org_id uuid references public.orgs on delete cascade, user_id uuid references auth.users on delete cascade, role text not null default 'member', primary key (org_id, user_id));
alter table public.orgs enable row level security;
alter table public.members enable row level security;
grant select, insert, update, delete on table public.orgs, public.members to authenticated;
grant select on public.orgs to reporting;
create or replace function private.is_member(org uuid) returns boolean language sql security definer stable set search_path = '' as $$
  select exists (select 1 from public.members where org_id = org and user_id = (select auth.uid()));
$$;
grant execute on function private.is_member(uuid) to authenticated;
create policy "members see their org" on public.orgs as permissive for select to authenticated using ((select private.is_member(id)));
create policy "second factor" on public.orgs as restrictive for update to authenticated using ((select auth.jwt() ->> 'aal') = 'aal2');
create policy "own rows" on public.members for all to authenticated using (user_id = (select auth.uid())) with check (user_id = (select auth.uid()));

create or replace function public.custom_access_token_hook(event jsonb) returns jsonb language plpgsql stable as $$
declare claims jsonb;
begin
  claims := event -> 'claims';
  claims := jsonb_set(claims, '{orgs}', (select coalesce(jsonb_agg(org_id), '[]') from public.members where user_id = (event ->> 'user_id')::uuid));
  return jsonb_set(event, '{claims}', claims);
end $$;
grant usage on schema public to supabase_auth_admin;
grant execute on function public.custom_access_token_hook to supabase_auth_admin;
revoke execute on function public.custom_access_token_hook from authenticated, anon, public;
grant all on table public.members to supabase_auth_admin;
create policy "auth reads members" on public.members as permissive for select to supabase_auth_admin using (true);

create or replace function public.require_org() returns void language plpgsql as $$
begin
  if current_setting('request.headers', true)::json ->> 'x-org' is null then
    raise exception using errcode = 'PT403', message = 'no organisation';
  end if;
end $$;
alter role authenticator set pgrst.db_pre_request = 'public.require_org';
alter database postgres set "app.settings.edition" = 'teams';
notify pgrst, 'reload config';
comment on function public.require_org() is '@graphql({"name": "none"})';
comment on schema public is e'@graphql({"inflect_names": true})';
create or replace function public.seen() returns event_trigger language plpgsql as $$ begin raise debug 'seen'; end $$;
create event trigger seen on ddl_command_end when tag in ('CREATE TABLE') execute function public.seen();
create publication warehouse for all tables;
