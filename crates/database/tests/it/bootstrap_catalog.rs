//! Names, types, defaults, constraints, indexes, functions and grants, each against a table written
//! from the contract.

use super::bootstrap::{column, majors, ready, value};

/// Removes differences in how PostgreSQL prints an expression: casts, parentheses, letter case.
const NORMAL: &str = r"
    set search_path = '';
    create function pg_temp.normal(text) returns text language sql as $$
      select trim(regexp_replace(translate(regexp_replace(lower($1),
        '::(timestamp with(out)? time zone|character varying|[a-z_.]+)(\(\d+\))?(\[\])?', '', 'g'), '()', ''), '\s+', ' ', 'g'))
    $$;";

const COLUMNS: &str = r"
    select format('%s.%s|%s|%s|%s|%s', nspname, relname, attname, format_type(atttypid, atttypmod),
             case when attnotnull then 'not null' end,
             case when attidentity = 'a' then 'identity always'
                  when attgenerated = 's' then 'stored ' || pg_temp.normal(pg_get_expr(adbin, adrelid))
                  else pg_temp.normal(pg_get_expr(adbin, adrelid)) end)
      from pg_attribute join pg_class as c on c.oid = attrelid join pg_namespace as n on n.oid = relnamespace
      left join pg_attrdef on adrelid = attrelid and adnum = attnum
     where nspname in ('auth', 'storage', 'realtime') and relkind in ('r', 'p') and attnum > 0 and not attisdropped
       and relname not like 'messages\_2%' and c.oid <> 'realtime.schema_migrations'::regclass
     order by case nspname when 'auth' then 1 when 'storage' then 2 else 3 end, relname, attnum";

const CONSTRAINTS: &str = r"
    select format('%s|%s|%s', conrelid::regclass, conname, pg_temp.normal(pg_get_constraintdef(oid)))
      from pg_constraint
     where connamespace::regnamespace::text in ('auth', 'storage', 'realtime') and contype <> 'n'
       and conrelid <> 'realtime.schema_migrations'::regclass and conrelid::regclass::text not like '%messages\_2%'";

const INDEXES: &str = r"
    select format('%s|%s|%s%s', indrelid::regclass, c.relname, case when indisunique then 'unique ' end,
             pg_temp.normal(regexp_replace(pg_get_indexdef(indexrelid), '^.* USING ', '')))
      from pg_index join pg_class as c on c.oid = indexrelid
     where relnamespace::regnamespace::text in ('auth', 'storage', 'realtime')
       and not exists (select from pg_constraint where conindid = indexrelid and contype in ('p', 'u'))
       and indrelid::regclass::text not like '%messages\_2%'";

/// The contract's lines: how often each table's columns come, in their order, matters; the order of
/// tables does not.
fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

fn contract(text: &str) -> Vec<String> {
    sorted(text.lines().map(str::to_owned).collect())
}

fn compare(expected: &[String], found: &[String], what: &str) {
    let missing: Vec<_> = expected.iter().filter(|line| !found.contains(line)).collect();
    let surplus: Vec<_> = found.iter().filter(|line| !expected.contains(line)).collect();
    assert!(missing.is_empty() && surplus.is_empty(), "{what}\nmissing: {missing:#?}\nsurplus: {surplus:#?}");
}

#[tokio::test]
async fn tables_are_the_contract_s() {
    for major in majors() {
        let database = ready(major).await;
        let client = database.administrator().await.unwrap();
        client.batch_execute(NORMAL).await.unwrap();
        let columns = column(&client, COLUMNS).await;
        let expected = include_str!("contract/columns.txt");
        compare(&contract(expected), &sorted(columns.clone()), "columns");
        // Dumps without column names depend on the order
        for table in ["auth.users", "auth.identities", "storage.objects", "realtime.messages"] {
            let of = |line: &&str| line.starts_with(&format!("{table}|"));
            let expected: Vec<&str> = expected.lines().filter(of).collect();
            let found: Vec<&str> = columns.iter().map(String::as_str).filter(of).collect();
            assert_eq!(expected, found);
        }
        compare(
            &contract(include_str!("contract/constraints.txt")),
            &column(&client, CONSTRAINTS).await,
            "constraints",
        );
        compare(&contract(include_str!("contract/indexes.txt")), &column(&client, INDEXES).await, "indexes");
    }
}

