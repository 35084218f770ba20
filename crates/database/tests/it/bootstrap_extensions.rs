//! The extensions that applications ask for, real and look-alike.

use super::bootstrap::{column, majors, ready, refusal, value};

#[tokio::test]
async fn extensions_can_be_created_as_migrations_write_it() {
    let database = ready(18).await;
    let mut session = database.migrations().await.unwrap();
    for statement in [
        "create extension if not exists supabase_vault with schema vault",
        "create extension if not exists supabase_vault cascade",
        "create extension if not exists pg_net with schema extensions",
        "drop extension pg_net; create extension pg_net",
        "create extension pg_cron with schema pg_catalog",
        "drop extension pg_cron; create extension if not exists pg_cron with schema extensions",
        "create extension pgjwt with schema extensions",
        "create extension if not exists pg_graphql with schema graphql",
        "create extension if not exists \"uuid-ossp\" with schema extensions",
        "create extension if not exists pgcrypto",
        "create extension citext; create extension ltree with schema extensions; create extension hstore; create extension btree_gist",
        "create extension unaccent; create extension fuzzystrmatch; create extension tablefunc; create extension cube; create extension earthdistance",
        "comment on extension pgjwt is 'x'",
    ] {
        session.batch(statement).await.unwrap_or_else(|error| panic!("{statement}\n{error:?}"));
    }
    // Their rows are in dumps
    let dumped = "select string_agg(dumped::regclass::text, ',' order by dumped::regclass::text) from pg_extension, unnest(extconfig) as dumped";
    assert_eq!(value(session.client(), dumped).await, "cron.job,cron.jobid_seq,vault.secrets");
    // Trusted for postgres without any help of the session
    let plain = portico_database::connect(&database.endpoint().with_user("postgres", None)).await.unwrap();
    plain
        .batch_execute(
            "create extension moddatetime with schema extensions; create extension postgres_fdw with schema extensions",
        )
        .await
        .unwrap();
    plain.batch_execute("create server s foreign data wrapper postgres_fdw").await.unwrap();
    let (code, message) = refusal(&plain, "create extension nonsense").await;
    assert_eq!((code.as_str(), message.as_str()), ("0A000", "extension \"nonsense\" is not available"));
    assert_eq!(refusal(&plain, "create extension file_fdw").await.0, "42501");
}

#[tokio::test]
async fn the_vault_keeps_secrets() {
    for major in majors() {
        let database = ready(major).await;
        let session = database.migrations().await.unwrap();
        let client = session.client();
        let id = value(client, "select vault.create_secret('s3cret', 'project_url', 'where')").await;
        assert_eq!(
            value(client, "select decrypted_secret from vault.decrypted_secrets where name = 'project_url'").await,
            "s3cret"
        );
        assert_eq!(value(client, "select secret ~ 's3cret' from vault.secrets").await, "f");
        client.batch_execute(&format!("select vault.update_secret('{id}', new_description := 'there')")).await.unwrap();
        assert_eq!(
            value(client, "select decrypted_secret || ' ' || description || ' ' || name from vault.decrypted_secrets")
                .await,
            "s3cret there project_url"
        );
        client.batch_execute(&format!("select vault.update_secret('{id}', 'n\u{e9}w')")).await.unwrap();
        assert_eq!(
            value(client, "set role service_role; select decrypted_secret from vault.decrypted_secrets").await,
            "n\u{e9}w"
        );
        client.batch_execute("reset role").await.unwrap();
        assert_eq!(refusal(client, "select vault.create_secret('x', 'project_url')").await.0, "23505");
        assert_eq!(refusal(client, "set role authenticated; select * from vault.decrypted_secrets").await.0, "42501");
        client.batch_execute("reset role; delete from vault.secrets").await.unwrap();
        assert_eq!(
            column(client, "select attname || ' ' || format_type(atttypid, null) from pg_attribute where attrelid = 'vault.decrypted_secrets'::regclass and attnum > 0 order by attnum").await,
            ["id uuid", "name text", "description text", "secret text", "decrypted_secret text", "key_id uuid", "nonce bytea",
             "created_at timestamp with time zone", "updated_at timestamp with time zone"]
        );
    }
}

