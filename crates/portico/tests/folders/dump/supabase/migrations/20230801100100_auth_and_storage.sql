CREATE TRIGGER on_auth_user_created AFTER INSERT ON auth.users FOR EACH ROW EXECUTE FUNCTION handle_new_user();
drop policy if exists "Avatar images are publicly accessible" on "storage"."objects";
alter table storage.objects enable row level security;
insert into storage.buckets (id, name, public) values ('avatars', 'avatars', true);
create policy "Avatar images are publicly accessible" on storage.objects for select using (bucket_id = 'avatars');
create policy "Anyone can upload an avatar" on storage.objects for insert to public
  with check (bucket_id = 'avatars' and (storage.foldername(name))[1] = (select auth.uid())::text and storage.extension(name) = 'png');
create extension if not exists "hstore" with schema "public" version '1.4';
drop extension if exists "pg_net";
create extension if not exists "pg_net" with schema "extensions";
set check_function_bodies = off;
alter table auth.users enable row level security;
create index if not exists users_created on auth.users (created_at);
select pg_catalog.setval('auth.refresh_tokens_id_seq', 1, true);
alter role postgres set search_path to "$user", public, extensions;
grant execute on function net.http_get(text, jsonb, jsonb, integer) to service_role;
