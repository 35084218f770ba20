-- The rights that postgres has on the hosted service beyond a plain role: settings that need a
-- superuser's grant, replication, the publications, reloading the configuration.
do $$
declare
  name text;
  missing text[] := '{}';
begin
  perform pg_temp.attempt('', 'grant execute on function pg_reload_conf() to postgres', '');
  if current_setting('server_version_num')::int >= 150000 then
    foreach name in array '{session_replication_role,log_min_messages,auto_explain.log_min_duration,app.settings.jwt_secret,app.settings.jwt_exp,
      pgrst.db_schemas,pgrst.db_extra_search_path,pgrst.db_max_rows,pgrst.db_pre_request,pgrst.db_pre_config,pgrst.db_anon_role,
      pgrst.db_aggregates_enabled,pgrst.db_plan_enabled,pgrst.db_prepared_statements,pgrst.db_root_spec,pgrst.db_tx_end,
      pgrst.db_hoisted_tx_settings,pgrst.jwt_aud,pgrst.jwt_role_claim_key,pgrst.jwt_secret,pgrst.jwt_secret_is_base64,
      pgrst.jwt_cache_max_lifetime,pgrst.openapi_mode,pgrst.openapi_security_active,pgrst.openapi_server_proxy_uri,
      pgrst.server_cors_allowed_origins,pgrst.server_trace_header,pgrst.server_timing_enabled,pgrst.client_error_verbosity,
      pgrst.url_use_legacy_target_names}'::text[]
    loop
      if not coalesce(has_parameter_privilege('postgres', name, 'set'), false) then
        name := (select string_agg(quote_ident(part), '.' order by o) from regexp_split_to_table(name, '\.') with ordinality as t(part, o));
        if not pg_temp.attempt('', format('grant set on parameter %s to postgres', name), '') then
          missing := missing || name;
        end if;
      end if;
    end loop;
  end if;
  if missing <> '{}' then
    insert into portico_limitation
    values ('settings in SQL', 'only a superuser can grant them',
            'migrations may not run `alter role … set pgrst.…`, `alter database … set app.settings.…` and `set session_replication_role`',
            format('grant set on parameter %s to postgres;', array_to_string(missing, ', ')))
    on conflict do nothing;
  end if;
end $$;

do $$
begin
  if not exists (select from pg_publication where pubname = 'supabase_realtime') then
    set local role postgres;
    create publication supabase_realtime;
    reset role;
  elsif (select pubowner from pg_publication where pubname = 'supabase_realtime') <> 'postgres'::regrole then
    perform pg_temp.attempt('owner of publication supabase_realtime', 'alter publication supabase_realtime owner to postgres');
  end if;
end $$;
do $$
begin
  if not exists (select from pg_publication where pubname = 'supabase_realtime_messages_publication') then
    perform pg_temp.act_as('supabase_admin');
    perform pg_temp.attempt('publication of realtime.messages', 'create publication supabase_realtime_messages_publication for table realtime.messages', '');
    reset role;
  end if;
end $$;

-- Used by the settings step, which follows
create or replace function pg_temp.set_database_setting(name text, value text) returns void language plpgsql as $$
begin
  if exists (select from pg_db_role_setting join pg_database on pg_database.oid = setdatabase, unnest(setconfig) as entry
              where datname = current_database() and setrole = 0 and entry = name || '=' || value) then
    return;
  end if;
  perform pg_temp.attempt(format('database setting %s', name), format('alter database %I set %I = %L', current_database(), name, value),
    case name when 'app.settings.jwt_exp' then '' else 'SQL that reads it gets no value' end);
end $$;