/// role | login super inherit createrole createdb replication bypassrls | settings
const ROLES: &[(&str, &str, &str)] = &[
    ("anon", "fftffff", "statement_timeout=3s"),
    ("authenticated", "fftffff", "statement_timeout=8s"),
    ("service_role", "fftffft", ""),
    ("authenticator", "tffffff", "statement_timeout=8s,lock_timeout=8s"),
    ("postgres", "tftttt t", "search_path=\"\\$user\", public, extensions"),
    ("supabase_admin", "ttttttt", "search_path=\"$user\", public, auth, extensions,log_statement=none"),
    ("supabase_auth_admin", "tfftfff", "search_path=auth,idle_in_transaction_session_timeout=60000,log_statement=none"),
    ("supabase_storage_admin", "tfftfff", "search_path=storage,log_statement=none"),
    ("supabase_realtime_admin", "fffffff", "search_path=public, extensions, realtime"),
    ("supabase_functions_admin", "tfftfff", "search_path=supabase_functions"),
    ("dashboard_user", "fftttt f", ""),
    ("pgbouncer", "tftffff", ""),
    ("supabase_replication_admin", "tftfft f", ""),
    ("supabase_read_only_user", "tftffft", "default_transaction_read_only=on"),
    ("supabase_etl_admin", "tftfft t", ""),
    ("supabase_privileged_role", "fftffff", ""),
];

#[tokio::test]
async fn roles_are_the_contract_s() {
    for major in majors() {
        let database = ready(major).await;
        let client = database.administrator().await.unwrap();
        for (role, attributes, settings) in ROLES {
            let found = value(
                &client,
                &format!(
                    "select concat(rolcanlogin, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls)
                            || '|' || coalesce(array_to_string(rolconfig, ','), '') from pg_roles where rolname = '{role}'"
                ),
            )
            .await;
            assert_eq!(found, format!("{}|{settings}", attributes.replace(' ', "")), "{role} on {major}");
        }
        for (member, group) in [
            ("authenticator", "anon"),
            ("authenticator", "authenticated"),
            ("authenticator", "service_role"),
            ("postgres", "anon"),
            ("postgres", "service_role"),
            ("postgres", "pg_monitor"),
            ("postgres", "pg_read_all_data"),
            ("postgres", "pg_signal_backend"),
            ("postgres", "supabase_privileged_role"),
            ("postgres", "supabase_auth_admin"),
            ("postgres", "supabase_storage_admin"),
            ("postgres", "supabase_realtime_admin"),
            ("supabase_storage_admin", "authenticator"),
            ("supabase_realtime_admin", "authenticated"),
            ("supabase_read_only_user", "pg_read_all_data"),
            ("supabase_etl_admin", "pg_read_all_data"),
        ] {
            let sql = format!(
                "select count(*) > 0 from pg_auth_members where member = '{member}'::regrole and roleid = '{group}'::regrole"
            );
            assert_eq!(value(&client, &sql).await, "t", "{member} in {group}");
        }
        assert_eq!(
            value(&client, "select pg_get_userbyid(datdba) from pg_database where datname = current_database()").await,
            "postgres"
        );
        // Login of the API role must work: no library is preloaded that is not there
        assert_eq!(
            value(&client, "select rolconfig::text !~ 'preload' from pg_roles where rolname = 'authenticator'").await,
            "t"
        );
    }
}

