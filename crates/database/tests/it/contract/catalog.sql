select line from (
  select format('schema %s owner %s acl %s', nspname, pg_get_userbyid(nspowner), (select string_agg(a::text, ' ' order by a::text) from unnest(nspacl) as a)) as line
    from pg_namespace where nspname !~ '^pg_(toast|temp)'
  union all
  select format('relation %s kind %s owner %s rls %s acl %s', c.oid::regclass, relkind, pg_get_userbyid(relowner), relrowsecurity,
                (select string_agg(a::text, ' ' order by a::text) from unnest(relacl) as a))
    from pg_class as c where relnamespace::regnamespace::text !~ '^(pg_|information_schema)' and relkind <> 'i'
     and c.relname not like 'messages_2%'
  union all
  select format('column %s %s %s %s %s %s', attrelid::regclass, attname, format_type(atttypid, atttypmod), attnotnull,
                pg_get_expr(adbin, adrelid), attgenerated)
    from pg_attribute join pg_class as c on c.oid = attrelid left join pg_attrdef on adrelid = attrelid and adnum = attnum
   where relnamespace::regnamespace::text !~ '^(pg_|information_schema)' and attnum > 0 and not attisdropped and relkind in ('r', 'p', 'v', 'c')
     and c.relname not like 'messages_2%'
  union all
  select format('constraint %s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) from pg_constraint
   where connamespace::regnamespace::text !~ '^(pg_|information_schema)' and contype <> 'n' and conrelid::regclass::text not like '%messages_2%'
  union all
  select format('index %s', indexdef) from pg_indexes where schemaname !~ '^(pg_|information_schema)' and tablename not like 'messages_2%'
  union all
  select format('function %s owner %s definer %s settings %s volatility %s acl %s source %s', p.oid::regprocedure, pg_get_userbyid(proowner), prosecdef, proconfig,
                provolatile, (select string_agg(a::text, ' ' order by a::text) from unnest(proacl) as a), md5(prosrc))
    from pg_proc as p where pronamespace::regnamespace::text !~ '^(pg_|information_schema)'
  union all
  select format('type %s owner %s labels %s', t.oid::regtype, pg_get_userbyid(typowner),
                (select string_agg(enumlabel, ',' order by enumsortorder) from pg_enum where enumtypid = t.oid))
    from pg_type as t where typnamespace::regnamespace::text !~ '^(pg_|information_schema)' and typname !~ '^_' and typname not like 'messages_2%'
  union all
  select format('trigger %s', pg_get_triggerdef(oid)) from pg_trigger where not tgisinternal
  union all
  select format('default privileges %s %s %s %s', pg_get_userbyid(defaclrole), defaclnamespace::regnamespace, defaclobjtype,
                (select string_agg(a::text, ' ' order by a::text) from unnest(defaclacl) as a)) from pg_default_acl
  union all
  select format('role %s %s %s %s %s %s %s %s', rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication, rolbypassrls) from pg_roles
  union all
  select format('setting of %s: %s', setrole::regrole, setconfig) from pg_db_role_setting where setrole <> 0
  union all
  select format('member %s of %s admin %s', member::regrole, roleid::regrole, admin_option) from pg_auth_members
  union all
  select format('publication %s owner %s', pubname, pg_get_userbyid(pubowner)) from pg_publication
  union all
  select format('event trigger %s %s %s %s', evtname, evtevent, evttags, evtfoid::regproc) from pg_event_trigger
  union all
  select format('extension %s in %s', extname, extnamespace::regnamespace) from pg_extension
  union all
  select format('version %s', v) from (select version as v from auth.schema_migrations union all select name from storage.migrations
                                       union all select version::text from realtime.schema_migrations) as versions
) as lines order by line
