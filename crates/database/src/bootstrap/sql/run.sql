-- `portico.run(statement)`: the statements that PostgreSQL keeps for superusers and the hosted
-- service allows to postgres. A statement is never executed as it was written: it is taken apart,
-- and a new one is made of the parts that were understood.
do $outer$
begin
  if not pg_temp.is_superuser() then
    return;
  end if;

  -- Makes a function that an event trigger calls run as its owner, a role that no login can become.
  -- In the script of an extension it would otherwise run as a superuser, and the project could
  -- replace its text.
  create or replace function portico.confine(routine oid) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
  begin
    execute format('alter function %s security definer', routine::regprocedure);
    if not exists (select from pg_proc as p, unnest(p.proconfig) as entry where p.oid = routine and entry like 'search\_path=%') then
      execute format('alter function %s set search_path = public, extensions, pg_temp', routine::regprocedure);
    end if;
    execute format('alter function %s owner to portico_events', routine::regprocedure);
  end $$;

  create or replace function portico.is_event_trigger_of_project(trigger_name text) returns boolean
  language sql stable set search_path = pg_catalog, pg_temp as $$
    select exists (
      select from pg_event_trigger join pg_proc as p on p.oid = evtfoid join pg_roles as owner on owner.oid = p.proowner
       where evtname = trigger_name and (owner.rolname = 'portico_events' or p.oid = to_regprocedure('portico.rls_auto_enable()')))
  $$;

  -- Refuses an extension whose script could meet objects of the project. The script runs as a
  -- superuser, finds names in the schemas of the extension and of those it requires, and may call
  -- functions. The locks keep objects from appearing until the script has ended; each statement of
  -- a function sees what was committed before the lock.
  create or replace function portico.check_schemas_for(extension name, target name) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
  declare
    schemas name[];
    missing name;
    stranger record;
  begin
    -- Then there is no script, and `create extension` says what is missing
    if not exists (select from pg_available_extensions where name = extension) then
      return;
    end if;
    -- Names are looked up in the newest state of the catalog, and an older one would be checked
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
      raise exception 'extension "%" cannot be created in a transaction of isolation level %', extension, current_setting('transaction_isolation')
        using errcode = '25001';
    end if;
    lock table pg_proc, pg_operator, pg_type, pg_class, pg_namespace in share row exclusive mode;
    select needed.name into missing
      from (select distinct unnest(requires) as name from pg_available_extension_versions as v join pg_available_extensions as a using (name)
             where v.name = extension and v.version = a.default_version) as needed
     where not exists (select from pg_extension where extname = needed.name)
     limit 1;
    if found then
      raise exception 'extension "%" requires the extension "%"', extension, missing
        using errcode = '42704', hint = format('Create it before: create extension if not exists %I with schema extensions;', missing);
    end if;
    select array_agg(distinct schema) into schemas
      from (select target as schema
            union all
            select v.schema from pg_available_extension_versions as v where v.name = extension and v.schema is not null
            union all
            select n.nspname from pg_available_extension_versions as v, unnest(v.requires) as required
              join pg_extension on extname = required join pg_namespace as n on n.oid = extnamespace where v.name = extension) as all_schemas;
    select object.name, n.nspname as schema into stranger
      from (select oid::regprocedure::text as name, pronamespace as schema, proowner as owner from pg_proc
            union all
            select oid::regoperator::text, oprnamespace, oprowner from pg_operator
            union all
            select oid::regtype::text, typnamespace, typowner from pg_type
            union all
            select oid::regclass::text, relnamespace, relowner from pg_class) as object
      join pg_namespace as n on n.oid = object.schema join pg_roles as r on r.oid = object.owner
     where n.nspname = any (schemas) and not r.rolsuper
     limit 1;
    if found then
      raise exception 'extension "%" cannot be created beside %, which belongs to the project', extension, stranger.name
        using errcode = '42501', hint = format('Its script runs as a superuser, so schema %I must contain nothing of the project. Choose another schema: %s;', stranger.schema,
          case when 'extensions' = any (schemas) then format('create schema %1$I; create extension %1$I with schema %1$I', extension)
               else format('create extension %I with schema extensions', extension) end);
    end if;
  end $$;

  create or replace function portico.run(statement text) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
  declare
    word constant text := '(?:[[:alpha:]_][[:alnum:]_$]*|"(?:[^"]|"")+")';
    names constant text := word || '(?:\s*\.\s*' || word || ')*';
    word_list constant text := word || '(?:\s*,\s*' || word || ')*';
    -- Extensions whose scripts are safe in schemas that others may have filled
    permitted constant text[] := '{autoinc,bloom,dict_xsyn,earthdistance,insert_username,moddatetime,pg_buffercache,pg_prewarm,pg_stat_statements,pg_walinspect,pgrowlocks,pgstattuple,postgres_fdw,refint,sslinfo,vector}';
    -- Further extensions of the hosted service. Their scripts may call functions
    checked constant text[] := '{address_standardizer,address_standardizer_data_us,http,hypopg,index_advisor,pg_hashids,pg_jsonschema,pgrouting,plpgsql_check,plv8,postgis,postgis_raster,postgis_sfcgal,postgis_tiger_geocoder,postgis_topology,rum}';
    emulated constant text[] := '{supabase_vault,pg_net,pg_cron,pgjwt,pg_graphql}';
    rest text := statement;
    part text[];
    target text[];
    routine regprocedure;
    is_allowed boolean;
  begin
    loop
      rest := regexp_replace(rest, '^\s+', '');
      if rest like '--%' then
        rest := regexp_replace(rest, '^--[^\n]*(\n|$)', '');
      elsif rest like '/*%' then
        rest := regexp_replace(rest, '^/\*.*?(\*/|$)', '');
      else
        exit;
      end if;
    end loop;
    rest := regexp_replace(rest, '\s*(;\s*(--[^\n]*\s*)?)?$', '');

    part := regexp_match(rest, '^create\s+event\s+trigger\s+(' || word || ')\s+on\s+(ddl_command_start|ddl_command_end|sql_drop|table_rewrite)\s+'
      || '(?:when\s+tag\s+in\s*\(\s*(''[A-Za-z ]+''(?:\s*,\s*''[A-Za-z ]+'')*)\s*\)\s*)?execute\s+(?:function|procedure)\s+(' || names || ')\s*\(\s*\)$', 'i');
    if part is not null then
      target := parse_ident(part[4]);
      if array_length(target, 1) = 1 then
        target := array['public'] || target;
      end if;
      routine := case when array_length(target, 1) = 2 then to_regprocedure(format('%I.%I()', target[1], target[2])) end;
      if target = '{public,rls_auto_enable}' then
        -- The hosted service has it in every new project
        routine := 'portico.rls_auto_enable()'::regprocedure;
      elsif routine is null then
        raise exception 'function %() does not exist', part[4] using errcode = '42883';
      elsif (select prorettype from pg_proc where oid = routine) <> 'event_trigger'::regtype then
        raise exception 'function % must return type event_trigger', routine using errcode = '42P17';
      elsif (select proowner::regrole::text from pg_proc where oid = routine) not in ('postgres', 'portico_events') then
        raise exception 'must be owner of function %', routine using errcode = '42501';
      elsif current_setting('server_version_num')::int < 160000 then
        raise exception 'permission denied to create event trigger "%"', (parse_ident(part[1]))[1]
          using errcode = '42501', hint = 'Before PostgreSQL 16 only a superuser can create one.';
      else
        perform portico.confine(routine);
      end if;
      execute format('create event trigger %I on %s %s execute function %s', (parse_ident(part[1]))[1], lower(part[2]),
        coalesce('when tag in (' || part[3] || ')', ''), routine);
      return;
    end if;

    part := regexp_match(rest, '^drop\s+event\s+trigger\s+(if\s+exists\s+)?(' || word || ')(?:\s+(?:cascade|restrict))?$', 'i');
    if part is null then
      part := regexp_match(rest, '^alter\s+event\s+trigger\s+()(' || word || ')\s+(disable|enable)$', 'i');
    end if;
    if part is not null then
      target := parse_ident(part[2]);
      if not exists (select from pg_event_trigger where evtname = target[1]) then
        if coalesce(part[1], '') = '' then
          raise exception 'event trigger "%" does not exist', target[1] using errcode = '42704';
        end if;
        return;
      elsif not portico.is_event_trigger_of_project(target[1]) then
        raise exception 'must be owner of event trigger %', target[1] using errcode = '42501';
      elsif part[3] is not null then
        execute format('alter event trigger %I %s', target[1], part[3]);
        return;
      end if;
      select evtfoid::regprocedure into routine from pg_event_trigger where evtname = target[1];
      execute format('drop event trigger %I', target[1]);
      -- Without an event trigger a function is postgres' own again
      if (select proowner::regrole::text from pg_proc where oid = routine) = 'portico_events'
         and not exists (select from pg_event_trigger where evtfoid = routine)
      then
        execute format('alter function %s owner to postgres', routine);
      end if;
      return;
    end if;

    part := regexp_match(rest, '^create\s+publication\s+(' || word || ')\s+for\s+(?:all\s+tables|tables\s+in\s+schema\s+(' || word_list || '))(?:\s+with\s*\(([^()]*)\))?$', 'i');
    if part is not null then
      if part[3] !~* '^\s*[a-z_]+\s*(=\s*(''[a-z, ]*''|[a-z]+)\s*)?(,\s*[a-z_]+\s*(=\s*(''[a-z, ]*''|[a-z]+)\s*)?)*$' then
        raise exception 'the options of the publication are not understood' using errcode = '42601';
      end if;
      execute format('create publication %I for %s %s', (parse_ident(part[1]))[1],
        coalesce('tables in schema ' || (select string_agg(quote_ident((parse_ident(schema))[1]), ', ') from regexp_split_to_table(part[2], '\s*,\s*') as schema), 'all tables'),
        coalesce('with (' || part[3] || ')', ''));
      return;
    end if;

    part := regexp_match(rest, '^alter\s+publication\s+()(' || word || ')\s+(add|set|drop)\s+tables\s+in\s+schema\s+(' || word_list || ')$', 'i');
    if part is null then
      part := regexp_match(rest, '^drop\s+publication\s+(if\s+exists\s+)?(' || word || ')(?:\s+(?:cascade|restrict))?$', 'i');
    end if;
    if part is not null then
      target := parse_ident(part[2]);
      select p.pubowner = 'postgres'::regrole or p.puballtables or exists (select from pg_publication_namespace where pnpubid = p.oid)
        into is_allowed from pg_publication as p where p.pubname = target[1];
      if not found then
        if coalesce(part[1], '') = '' then
          raise exception 'publication "%" does not exist', target[1] using errcode = '42704';
        end if;
      elsif not is_allowed then
        raise exception 'must be owner of publication %', target[1] using errcode = '42501';
      elsif part[3] is null then
        execute format('drop publication %I', target[1]);
      else
        execute format('alter publication %I %s tables in schema %s', target[1], part[3],
          (select string_agg(quote_ident((parse_ident(schema))[1]), ', ') from regexp_split_to_table(part[4], '\s*,\s*') as schema));
      end if;
      return;
    end if;

    part := regexp_match(rest, '^alter\s+(?:(database)|role|user)\s+(' || word || ')\s+set\s+(' || names || ')\s*(?:=|\mto\M)\s*(?:''((?:[^''\\]|'''')*)''|([[:alnum:]_.+-]+))$', 'i');
    if part is not null then
      target := array[(parse_ident(part[2]))[1], array_to_string(parse_ident(part[3]), '.'), coalesce(replace(part[4], '''''', ''''), part[5])];
      -- Of other names some belong to libraries, which take them from superusers only
      if target[2] !~ '^app(\.[[:alpha:]_][[:alnum:]_$]*)+$' then
        raise exception 'permission denied to set parameter "%"', target[2] using errcode = '42501';
      elsif part[1] is not null and not exists (select from pg_database where datname = target[1] and datdba = 'postgres'::regrole) then
        raise exception 'must be owner of database %', target[1] using errcode = '42501';
      elsif part[1] is null and exists (select from pg_roles where rolname = target[1] and rolsuper) then
        raise exception 'permission denied to alter role' using errcode = '42501';
      end if;
      execute format('grant set on parameter %s to postgres',
        (select string_agg(quote_ident(piece), '.' order by place) from regexp_split_to_table(target[2], '\.') with ordinality as pieces(piece, place)));
      execute format('alter %s %I set %I to %L', case when part[1] is null then 'role' else 'database' end, target[1], target[2], target[3]);
      return;
    end if;

    part := regexp_match(rest, '^create\s+extension\s+(if\s+not\s+exists\s+)?(' || word || ')(?:\s+with)?(?:\s+schema\s+(' || word || '))?(?:\s+version\s+(?:''[^'']*''|' || word || '))?(\s+cascade)?$', 'i');
    if part is not null then
      target := array[(parse_ident(part[2]))[1], coalesce((parse_ident(part[3]))[1], 'public')];
      if target[1] = any (emulated) and not exists (select from pg_available_extensions where name = target[1]) then
        return;
      elsif part[1] is not null and exists (select from pg_extension where extname = target[1]) then
        return;
      elsif not target[1] = any (permitted || checked) then
        raise exception 'permission denied to create extension "%"', target[1] using errcode = '42501';
      elsif not has_schema_privilege('postgres', target[2], 'create') then
        raise exception 'permission denied for schema %', target[2] using errcode = '42501';
      elsif target[1] = any (checked) then
        perform portico.check_schemas_for(target[1], target[2]);
        part[4] := null;
      end if;
      -- An extension that has a schema of its own refuses any other
      if part[3] is null and exists (select from pg_available_extension_versions where name = target[1] and schema is not null) then
        execute format('create extension %I %s', target[1], part[4]);
      else
        execute format('create extension %I with schema %I %s', target[1], target[2], part[4]);
      end if;
      if target[1] = 'postgres_fdw' then
        grant usage on foreign data wrapper postgres_fdw to postgres with grant option;
      end if;
      return;
    end if;

    part := regexp_match(rest, '^drop\s+extension\s+(if\s+exists\s+)?(' || word || ')(?:\s+restrict)?$', 'i');
    if part is not null then
      target := parse_ident(part[2]);
      if not exists (select from pg_extension where extname = target[1]) then
        if part[1] is null and not target[1] = any (emulated) then
          raise exception 'extension "%" does not exist', target[1] using errcode = '42704';
        end if;
        return;
      elsif not target[1] = any (permitted || checked) then
        raise exception 'must be owner of extension %', target[1] using errcode = '42501';
      end if;
      execute format('drop extension %I', target[1]);
      return;
    end if;

    raise exception 'portico.run does not know this statement'
      using errcode = '0A000', hint = 'It takes event triggers, publications, settings named app.*, and the extensions of the hosted service.';
  end $$;
  revoke all on function portico.check_schemas_for(name, name), portico.confine(oid), portico.is_event_trigger_of_project(text), portico.run(text) from public;
end $outer$;