/// schema | owner | who may use it | who may create in it
const SCHEMAS: &[(&str, &str, &str, &str)] = &[
    ("public", "pg_database_owner", "anon authenticated service_role postgres pgbouncer", "postgres"),
    (
        "auth",
        "supabase_admin",
        "anon authenticated service_role postgres dashboard_user supabase_auth_admin",
        "supabase_auth_admin dashboard_user",
    ),
    (
        "storage",
        "supabase_admin",
        "anon authenticated service_role postgres dashboard_user supabase_storage_admin",
        "supabase_storage_admin dashboard_user",
    ),
    (
        "realtime",
        "supabase_admin",
        "anon authenticated service_role postgres supabase_realtime_admin",
        "supabase_realtime_admin",
    ),
    ("extensions", "postgres", "anon authenticated service_role postgres dashboard_user", "postgres dashboard_user"),
    ("graphql_public", "supabase_admin", "anon authenticated service_role postgres", ""),
    ("graphql", "supabase_admin", "anon authenticated service_role postgres", ""),
    ("vault", "supabase_admin", "postgres service_role", ""),
    ("net", "supabase_admin", "supabase_functions_admin postgres anon authenticated service_role", ""),
    (
        "supabase_functions",
        "supabase_admin",
        "postgres anon authenticated service_role supabase_functions_admin",
        "supabase_functions_admin",
    ),
    ("supabase_migrations", "postgres", "postgres", "postgres"),
    ("pgbouncer", "pgbouncer", "pgbouncer", "pgbouncer"),
];
/// Without a grant none of these gets in.
const OUTSIDERS: &[(&str, &str)] = &[
    ("vault", "anon authenticated"),
    ("supabase_migrations", "anon authenticated service_role"),
    ("pgbouncer", "anon authenticated service_role"),
    ("portico", "anon authenticated service_role"),
];

#[tokio::test]
async fn schemas_are_open_to_whom_the_contract_says() {
    for major in majors() {
        let database = ready(major).await;
        let client = database.administrator().await.unwrap();
        for (schema, owner, users, creators) in SCHEMAS {
            let found = value(
                &client,
                &format!("select pg_get_userbyid(nspowner) from pg_namespace where nspname = '{schema}'"),
            )
            .await;
            assert_eq!(found, *owner, "{schema} on {major}");
            for (roles, privilege) in [(users, "usage"), (creators, "create")] {
                for role in roles.split_whitespace() {
                    let sql = format!("select has_schema_privilege('{role}', '{schema}', '{privilege}')");
                    assert_eq!(value(&client, &sql).await, "t", "{privilege} of {role} on {schema} on {major}");
                }
            }
            for role in ["anon", "authenticated", "service_role"] {
                let sql = format!("select has_schema_privilege('{role}', '{schema}', 'create')");
                assert_eq!(value(&client, &sql).await, "f", "{role} on {schema}");
            }
        }
        for (schema, roles) in OUTSIDERS {
            for role in roles.split_whitespace() {
                let sql = format!("select has_schema_privilege('{role}', '{schema}', 'usage')");
                assert_eq!(value(&client, &sql).await, "f", "{role} on {schema}");
            }
        }
    }
}

