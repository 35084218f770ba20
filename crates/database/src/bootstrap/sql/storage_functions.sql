-- Functions of schema storage that policies and triggers use.
set role supabase_storage_admin;

create or replace function storage.foldername(name text) returns text[] language plpgsql immutable as $$
declare parts text[] := string_to_array(name, '/');
begin
  if cardinality(parts) = 0 then
    return null;
  end if;
  return parts[1 : cardinality(parts) - 1];
end $$;

create or replace function storage.filename(name text) returns text language plpgsql immutable as $$
declare parts text[] := string_to_array(name, '/');
begin
  return parts[cardinality(parts)];
end $$;

create or replace function storage.extension(name text) returns text language plpgsql immutable as $$
declare
  parts text[] := string_to_array(name, '/');
  pieces text[] := string_to_array(parts[cardinality(parts)], '.');
begin
  return pieces[cardinality(pieces)];
end $$;

create or replace function storage.operation() returns text language plpgsql stable as $$
begin
  return current_setting('storage.operation', true);
end $$;

create or replace function storage.allow_only_operation(expected_operation text) returns boolean language sql stable as $$
  select coalesce(
    nullif(regexp_replace(current_setting('storage.operation', true), '^storage\.', ''), '')
      = nullif(regexp_replace(expected_operation, '^storage\.', ''), ''), false)
$$;

create or replace function storage.allow_any_operation(expected_operations text[]) returns boolean language sql stable as $$
  select coalesce(bool_or(
    nullif(regexp_replace(current_setting('storage.operation', true), '^storage\.', ''), '')
      = nullif(regexp_replace(expected, '^storage\.', ''), '')), false)
    from unnest(expected_operations) as expected
$$;

create or replace function storage.update_updated_at_column() returns trigger language plpgsql as $$
begin
  new.updated_at = now();
  return new;
end $$;

create or replace function storage.enforce_bucket_name_length() returns trigger language plpgsql as $$
begin
  if length(new.name) > 100 then
    raise exception 'bucket name "%" is too long (% characters). Max is 100.', new.name, length(new.name);
  end if;
  return new;
end $$;

create or replace function storage.protect_delete() returns trigger language plpgsql as $$
begin
  if coalesce(current_setting('storage.allow_delete_query', true), 'false') <> 'true' then
    raise exception 'Direct deletion from storage tables is not allowed. Use the Storage API instead.'
      using errcode = '42501', hint = 'This prevents accidental data loss from orphaned objects.';
  end if;
  return null;
end $$;

create or replace function storage.can_insert_object(bucketid text, name text, owner uuid, metadata jsonb) returns void
language plpgsql volatile as $$
begin
  insert into storage.objects (bucket_id, name, owner, metadata)
  values (bucketid, can_insert_object.name, can_insert_object.owner, can_insert_object.metadata);
  raise sqlstate 'PT200' using message = 'ROLLBACK', detail = 'rollback successful insert';
end $$;

create or replace function storage.get_size_by_bucket() returns table (size bigint, bucket_id text) language plpgsql stable as $$
begin
  return query
    select sum((o.metadata ->> 'size')::bigint)::bigint, o.bucket_id from storage.objects as o group by o.bucket_id;
end $$;

create or replace function storage.get_common_prefix(p_key text, p_prefix text, p_delimiter text) returns text
language sql immutable as $$
  select case when position(p_delimiter in substr(p_key, length(p_prefix) + 1)) > 0
              then left(p_key, length(p_prefix) + position(p_delimiter in substr(p_key, length(p_prefix) + 1)) + length(p_delimiter) - 1) end
$$;
reset role;
