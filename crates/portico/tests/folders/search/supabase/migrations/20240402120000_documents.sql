-- Sections of documents, found by meaning and by words
create extension if not exists pg_net with schema extensions;
create extension if not exists vector with schema extensions;
create extension if not exists pg_trgm with schema extensions;
create extension if not exists unaccent with schema extensions;
create schema private;

insert into storage.buckets (id, name, public, file_size_limit, allowed_mime_types)
values ('files', 'files', false, 5242880, array['text/markdown', 'text/plain']) on conflict (id) do nothing;

create or replace function private.uuid_or_null(str text) returns uuid language plpgsql as $$
begin
  return str::uuid;
exception when invalid_text_representation then
  return null;
end $$;

create policy "Authenticated users can upload files" on storage.objects for insert to authenticated
  with check (bucket_id = 'files' and owner = auth.uid() and private.uuid_or_null(path_tokens[1]) is not null);
create policy "Users can view their own files" on storage.objects for select to authenticated using (bucket_id = 'files' and owner = auth.uid());
create policy "Users can update their own files" on storage.objects for update to authenticated
  using (bucket_id = 'files' and owner = auth.uid()) with check (bucket_id = 'files' and owner = auth.uid());
create policy "Users can delete their own files" on storage.objects for delete to authenticated using (bucket_id = 'files' and owner = auth.uid());

create table documents (
  id bigint primary key generated always as identity,
  name text not null,
  storage_object_id uuid not null references storage.objects (id),
  created_by uuid not null references auth.users (id) default auth.uid(),
  created_at timestamp with time zone not null default now()
);
create view documents_with_storage_path with (security_invoker = true) as
  select documents.*, storage.objects.name as storage_object_path
    from documents join storage.objects on storage.objects.id = documents.storage_object_id;

create table document_sections (
  id bigint primary key generated always as identity,
  document_id bigint not null references documents (id) on delete cascade,
  content text not null,
  fts tsvector generated always as (to_tsvector('english', content)) stored,
  embedding vector (384)
);
create index on document_sections using hnsw (embedding vector_ip_ops);
create index on document_sections using gin (fts);
create index document_sections_words on document_sections using gin (content gin_trgm_ops);

alter table documents enable row level security;
alter table document_sections enable row level security;
create policy "Users can query their own documents" on documents for select to authenticated using (auth.uid() = created_by);
create policy "Users can query their own document sections" on document_sections for select to authenticated
  using (document_id in (select id from documents where created_by = auth.uid()));

create function supabase_url() returns text language plpgsql security definer as $$
declare secret_value text;
begin
  select decrypted_secret into secret_value from vault.decrypted_secrets where name = 'supabase_url';
  return secret_value;
end $$;

create function private.handle_storage_update() returns trigger language plpgsql as $$
declare document_id bigint; result int;
begin
  insert into documents (name, storage_object_id, created_by) values (new.path_tokens[2], new.id, new.owner) returning id into document_id;
  select net.http_post(
      url := supabase_url() || '/functions/v1/process',
      headers := jsonb_build_object('Content-Type', 'application/json', 'Authorization', current_setting('request.headers')::json ->> 'authorization'),
      body := jsonb_build_object('document_id', document_id)
    ) into result;
  return null;
end $$;
create trigger on_file_upload after insert on storage.objects for each row execute procedure private.handle_storage_update();

create or replace function match_document_sections(embedding vector(384), match_threshold float)
returns setof document_sections language plpgsql as $$
#variable_conflict use_variable
begin
  return query select * from document_sections where document_sections.embedding <#> embedding < -match_threshold
    order by document_sections.embedding <#> embedding;
end $$;