/// table | role | what it may | what it may not
const TABLE_GRANTS: &[(&str, &str, &str, &str)] = &[
    ("auth.users", "postgres", "select,insert,update,delete,references,trigger,truncate", ""),
    ("auth.users", "dashboard_user", "select,insert,update,delete", ""),
    ("auth.users", "service_role", "", "select,insert,update,delete,references"),
    ("auth.users", "authenticated", "", "select"),
    ("auth.sessions", "anon", "", "select"),
    ("auth.webauthn_credentials", "postgres", "select,insert", ""),
    ("auth.schema_migrations", "dashboard_user", "select", "insert,update,delete"),
    ("storage.objects", "anon", "select,insert,update,delete,truncate,references,trigger", ""),
    ("storage.objects", "authenticated", "select,insert,update,delete", ""),
    ("storage.buckets", "service_role", "select,insert,update,delete", ""),
    ("storage.buckets_analytics", "anon", "select,insert,update,delete", ""),
    ("storage.buckets_vectors", "anon", "select,insert", ""),
    ("storage.vector_indexes", "authenticated", "select,insert", ""),
    ("storage.s3_multipart_uploads", "authenticated", "select", "insert,update,delete"),
    ("storage.s3_multipart_uploads_parts", "anon", "select", "insert,update,delete"),
    ("storage.s3_multipart_uploads", "service_role", "select,insert,update,delete", ""),
    ("storage.migrations", "service_role", "", "insert,update,delete"),
    ("realtime.messages", "anon", "select,insert,update", "delete"),
    ("realtime.messages", "service_role", "select,insert,update", "delete"),
    ("realtime.subscription", "authenticated", "select", "insert,update,delete"),
    ("realtime.schema_migrations", "anon", "", "insert,update,delete"),
    ("supabase_functions.hooks", "anon", "select,insert", ""),
    ("vault.secrets", "service_role", "select,delete", "insert,update"),
    ("vault.decrypted_secrets", "service_role", "select", "insert,update"),
    ("portico.mail_outbox", "supabase_auth_admin", "select,insert,update,delete", ""),
    ("portico.attempts", "supabase_auth_admin", "select,insert,update,delete", ""),
    ("portico.attempts", "anon", "", "select,insert,update,delete"),
    ("portico.known_networks", "supabase_auth_admin", "select,insert,update,delete", ""),
    ("portico.known_networks", "authenticated", "", "select,insert,update,delete"),
    ("portico.totp_steps", "supabase_auth_admin", "select,insert,update,delete", ""),
    ("portico.totp_steps", "authenticated", "", "select,insert,update,delete"),
    ("portico.recovery_codes", "supabase_auth_admin", "select,insert,update,delete", ""),
    ("portico.recovery_codes", "authenticated", "", "select,insert,update,delete"),
    ("portico.link_sessions", "supabase_auth_admin", "select,insert,update,delete", ""),
    ("portico.link_sessions", "authenticated", "", "select,insert,update,delete"),
    ("portico.analytics_events", "supabase_auth_admin", "", "select,insert"),
    // Triggers of a project run as the account service's role
    ("portico.signing_keys", "supabase_auth_admin", "", "select,insert,update,delete"),
    // Reads everything, here what is encrypted
    ("portico.signing_keys", "postgres", "select", "insert,update,delete,trigger,references"),
];

#[tokio::test]
async fn tables_are_granted_as_the_contract_says() {
    for major in majors() {
        let database = ready(major).await;
        let client = database.administrator().await.unwrap();
        for (table, role, may, may_not) in TABLE_GRANTS {
            for (privileges, expected) in [(may, "t"), (may_not, "f")] {
                for privilege in privileges.split(',').filter(|privilege| !privilege.is_empty()) {
                    let sql = format!("select has_table_privilege('{role}', '{table}', '{privilege}')");
                    assert_eq!(value(&client, &sql).await, expected, "{privilege} of {role} on {table} on {major}");
                }
            }
        }
        let owners = "select string_agg(distinct nspname || ':' || pg_get_userbyid(relowner), ' ') from pg_class join pg_namespace as n on n.oid = relnamespace
                       where nspname in ('auth', 'storage', 'realtime') and relkind in ('r', 'p', 'S') and (nspname, relname) <> ('realtime', 'schema_migrations')";
        assert_eq!(
            value(&client, owners).await,
            "auth:supabase_auth_admin realtime:supabase_realtime_admin storage:supabase_storage_admin"
        );
        let open = "select string_agg(relname, ' ' order by relname) from pg_class where relnamespace in ('auth'::regnamespace, 'storage'::regnamespace)
                     and relkind = 'r' and not relrowsecurity";
        assert_eq!(
            value(&client, open).await,
            "custom_oauth_providers oauth_authorizations oauth_client_states oauth_clients oauth_consents webauthn_challenges webauthn_credentials"
        );
    }
}

