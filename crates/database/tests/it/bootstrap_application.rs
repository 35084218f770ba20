//! SQL as applications write it, run as `postgres` the way migrations are, and requests that meet
//! its policies.

use super::bootstrap::{ROLES_APART, column, majors, ready, ready_apart, refusal, value};

use crate::AUTH;

/// Returns one request of the API as a transaction, left open for the caller's statements.
fn request(role: &str, claims: &str) -> String {
    format!(
        r#"begin;
           select set_config('search_path', '"public", "public", "extensions"', true), set_config('role', '{role}', true),
                  set_config('request.jwt.claims', '{claims}', true), set_config('request.method', 'GET', true),
                  set_config('request.path', '/profiles', true),
                  set_config('request.headers', '{{"user-agent":"x","accept":"*/*"}}', true),
                  set_config('request.cookies', '{{}}', true)"#
    )
}

const ALICE: &str = "11111111-1111-4111-8111-111111111111";
const BOB: &str = "22222222-2222-4222-8222-222222222222";

/// Profiles, membership, storage, realtime, hooks, seeds, cron and webhooks, views and grants: what
/// migrations contain.
const APPLICATION: &[&str] = &[
    "create extension if not exists citext with schema extensions",
    "create extension if not exists \"uuid-ossp\" with schema extensions",
    "create extension if not exists pg_trgm",
    "create extension if not exists pg_net with schema extensions",
    "do $$ begin create type public.mood as enum ('calm', 'glad'); exception when duplicate_object then null; end $$",
    "create table public.profiles (id uuid primary key references auth.users (id) on delete cascade, full_name text, email text,
       handle extensions.citext unique, mood public.mood default 'calm', token uuid default uuid_generate_v4(), updated_at timestamptz)",
    "alter table public.profiles enable row level security",
    "create or replace function public.handle_new_user() returns trigger language plpgsql security definer set search_path = '' as $$
       begin insert into public.profiles (id, full_name, email) values (new.id, new.raw_user_meta_data ->> 'full_name', new.email); return new; end $$",
    "create trigger on_auth_user_created after insert on auth.users for each row execute procedure public.handle_new_user()",
    "drop trigger if exists on_auth_user_created on auth.users",
    "create or replace trigger on_auth_user_created after insert on auth.users for each row execute procedure public.handle_new_user()",
    "create function public.follow_email() returns trigger language plpgsql security definer set search_path = '' as
       $$ begin update public.profiles set email = new.email where id = new.id; return new; end $$",
    "create trigger on_auth_user_updated after update of email on auth.users for each row execute function public.follow_email()",
    "create policy \"own profile\" on public.profiles for all to authenticated using ((select auth.uid()) = id) with check ((select auth.uid()) = id)",
    "create policy \"service sees names\" on public.profiles for select using (auth.role() = 'authenticated' and (select auth.jwt() ->> 'email') = email)",
    "create policy \"mfa\" on public.profiles as restrictive for delete to authenticated using ((select auth.jwt() ->> 'aal') = 'aal2')",
    "create table public.orgs (id int primary key, name text); alter table public.orgs enable row level security",
    "create table public.members (org_id int references public.orgs, user_id uuid references auth.users (id)); alter table public.members enable row level security",
    "create schema private",
    "create function private.is_member(org int) returns boolean language sql security definer stable set search_path = '' as
       $$ select exists (select from public.members where org_id = org and user_id = (select auth.uid())) $$",
    "grant usage on schema private to authenticated",
    "create policy \"members see orgs\" on public.orgs for select to authenticated using (private.is_member(id))",
    "create policy \"admins\" on public.orgs for all to authenticated using (((auth.jwt() -> 'app_metadata' -> 'roles') ? 'admin'))",
    "create trigger touch before update on public.profiles for each row execute function public.set_updated_at()",
    "insert into storage.buckets (id, name, public, file_size_limit, allowed_mime_types) values ('avatars', 'avatars', true, 1000, '{image/*}') on conflict (id) do nothing",
    "insert into storage.buckets (id, name) values ('avatars', 'avatars') on conflict (id) do update set public = true",
    "create policy \"own folder\" on storage.objects for insert to authenticated
       with check (bucket_id = 'avatars' and (storage.foldername(name))[1] = (select auth.uid())::text and storage.extension(name) = 'png')",
    "create policy \"own files\" on storage.objects for select to authenticated using (owner_id = (select auth.uid()::text) or auth.uid() = owner)",
    "create policy \"never\" on storage.objects for delete to anon using (storage.allow_any_operation(array['object.list']) and path_tokens[1] = 'x'
       and lower(storage.filename(name)) like 'a%' and metadata ->> 'mimetype' = 'image/png')",
    "drop policy if exists \"never\" on storage.objects; drop policy if exists \"absent\" on storage.objects",
    "create policy \"buckets\" on storage.buckets for select using (true)",
    "alter policy \"buckets\" on storage.buckets to authenticated",
    "alter table storage.objects enable row level security",
    "create table public.rooms_users (user_id uuid, topic text); grant select on public.rooms_users to authenticated",
    "create policy \"listen\" on realtime.messages for select to authenticated using (realtime.messages.extension in ('broadcast', 'presence')
       and exists (select 1 from public.rooms_users where user_id = (select auth.uid()) and topic = (select realtime.topic())))",
    "create policy \"speak\" on realtime.messages for insert to authenticated with check (realtime.messages.extension = 'broadcast'
       and exists (select 1 from public.rooms_users where user_id = (select auth.uid()) and topic = (select realtime.topic())))",
    "create table public.items (id int primary key, t text); alter table public.items replica identity full",
    "create function public.items_changed() returns trigger language plpgsql security definer as $$ begin
       perform realtime.broadcast_changes('topic:' || coalesce(new.id, old.id)::text, tg_op, tg_op, tg_table_name, tg_table_schema, new, old); return null; end $$",
    "create trigger items_changed after insert or update or delete on public.items for each row execute function public.items_changed()",
    "alter publication supabase_realtime add table public.items",
    "alter publication supabase_realtime drop table public.items",
    "begin; drop publication if exists supabase_realtime; create publication supabase_realtime; commit",
    "alter publication supabase_realtime add table public.items",
    "create function public.made() returns void language plpgsql as $$ begin perform set_config('response.status', '201', true); end $$",
    "create function public.agent() returns text language sql stable as $$ select current_setting('request.headers', true)::json ->> 'user-agent' $$",
    "create function public.forbidden() returns void language plpgsql as $$ begin raise exception 'no' using errcode = 'PT403'; end $$",
    "revoke execute on function public.forbidden() from public, anon; grant execute on function public.forbidden() to authenticated",
    "create table public.user_roles (user_id uuid, role text); alter table public.user_roles enable row level security",
    "create function public.custom_access_token_hook(event jsonb) returns jsonb language plpgsql stable as $$ begin
       return jsonb_set(event, '{claims,user_role}', coalesce(to_jsonb((select role from public.user_roles limit 1)), 'null')); end $$",
    "grant usage on schema public to supabase_auth_admin; grant execute on function public.custom_access_token_hook to supabase_auth_admin;
     revoke execute on function public.custom_access_token_hook from authenticated, anon, public; grant all on table public.user_roles to supabase_auth_admin",
    "create policy \"hook\" on public.user_roles for select to supabase_auth_admin using (true)",
    "insert into auth.users (instance_id, id, aud, role, email, encrypted_password, email_confirmed_at, raw_app_meta_data, raw_user_meta_data,
       created_at, updated_at, confirmation_token, email_change, email_change_token_new, recovery_token)
     values ('00000000-0000-0000-0000-000000000000', '11111111-1111-4111-8111-111111111111', 'authenticated', 'authenticated', 'alice@example.com',
       crypt('pw', gen_salt('bf')), now(), '{\"provider\":\"email\",\"providers\":[\"email\"]}', '{\"full_name\":\"Alice\"}', now(), now(), '', '', '', '')",
    "insert into auth.users (id, email, phone, raw_user_meta_data, raw_app_meta_data, created_at, updated_at)
     values ('22222222-2222-4222-8222-222222222222', 'bob@example.com', null, '{}', '{}', now(), now())",
    "insert into auth.identities (id, user_id, provider_id, identity_data, provider, last_sign_in_at, created_at, updated_at)
     values (gen_random_uuid(), '11111111-1111-4111-8111-111111111111', '11111111-1111-4111-8111-111111111111',
       '{\"sub\":\"11111111-1111-4111-8111-111111111111\",\"email\":\"Alice@example.com\"}', 'email', now(), now(), now())",
    "insert into public.orgs values (1, 'one'), (2, 'two'); insert into public.members values (1, '11111111-1111-4111-8111-111111111111')",
    "insert into public.rooms_users values ('11111111-1111-4111-8111-111111111111', 'room:1')",
    "insert into storage.objects (bucket_id, name, owner, owner_id, metadata)
     values ('avatars', '11111111-1111-4111-8111-111111111111/a.png', '11111111-1111-4111-8111-111111111111', '11111111-1111-4111-8111-111111111111', '{\"size\": 3}')",
    "create view public.members_view with (security_invoker = true) as select * from public.members; create view public.users_view as select id, email from auth.users",
    "create schema api; grant usage on schema api to anon, authenticated; alter default privileges in schema api grant all on tables to anon",
    "alter default privileges in schema public revoke execute on functions from public, anon",
    "do $$ begin create role app_role; exception when duplicate_object or unique_violation then null; end $$",
    "grant app_role to authenticator; grant anon to app_role; grant select on public.items to app_role",
    "alter role authenticated set statement_timeout = '15s'; notify pgrst, 'reload config'",
    "alter role authenticator set pgrst.db_schemas = 'public, api'",
    "alter role authenticator set pgrst.db_aggregates_enabled = 'true'",
    "create trigger \"notify\" after insert on public.items for each row execute function supabase_functions.http_request(
       'http://host/hook', 'POST', '{\"Content-type\":\"application/json\"}', '{}', '5000')",
    "revoke execute on function public.rls_auto_enable() from public, anon, authenticated",
    "create index on auth.users (created_at); drop index auth.users_created_at_idx",
    "insert into supabase_migrations.schema_migrations (version, name, statements) values ('1', 'init', '{select 1}')",
    "set session_replication_role = replica; reset session_replication_role",
    "set role anon",
    "reset role",
    "set role supabase_storage_admin",
    "reset role",
    "select pg_reload_conf()",
    "set log_min_messages = warning",
    "create event trigger seen on ddl_command_end execute function public.rls_auto_enable()",
    "drop event trigger seen",
    "create publication everything for all tables",
    "drop publication everything",
    "create extension if not exists moddatetime with schema extensions",
    "create extension postgres_fdw with schema extensions",
    "create trigger moved before update on public.profiles for each row execute function extensions.moddatetime('updated_at')",
];

