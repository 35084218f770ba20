-- Shared by all scenarios: request_context(), which returns the request that SQL runs for, and
-- pollute(), which leaves state in the session if a header of the request requests it.
--
-- Run by the superuser on a database with the bootstrap.

do $$ begin
  execute format('grant create on database %I to postgres', current_database());
end $$;

-- Needs the superuser, like the functions of an extension.
create schema pollution;
grant usage on schema pollution to public;
create function pollution.disable_triggers() returns void language plpgsql security definer as $$
begin
  perform pg_catalog.set_config('session_replication_role', 'replica', false);
end $$;

set role postgres;
create schema private;
create schema decoy;
grant usage on schema private, decoy to anon, authenticated, service_role;
create sequence private.counter;
grant usage on sequence private.counter to anon, authenticated, service_role;

-- Leaves the state in the session that the header x-leave names. A part that is not allowed where
-- this runs is skipped.
create function private.pollute() returns void language plpgsql volatile as $$
declare
  headers json := coalesce(nullif(current_setting('request.headers', true), ''), '{}');
  wanted text := headers ->> 'x-leave';
  mark text := headers ->> 'x-mark';
  command text;
  setting text[];
begin
  if wanted is null then
    return;
  end if;
  if wanted = 'settings' then
    foreach setting slice 1 in array array[
      ['search_path', 'decoy, public'], ['timezone', 'Asia/Tokyo'], ['statement_timeout', '123s'],
      ['lock_timeout', '124s'], ['idle_in_transaction_session_timeout', '125s'],
      ['row_security', 'off'], ['default_transaction_read_only', 'on'],
      ['default_transaction_isolation', 'serializable'], ['default_transaction_deferrable', 'on'],
      ['transaction_read_only', 'on'], ['plan_cache_mode', 'force_generic_plan'],
      ['datestyle', 'German'], ['intervalstyle', 'iso_8601'], ['bytea_output', 'escape'],
      ['extra_float_digits', '-10'], ['default_text_search_config', 'simple'],
      ['work_mem', '64kB'], ['enable_seqscan', 'off'], ['xmlbinary', 'hex'],
      ['check_function_bodies', 'off'], ['client_min_messages', 'error'],
      ['standard_conforming_strings', 'off'], ['client_encoding', 'LATIN1'],
      ['app.left', mark], ['app.settings.left', mark], ['pgrst.left', mark]
    ] loop
      begin
        perform set_config(setting[1], setting[2], false);
      exception when others then null;
      end;
    end loop;
    begin
      perform pollution.disable_triggers();
    exception when others then null;
    end;
  elsif wanted = 'request' then
    perform
      set_config('request.jwt.claims', json_build_object('sub', '00000000-0000-4000-8000-0000000000ee',
        'role', 'service_role', 'jti', mark)::text, false),
      set_config('request.jwt.claim.sub', '00000000-0000-4000-8000-0000000000ee', false),
      set_config('request.jwt.claim.role', 'service_role', false),
      set_config('request.jwt.claim', mark, false),
      set_config('request.method', 'LEFT', false),
      set_config('request.path', '/left/' || mark, false),
      set_config('request.headers', json_build_object('x-mark', mark, 'x-left', mark)::text, false),
      set_config('request.cookies', json_build_object('mark', mark)::text, false),
      set_config('response.headers', json_build_array(json_build_object('x-left', mark))::text, false),
      set_config('response.status', '299', false);
  elsif wanted = 'role' then
    begin
      perform set_config('role', 'service_role', false);
    exception when others then null;
    end;
  elsif wanted in ('objects', 'raise') then
    foreach command in array array[
      'create temporary table whose as select ' || quote_literal(mark) || '::text as who',
      'create temporary table default_function as select ' || quote_literal(mark) || '::text as mark, 1 as id',
      'prepare left_statement as select ' || quote_literal(mark),
      'declare left_cursor cursor with hold for select ' || quote_literal(mark),
      'listen "left_channel"',
      'select pg_advisory_lock(hashtext(' || quote_literal(mark) || '))',
      'select nextval(''private.counter'')'
    ] loop
      begin
        execute command;
      exception when others then null;
      end;
    end loop;
    if wanted = 'raise' then
      raise exception 'raised' using errcode = 'P0001';
    end if;
  elsif wanted = 'deallocate' then
    foreach command in array array['deallocate all', 'close all', 'discard plans', 'discard sequences',
      'discard temp', 'unlisten *', 'select pg_advisory_unlock_all()'] loop
      begin
        execute command;
      exception when others then null;
      end;
    end loop;
  end if;
