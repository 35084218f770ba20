-- Tools of the bootstrap, alive for its session only. Each one creates what is missing and leaves
-- the rest alone, so that one description serves a fresh database and one that the hosted service
-- or an older version has filled.
set client_min_messages = warning;
set search_path = pg_catalog, pg_temp;
set check_function_bodies = off;
set lock_timeout = '30s';
set statement_timeout = 0;

-- Event triggers that the project has made run with the rights of the statement's role, and ours
-- are a superuser's
do $$
begin
  if (select rolsuper from pg_roles where rolname = session_user) then
    set session_replication_role = replica;
  end if;
end $$;

-- The parts that this login may not set up: PostgreSQL's reason, the features that do not work
-- until then, and the statements by which a role with more rights sets it up.
create temporary table if not exists portico_limitation (
  what text primary key, why text not null, effect text not null, remedy text not null default ''
) on commit drop;
grant all on portico_limitation to public;

create or replace function pg_temp.is_superuser() returns boolean language sql stable as $$
  select rolsuper from pg_roles where rolname = session_user
$$;

-- The schemas whose functions run with a superuser's rights belong to superusers, with everything
-- in them. Another owner could rename them, or could have prepared them in a database that was
-- dropped and created again under the same name.
do $$
declare stranger record;
begin
  if not pg_temp.is_superuser() then
    return;
  end if;
  select object.name, owner.rolname into stranger
    from (select nspname::text as name, nspowner as owner, true as is_schema from pg_namespace where nspname in ('portico', 'portico_session', 'vault')
          union all
          select c.oid::regclass::text, relowner, false from pg_class as c join pg_namespace as n on n.oid = relnamespace where nspname in ('portico', 'portico_session', 'vault')
          union all
          select p.oid::regprocedure::text, proowner, false from pg_proc as p join pg_namespace as n on n.oid = pronamespace where nspname in ('portico', 'portico_session', 'vault')
          union all
          select o.oid::regoperator::text, oprowner, false from pg_operator as o join pg_namespace as n on n.oid = oprnamespace where nspname in ('portico', 'portico_session', 'vault')
          union all
          select t.oid::regtype::text, typowner, false from pg_type as t join pg_namespace as n on n.oid = typnamespace where nspname in ('portico', 'portico_session', 'vault')) as object
    join pg_roles as owner on owner.oid = object.owner
   where not owner.rolsuper and (object.is_schema or owner.rolname <> 'portico_vault')
   order by object.is_schema desc
   limit 1;
  if found then
    raise exception '% belongs to the role %, which is no superuser', stranger.name, stranger.rolname
      using errcode = '42501', hint = 'Give schema portico and everything in it to the login role, or drop the schema.';
  end if;
end $$;

-- On the embedded cluster the key of the vault is in a file beside PostgreSQL's data folder.
create or replace function pg_temp.has_key_file() returns boolean language plpgsql as $$
begin
  -- In two steps: a function that may not be called is an error even behind a condition that is
  -- false
  if not pg_temp.is_superuser() then
    return false;
  end if;
  return (pg_stat_file('../vault.key', true)).size is not null;
end $$;

-- Runs a statement that this login may not be allowed to run. A refusal is no error; it is noted
-- for the operator, unless `effect` is empty.
create or replace function pg_temp.attempt(what text, command text, effect text default 'it is missing') returns boolean language plpgsql as $$
begin
  execute command;
  return true;
exception when insufficient_privilege or feature_not_supported or undefined_file or undefined_object then
  if effect <> '' then
    -- A long script is none that is copied from a list
    insert into portico_limitation
    values (what, sqlerrm, effect, case when length(command) < 2000 then command || ';' else '' end) on conflict do nothing;
  end if;
  return false;
end $$;

-- Created by postgres where it may, so that a project can drop it or move it to a newer version.
create or replace function pg_temp.ensure_extension(name text, schema_name text) returns void language plpgsql as $$
begin
  if exists (select from pg_extension where extname = name) then
    return;
  end if;
  begin
    set local role postgres;
    execute format('create extension %I with schema %I', name, schema_name);
    reset role;
  exception when insufficient_privilege then
    reset role;
    perform pg_temp.attempt(format('extension %s', name), format('create extension %I with schema %I', name, schema_name), 'its functions are missing');
  when feature_not_supported or undefined_file then
    reset role;
    insert into portico_limitation values (format('extension %s', name), sqlerrm, 'its functions are missing') on conflict do nothing;
  end;
end $$;

-- `privileged`: attributes that only a superuser can give on some versions; each is left out where
-- it is refused.
create or replace function pg_temp.ensure_role(name text, attributes text, privileged text, settings text[]) returns void
language plpgsql as $$
declare
  setting text;
  attribute text;
  known text[];
begin
  if not exists (select from pg_roles where rolname = name) then
    begin
      execute format('create role %I with %s %s', name, attributes, privileged);
    exception
      when insufficient_privilege then
        if privileged = '' then raise; end if;
        execute format('create role %I with %s', name, attributes);
        foreach attribute in array string_to_array(privileged, ' ') loop
          perform pg_temp.attempt('', format('alter role %I with %s', name, attribute), '');
        end loop;
    end;
  end if;
  select rolconfig into known from pg_roles where rolname = name;
  -- Settings that were changed since stay
  if known is null then
    foreach setting in array settings loop
      perform pg_temp.attempt(format('role setting %s of %s', setting, name), format('alter role %I set %s', name, setting), '');
    end loop;
  end if;
end $$;