#[tokio::test]
async fn requests_of_net_are_queued() {
    for major in majors() {
        let database = ready(major).await;
        let mut session = database.migrations().await.unwrap();
        session
            .batch("select net.http_get('http://a/?x=1', '{\"\u{fc} b\":\"c&d/\"}', '{\"k\":\"v\"}', 7)")
            .await
            .unwrap();
        session.batch("select net.http_post(url := 'http://b', body := '{\"a\":1}'::jsonb, headers := '{\"Authorization\":\"Bearer x\"}')").await.unwrap();
        session.batch("select net.http_delete('http://c')").await.unwrap();
        assert_eq!(
            column(session.client(), "select concat_ws(' ', method, url, headers, convert_from(body, 'UTF8'), timeout_milliseconds) from net.http_request_queue order by id").await,
            [
                "GET http://a/?x=1&%C3%BC%20b=c%26d%2F {\"k\": \"v\"} 7",
                "POST http://b {\"Content-Type\": \"application/json\", \"Authorization\": \"Bearer x\"} {\"a\": 1} 5000",
                "DELETE http://c {} 5000",
            ]
        );
        let (_, message) = refusal(
            session.client(),
            "select net.http_post('http://b', headers := '{\"content-type\":\"text/plain\"}')",
        )
        .await;
        assert_eq!(message, "Content-Type header must be \"application/json\"");
        // A webhook made in the dashboard is a trigger
        session
            .batch("create table public.orders (id int primary key); create trigger \"notify\" after insert or delete on public.orders for each row
                    execute function supabase_functions.http_request('http://host/hook','POST','{\"Content-type\":\"application/json\"}','{}','5000');
                    truncate net.http_request_queue; insert into public.orders values (1); delete from public.orders")
            .await
            .unwrap();
        assert_eq!(
            column(
                session.client(),
                "select convert_from(body, 'UTF8')::jsonb - 'schema' from net.http_request_queue order by id"
            )
            .await,
            [
                r#"{"type": "INSERT", "table": "orders", "record": {"id": 1}, "old_record": null}"#,
                r#"{"type": "DELETE", "table": "orders", "record": null, "old_record": {"id": 1}}"#,
            ]
        );
        assert_eq!(
            value(
                session.client(),
                "select count(*) from supabase_functions.hooks where hook_name = 'notify' and request_id is not null"
            )
            .await,
            "2"
        );
        for (arguments, message) in [
            ("", "url argument is missing"),
            ("'http://a'", "method argument is missing"),
            ("'http://a', 'PUT'", "method argument PUT is invalid"),
        ] {
            session
                .batch(&format!("drop trigger \"notify\" on public.orders; create trigger \"notify\" after insert on public.orders for each row execute function supabase_functions.http_request({arguments})"))
                .await
                .unwrap();
            assert_eq!(refusal(session.client(), "insert into public.orders values (2)").await.1, message);
        }
        assert_eq!(value(session.client(), "select (net._http_collect_response(999999)).status").await, "ERROR");
    }
}

#[tokio::test]
async fn jobs_of_cron_belong_to_the_role_that_made_them() {
    for major in majors() {
        let database = ready(major).await;
        let mut session = database.migrations().await.unwrap();
        if major >= 18 {
            session.batch("create extension if not exists pg_cron").await.unwrap();
        }
        let client = session.client();
        assert_eq!(value(client, "select cron.schedule('nightly', '0 3 * * *', $$ select 1 $$)").await, "1");
        assert_eq!(
            value(client, "select cron.schedule('nightly', '*/5 1-5,7 1 jan-mar mon', $$ select 2 $$)").await,
            "1"
        );
        assert_eq!(value(client, "select cron.schedule('30 seconds', 'select 3')").await, "2");
        assert_eq!(
            column(client, "select concat_ws(' ', jobid, schedule, username, active, database = current_database(), jobname) from cron.job order by 1").await,
            ["1 */5 1-5,7 1 jan-mar mon postgres t t nightly", "2 30 seconds postgres t t"]
        );
        client.batch_execute("select cron.alter_job(2, active := false)").await.unwrap();
        assert_eq!(value(client, "select active from cron.job where jobid = 2").await, "f");
        for wrong in [
            "",
            "* * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "x",
            "60 seconds",
            "0 seconds",
            "*/0 * * * *",
            "1-99 * * * *",
        ] {
            let (_, message) = refusal(client, &format!("select cron.schedule('{wrong}', 'select 1')")).await;
            assert_eq!(message, format!("invalid schedule: {wrong}"));
        }
        assert_eq!(
            refusal(client, "select cron.unschedule('other')").await.1,
            "could not find valid entry for job 'other'"
        );
        assert_eq!(
            refusal(client, "insert into cron.job (schedule, command) values ('* * * * *', 'x')").await.0,
            "42501"
        );
        assert_eq!(refusal(client, "insert into cron._own_job (jobid, schedule, command, database, username) values (9, '* * * * *', 'x', 'd', 'supabase_admin')").await.0, "44000");
        assert_eq!(
            refusal(client, "select cron.schedule_in_database('j', '* * * * *', 'x', 'd', 'supabase_admin')").await.0,
            "42501"
        );
        assert_eq!(refusal(client, "set role authenticated; select cron.schedule('* * * * *', 'x')").await.0, "42501");
        client.batch_execute("reset role").await.unwrap();
        assert_eq!(value(client, "select cron.unschedule('nightly')").await, "t");
        assert_eq!(value(client, "select cron.unschedule(2)").await, "t");
        assert_eq!(value(client, "select count(*) from cron.job").await, "0");
    }
}

#[tokio::test]
async fn tokens_are_signed_and_verified_in_sql() {
    for major in majors() {
        let database = ready(major).await;
        let mut session = database.migrations().await.unwrap();
        if major >= 18 {
            session.batch("create extension pgjwt with schema extensions").await.unwrap();
        }
        let client = session.client();
        // The example of RFC 7519's well-known debugger
        let token =
            value(client, r#"select extensions.sign('{"sub":"1234567890","name":"John Doe","admin":true}', 'secret')"#)
                .await;
        assert_eq!(
            token,
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiYWRtaW4iOnRydWV9.TJVA95OrM7E2cBab30RMHrHDcEfxjoYZgeFONFh7HgQ"
        );
        assert_eq!(
            value(
                client,
                &format!(
                    "select valid and payload ->> 'sub' = '1234567890' from extensions.verify('{token}', 'secret')"
                )
            )
            .await,
            "t"
        );
        assert_eq!(value(client, &format!("select valid from extensions.verify('{token}', 'other')")).await, "f");
        assert_eq!(
            value(
                client,
                "select valid from extensions.verify(extensions.sign('{\"exp\":1}', 's', 'HS512'), 's', 'HS512')"
            )
            .await,
            "f"
        );
    }
}

#[tokio::test]
async fn graphql_answers_and_its_placeholder_comes_back() {
    let database = ready(18).await;
    let mut session = database.migrations().await.unwrap();
    let placeholder = r#"{"errors": [{"message": "pg_graphql extension is not enabled."}]}"#;
    assert_eq!(value(session.client(), "select graphql_public.graphql(query := '{ a }')").await, placeholder);
    session.batch("create extension pg_graphql").await.unwrap();
    assert!(
        value(session.client(), "set role anon; select graphql_public.graphql(query := '{ a }')")
            .await
            .contains("not supported")
    );
    session.batch("reset role").await.unwrap();
    session.batch("drop extension pg_graphql").await.unwrap();
    assert_eq!(
        value(session.client(), "set role anon; select graphql_public.graphql(query := '{ a }')").await,
        placeholder
    );
}

#[tokio::test]
async fn jobs_have_the_schedules_of_cron() {
    let database = ready(18).await;
    let session = database.migrations().await.unwrap();
    let client = session.client();
    client.batch_execute("create extension pg_cron").await.unwrap();
    for schedule in [
        "* * * * *",
        "*/5 0-6/2,12 1,15,$ jan-MAR,Dec mon-Fri",
        "5/15 * * * 7",
        "0 9 * * sun,Tue-thu/2",
        "00 003 31 12 0",
        "*/90 * * * *",
        " \t0\n0 1 1\t* ",
        "@daily",
        "@Midnight",
        " @yearly ",
        "@annually",
        "@hourly",
        "@weekly",
        "@monthly",
        "@reboot",
        "1 second",
        "59 Seconds",
        " 30seconds ",
    ] {
        let scheduled = client.execute("select cron.schedule($1, 'select 1')", &[&schedule]).await;
        assert!(scheduled.is_ok(), "{schedule}: {scheduled:?}");
    }
    for schedule in [
        "",
        "@often",
        "60 seconds",
        "0 seconds",
        "5 minutes",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "1,,2 * * * *",
        "mon * * * *",
        "* * * mon *",
        "* * * * monday",
        "* * * * 1mon",
        "1- * * * *",
        "$ * * * *",
        "99999999999 * * * *",
    ] {
        let error = client.execute("select cron.schedule($1, 'select 1')", &[&schedule]).await.expect_err(schedule);
        let error = error.as_db_error().unwrap();
        assert_eq!(error.message(), format!("invalid schedule: {schedule}"));
        assert!(error.hint().unwrap().contains("cron format"));
    }
}
