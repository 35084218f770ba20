-- Listings of schema storage. Each walks an index from name to name and jumps over a folder once it
-- has returned it, so that a page costs as much as it shows, however many objects lie below. Row
-- security of the caller applies.
set role supabase_storage_admin;

-- Forms of older versions, which would make calls ambiguous
drop function if exists storage.search(text, text, integer, integer, integer);
drop function if exists storage.search_v2(text, text, integer, integer, text);

create or replace function storage.list_objects_with_delimiter(
  _bucket_id text, prefix_param text, delimiter_param text, max_keys integer default 100, start_after text default '',
  next_token text default '', sort_order text default 'asc')
returns table (name text, id uuid, metadata jsonb, updated_at timestamptz, created_at timestamptz, last_accessed_at timestamptz)
language plpgsql stable as $$
declare
  is_descending boolean := lower(coalesce(sort_order, 'asc')) = 'desc';
  prefix text := coalesce(prefix_param, '');
  delimiter text := nullif(delimiter_param, '');
  -- The first name after all that begin with the prefix: its last character, one further
  beyond text := case when prefix <> '' then left(prefix, -1) || chr(ascii(right(prefix, 1)) + 1) else chr(1114111) end;
  after text := coalesce(nullif(next_token, ''), nullif(start_after, ''));
  lower_bound text := prefix;   -- names from here on
  above text := '';             -- names strictly after this one
  below text := beyond;         -- names strictly before this one
  folder text;
  found_row storage.objects;
  returned integer := 0;
  batch integer := 0;           -- the number of files that are read as a set; 0: the next entry may be a folder
  size integer;
  run integer;                  -- the number of files before the first folder
  last_name text;               -- the last one of them
begin
  if after is not null then
    folder := after || delimiter;
    if folder is not null and exists (
      select from storage.objects as o
       where o.bucket_id = _bucket_id and o.name collate "C" >= folder
         and o.name collate "C" < left(folder, -1) || chr(ascii(right(folder, 1)) + 1))
    then
      if is_descending then
        below := least(folder collate "C", below collate "C");
      else
        lower_bound := greatest(left(folder, -1) || chr(ascii(right(folder, 1)) + 1) collate "C", lower_bound collate "C");
      end if;
    elsif is_descending then
      below := least(after collate "C", below collate "C");
    else
      above := after;
    end if;
  end if;

  -- As in `storage.search`: a folder at a time, and files in sets up to the first folder. No bound
  -- is null, since a condition that it might be would keep the others out of the index search.
  while returned < max_keys loop
    if batch = 0 then
      if is_descending then
        select o.* into found_row from storage.objects as o
         where o.bucket_id = _bucket_id and o.name collate "C" >= lower_bound and o.name collate "C" < below
         order by o.name collate "C" desc limit 1;
      else
        select o.* into found_row from storage.objects as o
         where o.bucket_id = _bucket_id and o.name collate "C" >= lower_bound and o.name collate "C" > above
          and o.name collate "C" < beyond
         order by o.name collate "C" limit 1;
      end if;
      exit when not found;
      folder := case when delimiter is not null then storage.get_common_prefix(found_row.name, prefix, delimiter) end;
      if folder is null then
        name := found_row.name; id := found_row.id; metadata := found_row.metadata; updated_at := found_row.updated_at;
        created_at := found_row.created_at; last_accessed_at := found_row.last_accessed_at;
        above := found_row.name;
        below := found_row.name;
        batch := 16;
      else
        name := left(folder, -length(delimiter)); id := null; metadata := null; updated_at := null;
        created_at := null; last_accessed_at := null;
        lower_bound := case when is_descending then lower_bound else left(folder, -1) || chr(ascii(right(folder, 1)) + 1) end;
        above := '';
        below := folder;
      end if;
      returned := returned + 1;
      return next;
    else
      size := least(batch, max_keys - returned);
      if is_descending then
        return query
            select f.name, f.id, f.metadata, f.updated_at, f.created_at, f.last_accessed_at
              from (select c.*, bool_and(c.is_file) over (order by c.exact desc rows unbounded preceding) as is_run from (
                select o.*, o.name collate "C" as exact,
                       coalesce(position(delimiter in substr(o.name, length(prefix) + 1)) = 0, true) as is_file
                  from storage.objects as o
                 where o.bucket_id = _bucket_id and o.name collate "C" >= lower_bound and o.name collate "C" < below
                 order by exact desc limit size
              ) as c) as f
             where f.is_run order by f.exact desc;
      else
        return query
            select f.name, f.id, f.metadata, f.updated_at, f.created_at, f.last_accessed_at
              from (select c.*, bool_and(c.is_file) over (order by c.exact rows unbounded preceding) as is_run from (
                select o.*, o.name collate "C" as exact,
                       coalesce(position(delimiter in substr(o.name, length(prefix) + 1)) = 0, true) as is_file
                  from storage.objects as o
                 where o.bucket_id = _bucket_id and o.name collate "C" >= lower_bound and o.name collate "C" > above
                  and o.name collate "C" < beyond
                 order by exact limit size
              ) as c) as f
             where f.is_run order by f.exact;
      end if;
      get diagnostics run = row_count;
      returned := returned + run;
      exit when returned >= max_keys;
      batch := case when run = size then least(8 * batch, 10000) else 0 end;
      if run > 0 then
        if is_descending then
          select o.name into last_name from storage.objects as o
           where o.bucket_id = _bucket_id and o.name collate "C" >= lower_bound and o.name collate "C" < below
           order by o.name collate "C" desc offset run - 1 limit 1;
        else
          select o.name into last_name from storage.objects as o
           where o.bucket_id = _bucket_id and o.name collate "C" >= lower_bound and o.name collate "C" > above
            and o.name collate "C" < beyond
           order by o.name collate "C" offset run - 1 limit 1;
        end if;
        above := last_name;
        below := last_name;
      end if;
    end if;
  end loop;