create or replace function pg_temp.ensure_member(member_name text, group_name text, options text, admin boolean default false, effect text default '')
returns void language plpgsql as $$
begin
  if member_name = group_name or exists (
    select from pg_auth_members
     where roleid = group_name::regrole and member = member_name::regrole and (admin_option or not admin)
       -- from 16 on, the creator of a role gets a bare admin membership that can neither inherit
       -- nor set
       and (admin or current_setting('server_version_num')::int < 160000
            or (to_jsonb(pg_auth_members) ->> 'set_option')::boolean)
  ) then return; end if;
  perform pg_temp.attempt(
    format('membership of %s in %s', member_name, group_name),
    format('grant %I to %I %s', group_name, member_name,
      case when admin then 'with admin option'
           when options <> '' and current_setting('server_version_num')::int >= 160000 then 'with ' || options
           else '' end), effect);
end $$;

-- Returns whether objects of the role can be made. Those that a superuser sets up for
-- supabase_admin belong to a superuser: a role of that name may be another project's
create or replace function pg_temp.can_be(name text) returns boolean language sql stable as $$
  select pg_has_role(session_user, name, case when current_setting('server_version_num')::int >= 160000 then 'set' else 'member' end)
     and (name <> 'supabase_admin' or not pg_temp.is_superuser() or (select rolsuper from pg_roles where rolname = name))
$$;

-- On a server whose operator keeps supabase_admin to himself, the login owns what that role would
create or replace function pg_temp.act_as(name text) returns void language plpgsql as $$
begin
  execute format('set role %I', case when pg_temp.can_be(name) then name else session_user end);
end $$;

create or replace function pg_temp.ensure_schema(name text, owner_name text) returns void language plpgsql as $$
begin
  if not exists (select from pg_namespace where nspname = name) then
    execute format('create schema %I authorization %I', name, case when pg_temp.can_be(owner_name) then owner_name else session_user end);
  end if;
end $$;

-- Labels that an older version of the type lacks are added at its end.
create or replace function pg_temp.ensure_enum(target text, labels text[]) returns void language plpgsql as $$
declare label text;
begin
  if to_regtype(target) is null then
    execute format('create type %s as enum (%s)', target, (select string_agg(quote_literal(l), ', ' order by o) from unnest(labels) with ordinality as t(l, o)));
    return;
  end if;
  foreach label in array labels loop
    if not exists (select from pg_enum where enumtypid = target::regtype and enumlabel = label) then
      execute format('alter type %s add value %L', target, label);
    end if;
  end loop;
end $$;

-- One column or constraint a line, each beginning with its name; `rest` follows the closing
-- parenthesis.
create or replace function pg_temp.ensure_table(target text, columns text, constraints text default '', rest text default '')
returns void language plpgsql as $$
declare
  line text;
  name text;
  parts text[];
begin
  if to_regclass(target) is null then
    select array_agg(case when kind = 2 then 'constraint ' else '' end || trim(l) order by kind, o) into parts
      from (select 1 as kind, l, o from regexp_split_to_table(columns, '\n') with ordinality as t(l, o)
            union all
            select 2, l, o from regexp_split_to_table(constraints, '\n') with ordinality as t(l, o)) as lines
     where trim(l) <> '';
    execute format('create table %s (%s) %s', target, array_to_string(parts, ', '), rest);
    return;
  end if;
  for line in select trim(l) from regexp_split_to_table(columns, '\n') as l where trim(l) <> '' loop
    name := split_part(line, ' ', 1);
    if not exists (select from pg_attribute where attrelid = target::regclass and attname = trim(both '"' from name) and not attisdropped) then
      execute format('alter table %s add column %s', target, line);
    end if;
  end loop;
  for line in select trim(l) from regexp_split_to_table(constraints, '\n') as l where trim(l) <> '' loop
    name := coalesce(substring(line from '^"([^"]+)"'), split_part(line, ' ', 1));
    if not exists (select from pg_constraint where conrelid = target::regclass and conname = name) then
      execute format('alter table %s add constraint %s', target, line);
    end if;
  end loop;
end $$;

create or replace function pg_temp.ensure_trigger(target text, name text, command text) returns void language plpgsql as $$
begin
  if not exists (select from pg_trigger where tgrelid = target::regclass and tgname = name) then
    execute format('create trigger %I %s', name, command);
  end if;
end $$;

-- Gives everything in a service's schema to its role: a dump restored without owners leaves it with
-- the restoring role.
create or replace function pg_temp.adopt(schema_name text, owner_name text, except_names text[] default '{}') returns void
language plpgsql as $$
declare item record;
begin
  for item in
    select 'table' as kind, c.oid::regclass::text as name from pg_class as c
     where c.relnamespace = schema_name::regnamespace and c.relkind in ('r', 'p', 'v', 'm') and c.relowner <> owner_name::regrole
       and c.relname <> all (except_names)
       and not exists (select from pg_depend where classid = 'pg_class'::regclass and objid = c.oid and deptype = 'e')
    union all
    select 'routine', p.oid::regprocedure::text from pg_proc as p
     where p.pronamespace = schema_name::regnamespace and p.proowner <> owner_name::regrole
       and not exists (select from pg_depend where classid = 'pg_proc'::regclass and objid = p.oid and deptype = 'e')
    union all
    select 'type', t.oid::regtype::text from pg_type as t
     where t.typnamespace = schema_name::regnamespace and t.typowner <> owner_name::regrole and t.typtype in ('e', 'd')
    union all
    select 'type', t.oid::regtype::text from pg_type as t join pg_class as c on c.oid = t.typrelid and c.relkind = 'c'
     where t.typnamespace = schema_name::regnamespace and t.typowner <> owner_name::regrole
  loop
    perform pg_temp.attempt(format('owner of %s', item.name), format('alter %s %s owner to %I', item.kind, item.name, owner_name));
  end loop;
end $$;

grant execute on all functions in schema pg_temp to public;
