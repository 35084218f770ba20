-- Tables of schema storage in their final state: names, order, types, defaults, constraints and
-- indexes are contract.
set role supabase_storage_admin;
select pg_temp.ensure_enum('storage.buckettype', '{STANDARD,ANALYTICS,VECTOR}');

select pg_temp.ensure_table('storage.buckets', $columns$
  id text not null
  name text not null
  owner uuid
  created_at timestamptz default now()
  updated_at timestamptz default now()
  public bool default false
  avif_autodetection bool default false
  file_size_limit bigint
  allowed_mime_types text[]
  owner_id text
  type storage.buckettype default 'STANDARD' not null
  versioning_status text default 'DISABLED' not null
$columns$, $constraints$
  buckets_pkey primary key (id)
  buckets_versioning_dark_check check ((versioning_status = 'DISABLED'))
  buckets_versioning_standard_only_check check (((type = 'STANDARD') or (versioning_status = 'DISABLED')))
  buckets_versioning_status_check check ((versioning_status = any (array['DISABLED', 'ENABLED', 'SUSPENDED'])))
$constraints$);
create unique index if not exists bname on storage.buckets (name);

select pg_temp.ensure_table('storage.objects', $columns$
  id uuid default gen_random_uuid() not null
  bucket_id text
  name text
  owner uuid
  created_at timestamptz default now()
  updated_at timestamptz default now()
  last_accessed_at timestamptz default now()
  metadata jsonb
  path_tokens text[] generated always as (string_to_array(name, '/')) stored
  version text
  owner_id text
  user_metadata jsonb
  archived_at timestamptz
  is_delete_marker bool default false not null
  is_versioned bool default false not null
$columns$, $constraints$
  objects_pkey primary key (id)
  "objects_bucketId_fkey" foreign key (bucket_id) references storage.buckets(id)
$constraints$);
comment on column storage.buckets.owner is 'Field is deprecated, use owner_id instead';
comment on column storage.objects.owner is 'Field is deprecated, use owner_id instead';
create unique index if not exists bucketid_objname on storage.objects (bucket_id, name);
create index if not exists idx_objects_bucket_id_name on storage.objects (bucket_id, name collate "C");
create index if not exists idx_objects_bucket_id_name_lower on storage.objects (bucket_id, lower(name) collate "C");
create index if not exists name_prefix_search on storage.objects (name text_pattern_ops);

select pg_temp.ensure_table('storage.s3_multipart_uploads', $columns$
  id text not null
  in_progress_size bigint default 0 not null
  upload_signature text not null
  bucket_id text not null
  key text collate "C" not null
  version text not null
  owner_id text
  created_at timestamptz default now() not null
  user_metadata jsonb
  metadata jsonb
$columns$, $constraints$
  s3_multipart_uploads_pkey primary key (id)
  s3_multipart_uploads_bucket_id_fkey foreign key (bucket_id) references storage.buckets(id)
$constraints$);
create index if not exists idx_multipart_uploads_list on storage.s3_multipart_uploads (bucket_id, key, created_at);

select pg_temp.ensure_table('storage.s3_multipart_uploads_parts', $columns$
  id uuid default gen_random_uuid() not null
  upload_id text not null
  size bigint default 0 not null
  part_number integer not null
  bucket_id text not null
  key text collate "C" not null
  etag text not null
  owner_id text
  version text not null
  created_at timestamptz default now() not null
$columns$, $constraints$
  s3_multipart_uploads_parts_pkey primary key (id)
  s3_multipart_uploads_parts_bucket_id_fkey foreign key (bucket_id) references storage.buckets(id)
  s3_multipart_uploads_parts_upload_id_fkey foreign key (upload_id) references storage.s3_multipart_uploads(id) on delete cascade
$constraints$);

select pg_temp.ensure_table('storage.buckets_analytics', $columns$
  name text not null
  type storage.buckettype default 'ANALYTICS' not null
  format text default 'ICEBERG' not null
  created_at timestamptz default now() not null
  updated_at timestamptz default now() not null
  id uuid default gen_random_uuid() not null
  deleted_at timestamptz
$columns$, $constraints$
  buckets_analytics_pkey primary key (id)
$constraints$);
create unique index if not exists buckets_analytics_unique_name_idx on storage.buckets_analytics (name) where (deleted_at is null);

select pg_temp.ensure_table('storage.buckets_vectors', $columns$
  id text not null
  type storage.buckettype default 'VECTOR' not null
  created_at timestamptz default now() not null
  updated_at timestamptz default now() not null
$columns$, $constraints$
  buckets_vectors_pkey primary key (id)
$constraints$);

select pg_temp.ensure_table('storage.vector_indexes', $columns$
  id text default gen_random_uuid() not null
  name text collate "C" not null
  bucket_id text not null
  data_type text not null
  dimension integer not null
  distance_metric text not null
  metadata_configuration jsonb
  created_at timestamptz default now() not null
  updated_at timestamptz default now() not null
$columns$, $constraints$
  vector_indexes_pkey primary key (id)
  vector_indexes_bucket_id_fkey foreign key (bucket_id) references storage.buckets_vectors(id)
$constraints$);
create unique index if not exists vector_indexes_name_bucket_id_idx on storage.vector_indexes (name, bucket_id);

select pg_temp.ensure_table('storage.migrations', $columns$
  id integer not null
  name varchar(100) not null
  hash varchar(40) not null
  executed_at timestamp default current_timestamp
$columns$, $constraints$
  migrations_name_key unique (name)
  migrations_pkey primary key (id)
$constraints$);

reset role;
