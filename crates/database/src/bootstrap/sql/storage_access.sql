-- Triggers, row security, grants and the recorded migrations of schema storage.
set role supabase_storage_admin;
select pg_temp.ensure_trigger('storage.buckets', 'enforce_bucket_name_length_trigger',
         'before insert or update of name on storage.buckets for each row execute function storage.enforce_bucket_name_length()'),
       pg_temp.ensure_trigger('storage.buckets', 'protect_buckets_delete',
         'before delete on storage.buckets for each statement execute function storage.protect_delete()'),
       pg_temp.ensure_trigger('storage.objects', 'update_objects_updated_at',
         'before update on storage.objects for each row execute function storage.update_updated_at_column()'),
       pg_temp.ensure_trigger('storage.objects', 'protect_objects_delete',
         'before delete on storage.objects for each statement execute function storage.protect_delete()');

do $$
declare name text;
begin
  foreach name in array '{buckets,objects,s3_multipart_uploads,s3_multipart_uploads_parts,buckets_analytics,buckets_vectors,vector_indexes,migrations}'::text[] loop
    if not (select relrowsecurity from pg_class where oid = format('storage.%I', name)::regclass) then
      execute format('alter table storage.%I enable row level security', name);
    end if;
  end loop;
end $$;

grant all on storage.buckets, storage.objects, storage.buckets_analytics to anon, authenticated, service_role;
grant all on storage.buckets, storage.objects to postgres with grant option;
grant all on storage.buckets_analytics, storage.buckets_vectors, storage.vector_indexes, storage.s3_multipart_uploads,
             storage.s3_multipart_uploads_parts to postgres;
grant all on storage.buckets_vectors, storage.vector_indexes to anon, authenticated, service_role;
grant all on storage.s3_multipart_uploads, storage.s3_multipart_uploads_parts to service_role;
revoke all on storage.s3_multipart_uploads, storage.s3_multipart_uploads_parts from anon, authenticated;
grant select on storage.s3_multipart_uploads, storage.s3_multipart_uploads_parts to anon, authenticated;
revoke all on storage.migrations from anon, authenticated, service_role, postgres;
grant select on storage.migrations to postgres;
grant execute on all functions in schema storage to public, postgres, anon, authenticated, service_role;

-- The reference server compares a hash of its own files, which other programs cannot know; tools
-- read the names only
insert into storage.migrations (id, name, hash)
select number - 1, name, encode(sha256(convert_to(name, 'UTF8')), 'hex')::char(40)
  from regexp_split_to_table(trim($names$
  create-migrations-table initialmigration storage-schema pathtoken-column add-migrations-rls add-size-functions
  change-column-name-in-get-size add-rls-to-buckets add-public-to-buckets fix-search-function
  search-files-search-function add-trigger-to-auto-update-updated_at-column add-automatic-avif-detection-flag
  add-bucket-custom-limits use-bytes-for-max-size add-can-insert-object-function add-version
  drop-owner-foreign-key add_owner_id_column_deprecate_owner alter-default-value-objects-id
  list-objects-with-delimiter s3-multipart-uploads s3-multipart-uploads-big-ints optimize-search-function
  operation-function custom-metadata objects-prefixes search-v2 object-bucket-name-sorting create-prefixes
  update-object-levels objects-level-index backward-compatible-index-on-objects
  backward-compatible-index-on-prefixes optimize-search-function-v1 add-insert-trigger-prefixes
  optimise-existing-functions add-bucket-name-length-trigger iceberg-catalog-flag-on-buckets
  add-search-v2-sort-support fix-prefix-race-conditions-optimized add-object-level-update-trigger
  rollback-prefix-triggers fix-object-level vector-bucket-type vector-buckets buckets-objects-grants
  iceberg-table-metadata iceberg-catalog-ids buckets-objects-grants-postgres search-v2-optimised
  index-backward-compatible-search drop-not-used-indexes-and-functions drop-index-lower-name
  drop-index-object-level prevent-direct-deletes fix-optimized-search-function s3-multipart-uploads-metadata
  operation-ergonomics drop-unused-functions optimize-existing-functions-again mark-filename-immutable
  object-versioning-core fix-search-name-relative-to-prefix
$names$, E' \n'), '\s+') with ordinality as t(name, number)
on conflict do nothing;
reset role;