end $$;

create or replace function storage.search_by_timestamp(
  p_prefix text, p_bucket_id text, p_limit integer, p_level integer, p_start_after text, p_sort_order text, p_sort_column text,
  p_sort_column_after text)
returns table (key text, name text, id uuid, updated_at timestamptz, created_at timestamptz, last_accessed_at timestamptz, metadata jsonb)
language plpgsql stable as $$
declare
  is_descending boolean := lower(coalesce(p_sort_order, 'asc')) = 'desc';
  prefix text := coalesce(p_prefix, '');
  after_time timestamptz := coalesce(nullif(p_sort_column_after, '')::timestamptz, 'epoch');
  after_name text := coalesce(p_start_after, '');
begin
  return query execute format($query$
    with entries as (
      select rtrim(folder, '/') as name, null::uuid as id, min(o.created_at) as updated_at, min(o.created_at) as created_at,
             null::timestamptz as last_accessed_at, null::jsonb as metadata
        from storage.objects as o, storage.get_common_prefix(o.name, $1, '/') as folder
       where o.bucket_id = $2 and starts_with(o.name, $1) and folder is not null
       group by folder
      union all
      select o.name, o.id, o.updated_at, o.created_at, o.last_accessed_at, o.metadata
        from storage.objects as o
       where o.bucket_id = $2 and starts_with(o.name, $1) and storage.get_common_prefix(o.name, $1, '/') is null
    ), timed as (
      select *, date_trunc('milliseconds', coalesce(%1$I, 'epoch'::timestamptz)) as moment from entries
    )
    select split_part(name, '/', $3), name, id, updated_at, created_at, last_accessed_at, metadata
      from timed
     where $4 = '' or (moment, name collate "C") %2$s ($5, $4)
     order by moment %3$s, name collate "C" %3$s
     limit $6
  $query$,
    case when p_sort_column = 'created_at' then 'created_at' else 'updated_at' end,
    case when is_descending then '<' else '>' end,
    case when is_descending then 'desc' else 'asc' end)
  using prefix, p_bucket_id, greatest(p_level, 1), after_name, date_trunc('milliseconds', after_time), p_limit;
end $$;

create or replace function storage.search_v2(
  prefix text, bucket_name text, limits integer default 100, levels integer default 1, start_after text default '',
  sort_order text default 'asc', sort_column text default 'name', sort_column_after text default '')
