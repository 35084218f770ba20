-- The change feed in SQL: which subscriber may see which part of a change. Kept for tools that call
-- it.
set role supabase_realtime_admin;

create or replace function realtime."cast"(val text, type_ regtype) returns jsonb language plpgsql immutable as $$
declare result jsonb;
begin
  if type_ = 'bytea'::regtype then
    return to_jsonb(val);
  end if;
  execute format('select to_jsonb(%L::%s)', val, type_::text) into result;
  return result;
end $$;

create or replace function realtime.check_equality_op(op realtime.equality_op, type_ regtype, val_1 text, val_2 text)
returns boolean language plpgsql immutable as $$
declare
  symbol text := case op when 'eq' then '=' when 'neq' then '!=' when 'lt' then '<' when 'lte' then '<=' when 'gt' then '>'
                         when 'gte' then '>=' when 'in' then '= any' end;
  result boolean;
begin
  if symbol is null then
    raise exception 'unsupported equality operator: %', op;
  end if;
  if type_ is null or val_1 is null or val_2 is null then
    return null;
  end if;
  execute format(case op when 'in' then 'select %L::%s %s (%L::%s[])' else 'select %L::%s %s %L::%s' end,
    val_1, type_::text, symbol, val_2, type_::text) into result;
  return result;
end $$;

create or replace function realtime.check_equality_op(op realtime.equality_op, type_ regtype, val_1 text, val_2 text, negate boolean)
returns boolean language plpgsql stable as $$
declare result boolean;
begin
  case op
    when 'is' then
      if val_2 is null or lower(val_2) not in ('null', 'true', 'false', 'unknown') then
        raise exception 'invalid value for is filter: must be null, true, false, or unknown';
      end if;
      execute format('select %L::%s is %s %s', val_1, type_::text, case when negate then 'not' else '' end, lower(val_2)) into result;
      return result;
    when 'isdistinct' then
      execute format('select %L::%s is %s distinct from %L::%s', val_1, type_::text, case when negate then 'not' else '' end,
        val_2, type_::text) into result;
      return result;
    when 'like' then result := val_1 like val_2;
    when 'ilike' then result := val_1 ilike val_2;
    when 'match' then result := val_1 ~ val_2;
    when 'imatch' then result := val_1 ~* val_2;
    else result := realtime.check_equality_op(op, type_, val_1, val_2);
  end case;
  return case when negate then not result else result end;
end $$;

create or replace function realtime.is_visible_through_filters(columns realtime.wal_column[], filters realtime.user_defined_filter[])
returns boolean language sql stable as $$
  select coalesce(cardinality(filters), 0) = 0
      or coalesce((
           select bool_and(coalesce(
                    col.name is not null
                    and realtime.check_equality_op(filter.op, col.type_oid::regtype, col.value #>> '{}', filter.value,
                                                   coalesce(filter.negate, false)),
                    false))
             from unnest(filters) as filter
             left join unnest(columns) as col on col.name = filter.column_name), false)
$$;