/// function | returns | volatility | who may call it besides its owner
const FUNCTIONS: &[(&str, &str, &str, &str)] = &[
    ("auth.uid()", "uuid", "s", "anon authenticated service_role postgres"),
    ("auth.role()", "text", "s", "anon authenticated service_role postgres"),
    ("auth.email()", "text", "s", "anon authenticated service_role postgres"),
    ("auth.jwt()", "jsonb", "s", "anon authenticated service_role postgres"),
    ("storage.foldername(text)", "text[]", "i", "anon authenticated"),
    ("storage.filename(text)", "text", "i", "anon authenticated"),
    ("storage.extension(text)", "text", "i", "anon authenticated"),
    ("storage.operation()", "text", "s", "anon authenticated"),
    ("storage.allow_only_operation(text)", "boolean", "s", "anon authenticated"),
    ("storage.allow_any_operation(text[])", "boolean", "s", "anon authenticated"),
    ("storage.search(text,text,integer,integer,integer,text,text,text)", "record", "s", "authenticated"),
    ("storage.search_v2(text,text,integer,integer,text,text,text,text)", "record", "s", "authenticated"),
    ("storage.list_objects_with_delimiter(text,text,text,integer,text,text,text)", "record", "s", "authenticated"),
    ("storage.search_by_timestamp(text,text,integer,integer,text,text,text,text)", "record", "s", "authenticated"),
    ("storage.get_common_prefix(text,text,text)", "text", "i", "authenticated"),
    ("storage.list_multipart_uploads_with_delimiter(text,text,text,integer,text,text)", "record", "v", "authenticated"),
    ("storage.can_insert_object(text,text,uuid,jsonb)", "void", "v", "authenticated"),
    ("storage.get_size_by_bucket()", "record", "s", "authenticated"),
    ("storage.update_updated_at_column()", "trigger", "v", "authenticated"),
    ("storage.enforce_bucket_name_length()", "trigger", "v", "authenticated"),
    ("storage.protect_delete()", "trigger", "v", "authenticated"),
    ("realtime.topic()", "text", "s", "anon authenticated"),
    ("realtime.send(jsonb,text,text,boolean)", "void", "v", "anon authenticated"),
    ("realtime.send_binary(bytea,text,text,boolean)", "void", "v", "anon authenticated"),
    ("realtime.broadcast_changes(text,text,text,text,text,record,record,text)", "void", "v", "anon authenticated"),
    ("realtime.to_regrole(text)", "regrole", "i", "anon"),
    ("realtime.\"cast\"(text,regtype)", "jsonb", "i", "anon"),
    ("realtime.check_equality_op(realtime.equality_op,regtype,text,text)", "boolean", "i", "anon"),
    ("realtime.check_equality_op(realtime.equality_op,regtype,text,text,boolean)", "boolean", "s", "anon"),
    (
        "realtime.is_visible_through_filters(realtime.wal_column[],realtime.user_defined_filter[])",
        "boolean",
        "s",
        "anon",
    ),
    ("realtime.build_prepared_statement_sql(text,regclass,realtime.wal_column[])", "text", "v", "anon"),
    ("realtime.quote_wal2json(regclass)", "text", "i", "anon"),
    ("realtime.wal2json_escape_identifier(text)", "text", "i", "anon"),
    ("realtime.subscription_check_filters()", "trigger", "v", "anon"),
    ("realtime.apply_rls(jsonb,integer)", "realtime.wal_rls", "v", "anon"),
    ("realtime.list_changes(name,name,integer,integer)", "record", "v", "anon"),
    ("graphql_public.graphql(text,text,jsonb,jsonb)", "jsonb", "v", "anon authenticated service_role postgres"),
    ("supabase_functions.http_request()", "trigger", "v", "anon authenticated service_role postgres"),
    ("pgbouncer.get_auth(text)", "record", "v", "pgbouncer postgres"),
    ("extensions.uuid_generate_v4()", "uuid", "v", "anon authenticated service_role postgres"),
    ("extensions.crypt(text,text)", "text", "i", "anon authenticated service_role postgres"),
    ("extensions.gen_salt(text)", "text", "v", "postgres"),
    ("portico.pgrst_ddl_watch()", "event_trigger", "v", ""),
    ("portico.pgrst_drop_watch()", "event_trigger", "v", ""),
    ("portico.grant_pg_cron_access()", "event_trigger", "v", ""),
    ("portico.grant_pg_net_access()", "event_trigger", "v", ""),
    ("portico.grant_pg_graphql_access()", "event_trigger", "v", ""),
    ("portico.set_graphql_placeholder()", "event_trigger", "v", ""),
    ("vault.create_secret(text,text,text,uuid)", "uuid", "v", "postgres service_role"),
    ("vault.update_secret(uuid,text,text,text,uuid)", "void", "v", "postgres service_role"),
    (
        "net.http_get(text,jsonb,jsonb,integer)",
        "bigint",
        "v",
        "postgres anon authenticated service_role supabase_functions_admin",
    ),
    ("net.http_post(text,jsonb,jsonb,jsonb,integer)", "bigint", "v", "postgres anon authenticated service_role"),
    ("net.http_delete(text,jsonb,jsonb,integer,jsonb)", "bigint", "v", "postgres"),
    ("net._http_collect_response(bigint,boolean)", "net.http_response_result", "v", "postgres"),
];