returns table (key text, name text, id uuid, updated_at timestamptz, created_at timestamptz, last_accessed_at timestamptz, metadata jsonb)
language plpgsql stable as $$
declare
  direction text := case when lower(coalesce(sort_order, 'asc')) = 'desc' then 'desc' else 'asc' end;
  page integer := least(coalesce(limits, 100), 1500);
begin
  if lower(sort_column) in ('updated_at', 'created_at') then
    return query
      select * from storage.search_by_timestamp(prefix, bucket_name, page, levels, start_after, direction, lower(sort_column), sort_column_after);
  else
    return query
      select split_part(l.name, '/', greatest(levels, 1)), l.name, l.id, l.updated_at, l.created_at, l.last_accessed_at, l.metadata
        from storage.list_objects_with_delimiter(bucket_name, coalesce(prefix, ''), '/', page, start_after, '', direction) as l;
  end if;
end $$;

-- Its statements are planned once in a session: to plan one of them anew, with the policies, takes
-- as long as reading a hundred files, and the values make no difference to the plan. The index has
-- the order of a list. Without statistics, as after a bulk load, PostgreSQL expects few objects and
-- would rather sort them, all of the bucket for each entry of the page.
create or replace function storage.search(
  prefix text, bucketname text, limits integer default 100, levels integer default 1, offsets integer default 0,
  search text default '', sortcolumn text default 'name', sortorder text default 'asc')
returns table (name text, id uuid, updated_at timestamptz, created_at timestamptz, last_accessed_at timestamptz, metadata jsonb)
language plpgsql stable set plan_cache_mode = force_generic_plan set enable_sort = off as $$
declare
  is_descending boolean := lower(coalesce(sortorder, 'asc')) = 'desc';
  direction text := case when is_descending then 'desc' else 'asc' end;
  page integer := least(coalesce(limits, 100), 1500);
  start text := coalesce(prefix, '');
  wanted text := lower(start || coalesce(search, ''));
  -- Greater than all names in lower case that begin so
  beyond text := case when wanted <> '' then left(wanted, -1) || chr(ascii(right(wanted, 1)) + 1) else chr(1114111) end;
  first_level integer := cardinality(string_to_array(start || '.', '/'));
  last_level integer := cardinality(string_to_array(start || coalesce(search, '') || '.', '/'));
  lower_bound text := wanted;   -- names in lower case from here on
  upper_bound text := beyond;   -- and up to here
  at_name text;                 -- the file that was returned at the bound
  slash integer;
  to_skip integer := greatest(coalesce(offsets, 0), 0);
  returned integer := 0;
  found_row storage.objects;
  batch integer := 0;           -- the number of files that are read as a set; 0: the next entry may be a folder
  size integer;
  run integer;                  -- the number of files before the first folder
  last_name text;
  in_folder text := repeat('_', length(wanted)) || '%/%'; -- names in a folder of this level
  above_folders integer := length(wanted) - length(substring(wanted from '[^/]*$')); -- length of the path before their names
  folder text;                  -- its path, with the slash
  spellings text[];             -- the paths that are the same in lower case, in their order
  compared text := '';          -- the folder before, whose other spellings were looked for
  other_at integer;             -- the first character that is in another case in the path of some object
  same integer;                 -- how many characters are those of the folder before
  is_folder boolean;
  by_time boolean := coalesce(lower(sortcolumn) in ('updated_at', 'created_at', 'last_accessed_at'), false);