create or replace function realtime.build_prepared_statement_sql(prepared_statement_name text, entity regclass, columns realtime.wal_column[])
returns text language sql volatile as $$
  select 'prepare ' || prepared_statement_name || ' as select exists(select 1 from ' || entity || ' where '
         || string_agg(quote_ident(col.name) || '=' || quote_nullable(col.value #>> '{}'), ' and ') || ')'
    from unnest(columns) as col
   where col.is_pkey
$$;

create or replace function realtime.wal2json_escape_identifier(name text) returns text language sql immutable strict as $$
  select regexp_replace(name, '([\\,.\s])', '\\\1', 'g')
$$;

create or replace function realtime.quote_wal2json(entity regclass) returns text language sql immutable strict as $$
  select realtime.wal2json_escape_identifier(nspname) || '.' || realtime.wal2json_escape_identifier(relname)
    from pg_catalog.pg_class join pg_catalog.pg_namespace on pg_namespace.oid = relnamespace
   where pg_class.oid = entity
$$;

create or replace function realtime.subscription_check_filters() returns trigger language plpgsql as $$
declare
  readable text[] := (
    select coalesce(array_agg(attname order by attnum), '{}')
      from pg_catalog.pg_attribute
     where attrelid = new.entity and attnum > 0 and not attisdropped
       and has_column_privilege(new.claims ->> 'role', new.entity, attnum, 'select'));
  filter realtime.user_defined_filter;
  column_type regtype;
  chosen text;
begin
  foreach filter in array new.filters loop
    if filter.column_name is null or not filter.column_name = any (readable) then
      raise exception 'invalid column for filter %', filter.column_name;
    end if;
    column_type := (select atttypid::regtype from pg_catalog.pg_attribute
                     where attrelid = new.entity and attname = filter.column_name and not attisdropped);
    if column_type is null then
      raise exception 'failed to lookup type for column %', filter.column_name;
    end if;
    case
      when filter.op = 'in' then
        if coalesce(jsonb_array_length(realtime."cast"(filter.value, (column_type::text || '[]')::regtype)), 0) > 100 then
          raise exception 'too many values for `in` filter. Maximum 100';
        end if;
      when filter.op = 'is' then
        if filter.value is null or lower(filter.value) not in ('null', 'true', 'false', 'unknown') then
          raise exception 'invalid value for is filter: must be null, true, false, or unknown';
        end if;
        if lower(filter.value) <> 'null' and column_type <> 'boolean'::regtype then
          raise exception 'is % filter requires a boolean column, got %', filter.value, column_type;
        end if;
      when filter.op in ('like', 'ilike', 'match', 'imatch') then
        if (select typcategory from pg_catalog.pg_type where oid = column_type) <> 'S' then
          raise exception 'operator % requires a text-compatible column type, got %', filter.op, column_type;
        end if;
        if filter.op in ('match', 'imatch') then
          begin
            perform '' ~ filter.value;
          exception when others then
            raise exception 'invalid regular expression for % filter: %', filter.op, sqlerrm;
          end;
        end if;
      else
        perform realtime."cast"(filter.value, column_type);
    end case;
  end loop;

  if new.selected_columns is not null then
    foreach chosen in array new.selected_columns loop
      if not chosen = any (readable) then
        raise exception 'invalid column for select %', chosen;
      end if;
    end loop;
    new.selected_columns := (select array_agg(name order by name) from unnest(new.selected_columns) as name);
  end if;

  -- One order for equal sets, so that the unique index sees them as equal
  new.filters := coalesce((
    select array_agg(f order by f.column_name, f.op, f.value, f.negate) from unnest(new.filters) as f), '{}');
  return new;
end $$;

create or replace function realtime.apply_rls(wal jsonb, max_record_bytes integer default 1048576)
returns setof realtime.wal_rls language plpgsql volatile as $$
#variable_conflict use_variable
declare
  change_entity regclass := format('%I.%I', wal ->> 'schema', wal ->> 'table')::regclass;
  action realtime.action := case wal ->> 'action' when 'I' then 'INSERT' when 'U' then 'UPDATE' when 'D' then 'DELETE'
                                                  when 'T' then 'TRUNCATE' else 'ERROR' end;
  is_rls_enabled boolean := (select relrowsecurity from pg_catalog.pg_class where oid = change_entity);
  is_too_large boolean := octet_length(wal::text) > max_record_bytes;
  outer_role text := coalesce(nullif(current_setting('role', true), ''), 'none');
  outer_claims text := coalesce(current_setting('request.jwt.claims', true), '');
  head jsonb := jsonb_build_object('schema', wal ->> 'schema', 'table', wal ->> 'table', 'type', action);
  working_role name;
  columns realtime.wal_column[];
  old_columns realtime.wal_column[];
  key_test text;
  subscriber realtime.subscription;
  visible uuid[];
  is_visible boolean;
  selection record;
  is_bare boolean;
  output jsonb;
begin
  for working_role in
    select distinct r.rolname
      from realtime.subscription as s join pg_catalog.pg_roles as r on r.oid = s.claims_role
     where s.entity = change_entity and s.action_filter in ('*', action::text)
     order by 1
  loop
    -- A value that did not change and lies out of line is only in the identity
    select array_agg((c.name, t.typname, c.type_oid, c.value, c.is_pkey,
                      has_column_privilege(working_role, change_entity, c.name, 'select'))::realtime.wal_column order by c.place)
      into columns
      from (select entry ->> 'name' as name, (entry ->> 'typeoid')::oid as type_oid, entry -> 'value' as value,
                   exists (select from jsonb_array_elements(coalesce(wal -> 'pk', '[]')) as k where k ->> 'name' = entry ->> 'name') as is_pkey,
                   (select attnum from pg_catalog.pg_attribute where attrelid = change_entity and attname = entry ->> 'name' and not attisdropped) as place
              from (select value as entry from jsonb_array_elements(coalesce(wal -> 'columns', '[]'))
                    union all
                    select value from jsonb_array_elements(coalesce(wal -> 'identity', '[]')) as i
                     where not exists (select from jsonb_array_elements(coalesce(wal -> 'columns', '[]')) as c
                                        where c ->> 'name' = i.value ->> 'name')) as entries) as c
      left join pg_catalog.pg_type as t on t.oid = c.type_oid
     where c.place is not null;
    select array_agg((entry ->> 'name', t.typname, (entry ->> 'typeoid')::oid, entry -> 'value',
                      exists (select from jsonb_array_elements(coalesce(wal -> 'pk', '[]')) as k where k ->> 'name' = entry ->> 'name'),
                      has_column_privilege(working_role, change_entity, entry ->> 'name', 'select'))::realtime.wal_column)
      into old_columns
      from jsonb_array_elements(coalesce(wal -> 'identity', '[]')) as entry
      left join pg_catalog.pg_type as t on t.oid = (entry ->> 'typeoid')::oid;

    if action <> 'DELETE' and not exists (select from unnest(columns) as c where c.is_pkey) then
      return next (head, is_rls_enabled,
        (select array_agg(s.subscription_id) from realtime.subscription as s
          where s.entity = change_entity and s.claims_role = quote_ident(working_role)::regrole and s.action_filter in ('*', action::text)),
        array['Error 400: Bad Request, no primary key'])::realtime.wal_rls;
      continue;
    end if;
    if action <> 'DELETE' and exists (select from unnest(columns) as c where c.is_pkey and not c.is_selectable) then
      return next (head, is_rls_enabled,
        (select array_agg(s.subscription_id) from realtime.subscription as s
          where s.entity = change_entity and s.claims_role = quote_ident(working_role)::regrole and s.action_filter in ('*', action::text)),
        array['Error 401: Unauthorized'])::realtime.wal_rls;
      continue;
    end if;

    key_test := (select format('select exists(select 1 from %s where %s)', change_entity,
                   string_agg(format('%I = %L', c.name, c.value #>> '{}'), ' and ')) from unnest(columns) as c where c.is_pkey);
    visible := '{}';
    for subscriber in
      select s.* from realtime.subscription as s
       where s.entity = change_entity and s.claims_role = quote_ident(working_role)::regrole and s.action_filter in ('*', action::text)
    loop
      is_visible := realtime.is_visible_through_filters(columns, subscriber.filters)
                    or (action = 'DELETE' and realtime.is_visible_through_filters(old_columns, subscriber.filters));
      if is_visible and is_rls_enabled and action <> 'DELETE' then
        perform set_config('request.jwt.claims', subscriber.claims::text, true), set_config('role', working_role, true);
        execute key_test into is_visible;
        perform set_config('role', outer_role, true);
      end if;
      if is_visible then
        visible := visible || subscriber.subscription_id;
      end if;
    end loop;
    perform set_config('request.jwt.claims', outer_claims, true);

    for selection in
      select s.selected_columns, array_agg(s.subscription_id) as ids
        from realtime.subscription as s
       where s.subscription_id = any (visible) and s.entity = change_entity
         and s.claims_role = quote_ident(working_role)::regrole and s.action_filter in ('*', action::text)
       group by s.selected_columns
    loop
      is_bare := selection.selected_columns is null;
      output := head || jsonb_build_object(
        'commit_timestamp', to_char((wal ->> 'timestamp')::timestamptz at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
        'columns', (select jsonb_agg(jsonb_build_object('name', a.attname, 'type', t.typname) order by a.attnum)
                      from pg_catalog.pg_attribute as a join pg_catalog.pg_type as t on t.oid = a.atttypid
                     where a.attrelid = change_entity and a.attnum > 0 and not a.attisdropped
                       and has_column_privilege(working_role, change_entity, a.attnum, 'select')
                       and (is_bare or a.attname = any (selection.selected_columns)
                            or exists (select from jsonb_array_elements(coalesce(wal -> 'pk', '[]')) as k where k ->> 'name' = a.attname))));
      if action in ('INSERT', 'UPDATE') then
        output := output || jsonb_build_object('record', coalesce((
          select jsonb_object_agg(c.name, c.value) from unnest(columns) as c
           where c.is_selectable and (is_bare or c.is_pkey or c.name = any (selection.selected_columns))
             and (not is_too_large or octet_length(c.value::text) <= 64)), '{}'));
      end if;
      if action in ('UPDATE', 'DELETE') then
        output := output || jsonb_build_object('old_record', coalesce((
          select jsonb_object_agg(c.name, c.value) from unnest(old_columns) as c
           where c.is_selectable and (is_bare or c.is_pkey or c.name = any (selection.selected_columns))
             -- The policies were not evaluated for the old row, so only its key is sent
             and (action = 'UPDATE' or not is_rls_enabled or c.is_pkey)
             and (not is_too_large or octet_length(c.value::text) <= 64)), '{}'));
      end if;
      return next (output, is_rls_enabled, selection.ids,
        case when is_too_large then array['Error 413: Payload Too Large'] else '{}'::text[] end)::realtime.wal_rls;
    end loop;
  end loop;
end $$;

create or replace function realtime.list_changes(publication name, slot_name name, max_changes integer, max_record_bytes integer)
returns table (wal jsonb, is_rls_enabled boolean, subscription_ids uuid[], errors text[], slot_changes_count bigint)
language sql volatile as $$
  with published as (
    select concat_ws(',', case when bool_or(pubinsert) then 'insert' end, case when bool_or(pubupdate) then 'update' end,
                     case when bool_or(pubdelete) then 'delete' end) as actions,
           coalesce(string_agg(realtime.quote_wal2json(format('%I.%I', schemaname, tablename)::regclass), ','), '') as tables
      from pg_catalog.pg_publication as p left join pg_catalog.pg_publication_tables as t on t.pubname = p.pubname
     where p.pubname = list_changes.publication
  ), raw as materialized (
    select data::jsonb as change
      from published, pg_catalog.pg_logical_slot_get_changes(slot_name, null, max_changes,
             'include-pk', 'true', 'include-transaction', 'false', 'include-timestamp', 'true', 'include-type-oids', 'true',
             'format-version', '2', 'actions', published.actions, 'add-tables', published.tables)
     where published.tables <> ''
  ), total as (select count(*) as changes from raw),
  kept as (
    select seen.* from raw, realtime.apply_rls(raw.change, max_record_bytes) as seen where seen.subscription_ids[1] is not null
  )
  select kept.wal, kept.is_rls_enabled, kept.subscription_ids, kept.errors, total.changes from kept, total
  union all
  select null, null, null, null, total.changes from total where not exists (select from kept)
$$;
do $$
begin
  if not exists (select from pg_proc where oid = 'realtime.list_changes'::regproc and proconfig is not null) then
    -- Reading a slot logs two lines each time
    perform pg_temp.attempt('quiet realtime.list_changes', 'alter function realtime.list_changes(name, name, integer, integer) set log_min_messages = fatal', '');
  end if;
end $$;
reset role;