#[tokio::test]
async fn functions_are_the_contract_s() {
    for major in majors() {
        let database = ready(major).await;
        let client = database.administrator().await.unwrap();
        for (signature, returns, volatility, callers) in FUNCTIONS {
            let found = column(
                &client,
                &format!("select format('%s %s', prorettype::regtype, provolatile) from pg_proc where oid = to_regprocedure('{signature}')"),
            )
            .await;
            assert_eq!(found, [format!("{returns} {volatility}")], "{signature} on {major}");
            for caller in callers.split_whitespace() {
                let sql = format!("select has_function_privilege('{caller}', '{signature}', 'execute')");
                assert_eq!(value(&client, &sql).await, "t", "{caller} calls {signature} on {major}");
            }
        }
        for outsider in ["anon", "authenticated"] {
            for signature in ["pgbouncer.get_auth(text)", "vault.create_secret(text,text,text,uuid)"] {
                let sql = format!("select has_function_privilege('{outsider}', '{signature}', 'execute')");
                assert_eq!(value(&client, &sql).await, "f", "{outsider} calls {signature}");
            }
        }
    }
}

/// creator | schema | kind (r, S, f) | who gets something
const DEFAULTS: &[(&str, &str, &str, &str)] = &[
    ("postgres", "public", "r", "anon authenticated postgres service_role"),
    ("postgres", "public", "S", "anon authenticated postgres service_role"),
    ("postgres", "public", "f", "anon authenticated postgres service_role"),
    ("supabase_admin", "public", "r", "anon authenticated postgres service_role"),
    ("supabase_admin", "graphql_public", "r", "anon authenticated postgres service_role"),
    ("supabase_admin", "extensions", "r", "postgres"),
    ("supabase_admin", "realtime", "r", "dashboard_user postgres"),
    ("supabase_auth_admin", "auth", "r", "dashboard_user postgres"),
    ("supabase_auth_admin", "auth", "S", "dashboard_user postgres"),
    ("supabase_auth_admin", "auth", "f", "dashboard_user postgres"),
    ("supabase_storage_admin", "storage", "r", "anon authenticated postgres service_role"),
    ("supabase_storage_admin", "storage", "f", "anon authenticated postgres service_role"),
];