async fn application(major: u32) -> portico_database::Database {
    let database = ready_apart(major).await;
    let _roles = ROLES_APART.lock().await;
    let mut session = database.migrations().await.unwrap();
    session
        .batch("create function public.set_updated_at() returns trigger language plpgsql as $$ begin new.updated_at = now(); return new; end $$")
        .await
        .unwrap();
    for statement in APPLICATION {
        session.batch(statement).await.unwrap_or_else(|error| panic!("on {major}: {statement}\n{error:?}"));
    }
    session
        .batch(&format!("alter database {} set app.settings.own = 'x'", database.endpoint().database()))
        .await
        .unwrap();
    assert_eq!(value(session.client(), "select current_user || ' ' || session_user").await, "postgres postgres");
    database
}

#[tokio::test]
async fn application_sql_runs_unchanged_and_its_policies_hold() {
    for major in majors() {
        let database = application(major).await;
        let client = database.administrator().await.unwrap();
        client.batch_execute("set session authorization authenticator").await.unwrap();
        let alice = request(
            "authenticated",
            &format!(r#"{{"sub":"{ALICE}","role":"authenticated","aal":"aal1","email":"alice@example.com"}}"#),
        );
        let bob = request("authenticated", &format!(r#"{{"sub":"{BOB}","role":"authenticated"}}"#));
        let anon = request("anon", r#"{"role":"anon"}"#);
        let service = request("service_role", r#"{"role":"service_role"}"#);
        for (who, question, answer) in [
            (
                &alice,
                "select concat_ws(' ', current_user, session_user, auth.uid(), auth.role(), auth.email())",
                vec![format!("authenticated authenticator {ALICE} authenticated alice@example.com")],
            ),
            (
                &anon,
                "select concat_ws(' ', current_user, auth.uid() is null, auth.role(), public.agent())",
                vec!["anon t anon x".into()],
            ),
            (&alice, "select full_name from profiles", vec!["Alice".into()]),
            (&bob, "select id from profiles", vec![BOB.into()]),
            (&anon, "select id from profiles", vec![]),
            (&service, "select count(*) from profiles", vec!["2".into()]),
            (&alice, "with gone as (delete from profiles returning 1) select count(*) from gone", vec!["0".into()]),
            (&alice, "select name from orgs", vec!["one".into()]),
            (&bob, "select name from orgs", vec![]),
            (&alice, "select count(*) from members_view", vec!["0".into()]),
            (&alice, "select name from storage.objects", vec![format!("{ALICE}/a.png")]),
            (&bob, "select name from storage.objects", vec![]),
            (&anon, "select name from storage.buckets", vec![]),
            (&alice, "select name from storage.search('', 'avatars')", vec![ALICE.into()]),
        ] {
            assert_eq!(
                column(&client, &format!("{who}; {question}")).await.last_chunk_or_none(),
                answer,
                "{question} on {major}"
            );
            client.batch_execute("rollback").await.unwrap();
        }
        for (who, statement, code) in [
            (
                &alice,
                format!("insert into storage.objects (bucket_id, name) values ('avatars', '{ALICE}/b.png')"),
                None,
            ),
            (
                &alice,
                format!("insert into storage.objects (bucket_id, name) values ('avatars', '{ALICE}/b.gif')"),
                Some("42501"),
            ),
            (
                &bob,
                format!("insert into storage.objects (bucket_id, name) values ('avatars', '{ALICE}/c.png')"),
                Some("42501"),
            ),
            (&alice, "delete from storage.objects".into(), Some("42501")),
            (&service, "set local storage.allow_delete_query = 'true'; delete from storage.objects".into(), None),
            (&alice, "select * from auth.users".into(), Some("42501")),
            (&service, "select * from auth.users".into(), Some("42501")),
            (&anon, "select public.forbidden()".into(), Some("42501")),
            (&alice, "select public.forbidden()".into(), Some("PT403")),
            (
                &alice,
                "select storage.can_insert_object('avatars', auth.uid() || '/z.png', auth.uid(), '{}')".into(),
                Some("PT200"),
            ),
            (
                &bob,
                format!("select storage.can_insert_object('avatars', '{ALICE}/z.png', auth.uid(), '{{}}')"),
                Some("42501"),
            ),
            (&alice, "insert into auth.users (id) values (gen_random_uuid())".into(), Some("42501")),
            (&alice, "create table public.mine (id int)".into(), Some("42501")),
            (&alice, "select * from portico.vault_key".into(), Some("42501")),
            (&alice, "select vault.create_secret('x')".into(), Some("42501")),
            (&request("app_role", r#"{"role":"app_role"}"#), "select * from public.items".into(), None),
            (&request("supabase_auth_admin", "{}"), "select 1".into(), Some("42501")),
        ] {
            let outcome = client.batch_execute(&format!("{who}; {statement}")).await;
            let found = outcome.err().map(|error| error.code().unwrap().code().to_owned());
            assert_eq!(found.as_deref(), code, "{statement} on {major}");
            client.batch_execute("rollback").await.unwrap();
        }
        // A claim that is no uuid is the caller's error
        let (code, _) =
            refusal(&client, &format!("{}; select auth.uid()", request("authenticated", r#"{"sub":"me"}"#))).await;
        assert_eq!(code, "22P02");
        client.batch_execute("rollback").await.unwrap();
    }
}

trait LastRows {
    fn last_chunk_or_none(self) -> Vec<String>;
}

impl LastRows for Vec<String> {
    /// Returns the rows after the one of the settings.
    fn last_chunk_or_none(self) -> Vec<String> {
        self.into_iter().skip(1).collect()
    }
}

#[tokio::test]
async fn the_auth_service_sees_triggers_and_hooks() {
    for major in majors() {
        let database = application(major).await;
        let auth = database.pool(AUTH).client().await.unwrap();
        auth.batch_execute(
            "insert into auth.users (id, email, raw_user_meta_data) values (gen_random_uuid(), 'new@example.com', '{\"full_name\":\"New\"}');
             update auth.users set email = 'newer@example.com' where email = 'new@example.com'",
        )
        .await
        .unwrap();
        let admin = database.administrator().await.unwrap();
        assert_eq!(
            value(&admin, "select email from public.profiles where full_name = 'New'").await,
            "newer@example.com"
        );
        let row = auth.query_one("select public.custom_access_token_hook('{\"claims\":{}}')::text", &[]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), r#"{"claims": {"user_role": null}}"#);
        auth.batch_execute("insert into portico.mail_outbox (kind, recipient, subject, html) values ('confirmation', 'a@example.com', 's', 'h'); delete from portico.mail_outbox")
            .await
            .unwrap();
        // The same address twice only for single sign-on
        let error = auth
            .batch_execute("insert into auth.users (id, email) values (gen_random_uuid(), 'newer@example.com')")
            .await
            .unwrap_err();
        assert_eq!(error.as_db_error().unwrap().constraint(), Some("users_email_partial_key"));
        auth.batch_execute(
            "insert into auth.users (id, email, is_sso_user) values (gen_random_uuid(), 'newer@example.com', true)",
        )
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn postgres_keeps_out_of_what_is_not_its_own() {
    for major in majors() {
        let database = ready(major).await;
        let mut session = database.migrations().await.unwrap();
        for (statement, code) in [
            ("alter role postgres superuser", "42501"),
            ("update portico.vault_key set key = 'x'", "42501"),
            ("create extension moddatetime; alter role postgres superuser", "42501"),
            ("select pg_read_file('/etc/passwd')", "42501"),
            ("insert into vault.secrets (secret) values ('x')", "42501"),
            ("delete from storage.objects", "42501"),
            ("create extension file_fdw", "42501"),
            ("create extension \"no such thing\"", "0A000"),
        ] {
            let error = session.batch(statement).await.expect_err(statement);
            assert_eq!(error.code().unwrap().code(), code, "{statement} on {major}");
        }
        assert_eq!(value(session.client(), "select session_user || ' ' || current_user").await, "postgres postgres");
    }
}

#[tokio::test]
async fn a_migration_session_forgets_and_takes_back() {
    for major in majors() {
        let database = ready(major).await;
        let mut session = database.migrations().await.unwrap();
        assert_eq!(value(session.client(), "show search_path").await, r#""\$user", public, extensions"#);
        session.batch("set search_path = auth; set statement_timeout = 5").await.unwrap();
        session.reset().await.unwrap();
        assert_eq!(value(session.client(), "show search_path").await, r#""\$user", public, extensions"#);
        assert_eq!(value(session.client(), "show statement_timeout").await, "0");
        session.begin().await.unwrap();
        session.batch("create table public.half (id int)").await.unwrap();
        session
            .batch("create event trigger half on ddl_command_end execute function public.rls_auto_enable()")
            .await
            .unwrap();
        assert_eq!(value(session.client(), "select session_user").await, "postgres");
        let error = session.batch("select 1;\n  selec 2").await.unwrap_err();
        assert_eq!(error.as_db_error().unwrap().position(), Some(&tokio_postgres::error::ErrorPosition::Original(13)));
        let error = session.batch("create event trigger half on nonsense execute function f()").await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "25P02");
        session.rollback().await.unwrap();
        assert_eq!(value(session.client(), "select session_user || ' ' || current_user").await, "postgres postgres");
        assert_eq!(value(session.client(), "select to_regclass('public.half') is null").await, "t");
        // One text is one transaction
        session.batch("create table public.whole (id int); selec 2").await.unwrap_err();
        assert_eq!(value(session.client(), "select to_regclass('public.whole') is null").await, "t");
        session.begin().await.unwrap();
        session.batch("create table public.whole (id int)").await.unwrap();
        session.commit().await.unwrap();
        assert_eq!(
            value(
                session.client(),
                "select pg_get_userbyid(relowner) from pg_class where oid = 'public.whole'::regclass"
            )
            .await,
            "postgres"
        );
    }
}

#[tokio::test]
async fn new_tables_are_announced_and_the_services_own_are_not() {
    let database = ready(18).await;
    let mut session = database.migrations().await.unwrap();
    // A listening session receives the notices of its own transaction first after its commit, so
    // that a second channel, notified in the same transaction, shows that nothing else comes
    let (listener, mut connection) = listening(&database).await;
    listener.batch_execute("listen pgrst; listen fence").await.unwrap();
    for (statement, expected) in [
        ("create table public.seen (id int)", true),
        ("create temporary table unseen (id int)", false),
        ("create policy p on public.seen for select using (true)", true),
        ("alter policy p on public.seen using (false)", true),
        ("drop policy p on public.seen", false),
        ("create policy p on auth.users for select using (true)", false),
        ("create index on public.seen (id)", false),
        ("alter table auth.users alter column email set default null", false),
        ("create trigger t after insert on auth.users for each row execute function storage.protect_delete()", false),
        ("create view public.seen_view as select * from public.seen", true),
        ("create function public.f() returns int language sql as 'select 1'", true),
        ("comment on table public.seen is 'x'", true),
        ("drop view public.seen_view", true),
        ("create type public.pair as (a int, b int)", true),
    ] {
        session.begin().await.unwrap();
        session.batch(statement).await.unwrap();
        session.batch("notify fence").await.unwrap();
        session.commit().await.unwrap();
        let mut announced = false;
        loop {
            let notice = connection.recv().await.unwrap();
            match notice.channel() {
                "fence" => break,
                _ => announced = notice.payload() == "reload schema",
            }
        }
        assert_eq!(announced, expected, "{statement}");
    }
}

/// Returns a session and its notices.
async fn listening(
    database: &portico_database::Database,
) -> (tokio_postgres::Client, tokio::sync::mpsc::UnboundedReceiver<tokio_postgres::Notification>) {
    let portico_database::Host::Socket(folder) = database.endpoint().host() else { unreachable!() };
    let (client, mut connection) = tokio_postgres::Config::new()
        .host_path(folder)
        .port(database.endpoint().port())
        .user(database.endpoint().user())
        .dbname(database.endpoint().database())
        .connect(tokio_postgres::NoTls)
        .await
        .unwrap();
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(message) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if let Ok(tokio_postgres::AsyncMessage::Notification(notice)) = message {
                let _ = sender.send(notice);
            }
        }
    });
    (client, receiver)
}

#[tokio::test]
async fn a_dump_of_a_hosted_project_is_restored_as_postgres() {
    let database = ready(18).await;
    let mut session = database.migrations().await.unwrap();
    session.batch(include_str!("contract/dump.sql")).await.unwrap();
    let restored = "select email || ' ' || (select count(*) from storage.buckets) || ' ' || nextval('auth.refresh_tokens_id_seq') from auth.users";
    assert_eq!(value(session.client(), restored).await, "a@example.com 1 6");
    // As the documented restore does: a plain login, one transaction
    let database = ready(18).await;
    let plain = portico_database::connect(&database.endpoint().with_user("postgres", None)).await.unwrap();
    plain.batch_execute(&format!("begin; {}; commit", include_str!("contract/dump.sql"))).await.unwrap();
    assert_eq!(value(&plain, restored).await, "a@example.com 1 6");
}