end $$;

-- The request that SQL runs for; `Caller::context` computes the same text.
create function public.request_context() returns text language plpgsql volatile as $$
declare
  seen text := {inline};
begin
  perform private.pollute();
  return seen;
end $$;

-- Wrongly declared as immutable: it depends on settings.
create function public.context_immutable() returns text language plpgsql immutable as $$
begin
  return {inline};
end $$;

-- Returns true if a mark is that of the request, for checks and predicates.
create function private.is_own(mark text) returns boolean language plpgsql volatile as $$
begin
  return mark = split_part(public.request_context(), '|', 7);
end $$;

-- Like is_own, for places that accept immutable functions only.
create function private.is_own_immutable(mark text) returns boolean language plpgsql immutable as $$
begin
  return mark = split_part(public.request_context(), '|', 7);
end $$;

-- Returns the mark if it is that of the request; otherwise raises an error.
create function private.own_mark(mark text) returns text language plpgsql immutable as $$
begin
  if not private.is_own(mark) then
    raise exception 'not the mark of %', public.request_context();
  end if;
  return mark;
end $$;

-- For triggers that record the writer.
create table public.written (mark text, who text, step text);
create function private.record_new() returns trigger language plpgsql as $$
begin
  insert into public.written values (new.mark, public.request_context(), tg_name);
  return new;
end $$;
create function private.record_old() returns trigger language plpgsql as $$
begin
  insert into public.written values (old.mark, public.request_context(), tg_name);
  return old;
end $$;

-- Returns all state of a session that a request could find, except the request's own.
create function public.session_state() returns jsonb language plpgsql volatile as $$
declare
  state jsonb;
begin
  select jsonb_object_agg(name, setting) into state from pg_settings
   where coalesce(setting, '') <> coalesce(reset_val, '') and name not in ('transaction_isolation', 'transaction_read_only')
      or name in ('search_path', 'TimeZone', 'statement_timeout', 'lock_timeout', 'row_security',
        'default_transaction_read_only', 'default_transaction_isolation', 'plan_cache_mode',
        'session_replication_role', 'DateStyle', 'IntervalStyle', 'bytea_output');
  state := jsonb_build_object(
    'settings', state,
    'user', current_user,
    'own', (select jsonb_object_agg(name, current_setting(name, true)) from unnest(array['app.left',
      'app.settings.left', 'pgrst.left', 'request.jwt.claim.sub', 'request.jwt.claim.role', 'request.jwt.claim',
      'response.headers', 'response.status']) as name where nullif(current_setting(name, true), '') is not null),
    'prepared', (select count(*) from pg_prepared_statements where from_sql),
    'cursors', (select count(*) from pg_cursors where is_holdable),
    'temporary', (select jsonb_agg(relname) from pg_class where relnamespace = pg_my_temp_schema() and relkind = 'r'),
    'channels', (select jsonb_agg(channel) from pg_listening_channels() as channel),
    'locks', (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()));
  begin
    state := state || jsonb_build_object('lastval', lastval() is not null);
  exception when object_not_in_prerequisite_state then
    state := state || jsonb_build_object('lastval', null);
  end;
  begin
    state := state || jsonb_build_object('currval', currval('private.counter') is not null);
  exception when object_not_in_prerequisite_state then
    state := state || jsonb_build_object('currval', null);
  end;
  return state;
end $$;
create view public.session_states as select public.session_state() as state;

-- A name that functions do not qualify, in an exposed schema and in one that is not.
create table public.whose (who text);
insert into public.whose values ('of all');
create table decoy.whose as select 'of the decoy'::text as who;
create function decoy.split_part(text, text, integer) returns text language sql immutable as $$ select 'of the decoy' $$;