#[tokio::test]
async fn enumerations_default_privileges_publications_and_watches_exist() {
    for major in majors() {
        let database = ready(major).await;
        let client = database.administrator().await.unwrap();
        for (creator, schema, kind, grantees) in DEFAULTS {
            let sql = format!(
                "select string_agg(distinct grantee::regrole::text, ' ' order by grantee::regrole::text)
                   from pg_default_acl, aclexplode(defaclacl)
                  where defaclrole = '{creator}'::regrole and defaclnamespace = '{schema}'::regnamespace and defaclobjtype = '{kind}'"
            );
            assert_eq!(value(&client, &sql).await, *grantees, "{creator} {schema} {kind}");
        }
        for (name, labels) in [
            ("auth.aal_level", "{aal1,aal2,aal3}"),
            ("auth.code_challenge_method", "{s256,plain}"),
            ("auth.factor_status", "{unverified,verified}"),
            ("auth.factor_type", "{totp,webauthn,phone}"),
            (
                "auth.one_time_token_type",
                "{confirmation_token,reauthentication_token,recovery_token,email_change_token_new,email_change_token_current,phone_change_token}",
            ),
            ("auth.oauth_registration_type", "{dynamic,manual}"),
            ("auth.oauth_authorization_status", "{pending,approved,denied,expired}"),
            ("auth.oauth_response_type", "{code}"),
            ("auth.oauth_client_type", "{public,confidential}"),
            ("storage.buckettype", "{STANDARD,ANALYTICS,VECTOR}"),
            ("realtime.action", "{INSERT,UPDATE,DELETE,TRUNCATE,ERROR}"),
            ("realtime.equality_op", "{eq,neq,lt,lte,gt,gte,in,like,ilike,is,match,imatch,isdistinct}"),
        ] {
            assert_eq!(value(&client, &format!("select enum_range(null::{name})::text")).await, labels);
        }
        assert_eq!(
            column(&client, "select concat_ws(' ', pubname, pubowner::regrole, puballtables, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot) from pg_publication order by 1").await,
            ["supabase_realtime postgres f t t t t f", "supabase_realtime_messages_publication supabase_admin f t t t t f"]
        );
        assert_eq!(
            column(&client, "select evtname from pg_event_trigger order by 1").await,
            [
                "issue_graphql_placeholder",
                "issue_pg_cron_access",
                "issue_pg_graphql_access",
                "issue_pg_net_access",
                "pgrst_ddl_watch",
                "pgrst_drop_watch",
                "portico_functions_changed",
                "portico_functions_dropped",
            ]
        );
        assert_eq!(value(&client, "select count(*) from auth.schema_migrations").await, "77");
        assert_eq!(value(&client, "select count(*) || ' ' || max(id) || ' ' || (select name from storage.migrations where id = 37) from storage.migrations").await, "64 63 add-bucket-name-length-trigger");
        assert_eq!(
            value(&client, "select count(*) || ' ' || max(version) from realtime.schema_migrations").await,
            "81 20260709120000"
        );
        assert_eq!(
            value(&client, "select string_agg(version, ' ' order by version) from supabase_functions.migrations").await,
            "20210809183423_update_grants initial"
        );
        assert_eq!(
            value(&client, "select obj_description('auth.users'::regclass)").await,
            "Auth: Stores user login data within a secure schema."
        );
    }
}

#[tokio::test]
async fn schema_public_has_nothing_of_ours_until_a_migration_refers_to_it() {
    for major in majors() {
        let database = ready(major).await;
        let mut session = database.migrations().await.unwrap();
        let objects = "select relname::text from pg_class where relnamespace = 'public'::regnamespace
                       union all select proname from pg_proc where pronamespace = 'public'::regnamespace
                       union all select typname from pg_type where typnamespace = 'public'::regnamespace";
        assert_eq!(column(session.client(), objects).await, [""; 0], "{major}");
        session.begin().await.unwrap();
        for statement in [
            "REVOKE EXECUTE ON FUNCTION \"public\".\"rls_auto_enable\"() FROM PUBLIC, anon, authenticated",
            "comment on function public.rls_auto_enable() is 'x'",
        ] {
            session.batch(statement).await.unwrap_or_else(|error| panic!("{statement}\n{error:?}"));
        }
        session.commit().await.unwrap();
        assert_eq!(column(session.client(), objects).await, ["rls_auto_enable"], "{major}");
    }
}