begin
  -- Conditions on names in lower case are checked before row security, by the index, only if
  -- `lower` is leakproof, which a superuser has to declare. Without that each step of the walk
  -- would read the whole bucket, so it is read once.
  if by_time or row_security_active('storage.objects')
     and not (select f.proleakproof from pg_catalog.pg_proc as f where f.oid = 'pg_catalog.lower(text)'::regprocedure)
  then
    return query execute format($query$
      with hits as (
        select o.*, cardinality(string_to_array(o.name, '/')) as depth
          from storage.objects as o
         where o.bucket_id = $1 and starts_with(lower(o.name), $2)
      ), entries as (
        select array_to_string(path, '/') as name, true as is_folder, null::uuid as id, null::timestamptz as updated_at,
               null::timestamptz as created_at, null::timestamptz as last_accessed_at, null::jsonb as metadata
          from (select distinct (string_to_array(h.name, '/'))[$3:$4] as path from hits as h where h.depth > $4) as folders
        union all
        select array_to_string((string_to_array(h.name, '/'))[$3:$4], '/'), false, h.id, h.updated_at, h.created_at,
               h.last_accessed_at, h.metadata
          from hits as h where h.depth = $4
      )
      select name, id, updated_at, created_at, last_accessed_at, metadata
        from entries
       order by %1$s, name collate "C" %2$s
       limit $5 offset $6
    $query$,
      case when by_time then format('is_folder desc, %I %s', lower(sortcolumn), direction)
        else $order$lower(name || case when is_folder then '/' else '' end) collate "C" $order$ || direction end,
      direction)
    using bucketname, wanted, first_level, last_level, page, greatest(coalesce(offsets, 0), 0);
    return;
  end if;

  -- A folder is mostly followed by folders, of each of which one object is read. A file is mostly
  -- followed by files, which are read as a set: a few, and then as many as the page still takes,
  -- up to the first folder. `lower` takes longer than reading the row, so each condition asks for
  -- it last.
  while returned < page loop
    if batch = 0 then
      if is_descending then
        select o.* into found_row from storage.objects as o
         where o.bucket_id = bucketname and lower(o.name) collate "C" >= lower_bound and lower(o.name) collate "C" <= upper_bound
          and (o.name collate "C" < at_name or lower(o.name) collate "C" < upper_bound)
         order by lower(o.name) collate "C" desc, o.name collate "C" desc limit 1;
      else
        select o.* into found_row from storage.objects as o
         where o.bucket_id = bucketname and lower(o.name) collate "C" >= lower_bound and lower(o.name) collate "C" < upper_bound
          and (at_name is null or o.name collate "C" > at_name or lower(o.name) collate "C" > lower_bound)
         order by lower(o.name) collate "C", o.name collate "C" limit 1;
      end if;
      exit when not found;
      slash := position('/' in substr(found_row.name, length(wanted) + 1));
      if slash = 0 then
        name := substr(found_row.name, length(start) + 1); id := found_row.id; updated_at := found_row.updated_at;
        created_at := found_row.created_at; last_accessed_at := found_row.last_accessed_at; metadata := found_row.metadata;
        at_name := found_row.name;
        if is_descending then
          upper_bound := lower(at_name);
        else
          lower_bound := lower(at_name);
        end if;
        batch := 16;
        if to_skip > 0 then
          to_skip := to_skip - 1;
        else
          returned := returned + 1;
          return next;
        end if;
      else
        folder := left(found_row.name, length(wanted) + slash);
        id := null; updated_at := null; created_at := null; last_accessed_at := null; metadata := null;
        at_name := null;
        -- Everything in the folder begins with its name and a slash; `0` is the character after the
        -- slash
        if is_descending then
          upper_bound := lower(folder);
        else
          lower_bound := lower(left(folder, -1)) || '0';
        end if;
        -- Folders that differ in case are skipped with it. Another one has the same path up to a
        -- character, and that in the other case; most have none with such a beginning. The
        -- beginnings that it shares with the folder before are known.
        same := above_folders;
        if left(folder, same) <> left(compared, same) then
          other_at := null;
        else
          while same < length(folder) and substr(folder, same + 1, 1) = substr(compared, same + 1, 1) loop
            same := same + 1;
          end loop;
        end if;
        if other_at > same then
          other_at := null;
        end if;
        if other_at is null and lower(substr(folder, same + 1)) <> upper(substr(folder, same + 1)) then
          select min(at) into other_at
            from generate_series(same + 1, length(folder) - 1) as at
           cross join lateral (select substr(folder, at, 1) as letter) as own
           cross join lateral (select case when letter = lower(letter) then upper(letter) else lower(letter) end as other) as swapped
           cross join lateral (
             select from storage.objects as o
              where o.bucket_id = bucketname and o.name collate "C" >= left(folder, at - 1) || other
                and o.name collate "C" < left(folder, at - 1) || chr(ascii(other) + 1) limit 1
           ) as present
           where other <> letter;
        end if;
        compared := folder;
        spellings := array[folder];
        if other_at is not null then
          with recursive beginnings (path) as (
            select left(folder, above_folders)
            union all
            select path || letter
              from beginnings
             cross join lateral (select substr(folder, length(path) + 1, 1) as own) as next
             cross join lateral (select distinct unnest(array[own, lower(own), upper(own)]) as letter) as letters
             cross join lateral (
               select from storage.objects as o
                where o.bucket_id = bucketname and o.name collate "C" >= path || letter
                  and o.name collate "C" < path || letter || repeat(chr(1114111), 8) limit 1
             ) as present
             where length(path) < length(folder) and length(letter) = 1
          )
          select case when is_descending then array_agg(path order by path collate "C" desc) else array_agg(path order by path collate "C") end
            into spellings from beginnings where length(path) = length(folder);
        end if;
        foreach folder in array spellings loop
          if to_skip > 0 then
            to_skip := to_skip - 1;
          elsif returned < page then
            name := substr(left(folder, -1), length(start) + 1);
            returned := returned + 1;
            return next;
          end if;
        end loop;
      end if;
    else
      size := least(batch, page - returned + to_skip::bigint);
      run := 0;
      if is_descending then
        for name, id, updated_at, created_at, last_accessed_at, metadata, last_name, is_folder in
          select case when start = '' then o.name else right(o.name, -length(start)) end, o.id, o.updated_at,
                 o.created_at, o.last_accessed_at, o.metadata, o.name, o.name collate "C" like in_folder
            from storage.objects as o
           where o.bucket_id = bucketname and lower(o.name) collate "C" >= lower_bound and lower(o.name) collate "C" <= upper_bound
             and (o.name collate "C" < at_name or lower(o.name) collate "C" < upper_bound)
           order by lower(o.name) collate "C" desc, o.name collate "C" desc limit size
        loop
          exit when is_folder;
          at_name := last_name;
          run := run + 1;
          if run > to_skip then
            return next;
          end if;
        end loop;
        upper_bound := lower(at_name);
      else
        for name, id, updated_at, created_at, last_accessed_at, metadata, last_name, is_folder in
          select case when start = '' then o.name else right(o.name, -length(start)) end, o.id, o.updated_at,
                 o.created_at, o.last_accessed_at, o.metadata, o.name, o.name collate "C" like in_folder
            from storage.objects as o
           where o.bucket_id = bucketname and lower(o.name) collate "C" >= lower_bound and lower(o.name) collate "C" < upper_bound
             and (o.name collate "C" > at_name or lower(o.name) collate "C" > lower_bound)
           order by lower(o.name) collate "C", o.name collate "C" limit size
        loop
          exit when is_folder;
          at_name := last_name;
          run := run + 1;
          if run > to_skip then
            return next;
          end if;
        end loop;
        lower_bound := lower(at_name);
      end if;
      returned := returned + greatest(run - to_skip, 0);
      to_skip := greatest(to_skip - run, 0);
      batch := case when run = size then 10000 else 0 end;
    end if;
  end loop;
end $$;

create or replace function storage.list_multipart_uploads_with_delimiter(
  bucket_id text, prefix_param text, delimiter_param text, max_keys integer default 100, next_key_token text default '',
  next_upload_token text default '')
returns table (key text, id text, created_at timestamptz)
language plpgsql volatile as $$
begin
  return query
    select distinct on (folded.key collate "C") folded.key, folded.id, folded.created_at
      from (select coalesce(storage.get_common_prefix(u.key, prefix_param, nullif(delimiter_param, '')), u.key) as key, u.id, u.created_at
              from storage.s3_multipart_uploads as u
             where u.bucket_id = list_multipart_uploads_with_delimiter.bucket_id and starts_with(u.key, prefix_param)) as folded
     where next_key_token = ''
        or folded.key collate "C" > next_key_token
        or (next_upload_token <> '' and folded.key = next_key_token and folded.id collate "C" > next_upload_token)
     order by folded.key collate "C", folded.created_at, folded.id
     limit max_keys;
end $$;
reset role;
