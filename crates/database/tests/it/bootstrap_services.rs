//! The functions of `storage` and `realtime`, and the partitions of messages.

use super::bootstrap::{column, majors, ready, refusal, value};

#[tokio::test]
async fn listings_fold_folders_and_go_on_where_they_stopped() {
    for major in majors() {
        let database = ready(major).await;
        let client = database.administrator().await.unwrap();
        client
            .batch_execute(
                "insert into storage.buckets (id, name) values ('b1', 'b1'), ('b2', 'b2');
                 insert into storage.objects (bucket_id, name, created_at, updated_at) values
                   ('b1', 'a.txt', '2026-01-03', '2026-01-03'), ('b1', 'Folder2/x.jpg', '2026-01-02', '2026-01-02'),
                   ('b1', 'folder/one.png', '2026-01-01', '2026-01-01'), ('b1', 'folder/sub/two.png', '2026-01-05', '2026-01-05'),
                   ('b1', 'zeta.tar.gz', '2026-01-02', '2026-01-02'), ('b2', 'A', now(), now()), ('b2', 'a', now(), now()), ('b2', 'a-b', now(), now()), ('b2', 'a/x', now(), now())",
            )
            .await
            .unwrap();
        let list = |call: &str| format!("select concat(name, case when id is null then '(f)' end) from storage.{call}");
        for (call, expected) in [
            ("list_objects_with_delimiter('b1', '', '/')", "Folder2(f) a.txt folder(f) zeta.tar.gz"),
            ("list_objects_with_delimiter('b1', '', '/', 2)", "Folder2(f) a.txt"),
            ("list_objects_with_delimiter('b1', '', '/', 2, 'a.txt')", "folder(f) zeta.tar.gz"),
            ("list_objects_with_delimiter('b1', '', '/', 2, 'x', 'folder')", "zeta.tar.gz"),
            (
                "list_objects_with_delimiter('b1', '', '/', 100, '', '', 'desc')",
                "zeta.tar.gz folder(f) a.txt Folder2(f)",
            ),
            ("list_objects_with_delimiter('b1', '', '/', 100, 'folder', '', 'desc')", "a.txt Folder2(f)"),
            ("list_objects_with_delimiter('b1', 'folder/', '/')", "folder/one.png folder/sub(f)"),
            ("list_objects_with_delimiter('b1', 'folder/s', '/')", "folder/sub(f)"),
            (
                "list_objects_with_delimiter('b1', '', '')",
                "Folder2/x.jpg a.txt folder/one.png folder/sub/two.png zeta.tar.gz",
            ),
            ("list_objects_with_delimiter('b1', '', '/', 0)", ""),
            ("list_objects_with_delimiter('none', '', '/')", ""),
            ("search_v2('', 'b1', 2, 1)", "Folder2(f) a.txt"),
            ("search_v2('', 'b1', 2, 1, 'a.txt')", "folder(f) zeta.tar.gz"),
            ("search_v2('folder/', 'b1', 100, 2)", "folder/one.png folder/sub(f)"),
            ("search_v2('', 'b1', 100, 1, '', 'asc', 'created_at')", "folder(f) Folder2(f) zeta.tar.gz a.txt"),
            ("search_v2('', 'b1', 100, 1, '', 'desc', 'created_at')", "a.txt zeta.tar.gz Folder2(f) folder(f)"),
            ("search_v2('', 'b1', 100, 1, 'Folder2', 'asc', 'created_at', '2026-01-02')", "zeta.tar.gz a.txt"),
            ("search('', 'b1')", "a.txt folder(f) Folder2(f) zeta.tar.gz"),
            ("search('', 'b1', 100, 1, 0, '', 'name', 'desc')", "zeta.tar.gz Folder2(f) folder(f) a.txt"),
            ("search('', 'b1', 2, 1, 1)", "folder(f) Folder2(f)"),
            ("search('folder/', 'b1', 100, 2)", "one.png sub(f)"),
            ("search('', 'b1', 100, 1, 0, 'fol')", "folder(f) Folder2(f)"),
            ("search('', 'b1', 100, 1, 0, '', 'created_at', 'desc')", "folder(f) Folder2(f) a.txt zeta.tar.gz"),
            ("search('FOLDER/', 'b1', 100, 1, 0, '', 'updated_at', 'asc')", "sub(f) one.png"),
            ("search('', 'b2')", "A a a-b a(f)"),
            ("search('', 'b2', 100, 1, 0, '', 'name', 'desc')", "a(f) a-b a A"),
        ] {
            assert_eq!(column(&client, &list(call)).await.join(" "), expected, "{call} on {major}");
        }
        assert_eq!(
            column(&client, "select key || ' ' || name from storage.search_v2('folder/', 'b1', 100, 2)").await,
            ["one.png folder/one.png", "sub folder/sub"]
        );
        client
            .batch_execute(
                "insert into storage.s3_multipart_uploads (id, upload_signature, bucket_id, key, version) values
                   ('1', '', 'b1', 'x/a', '1'), ('2', '', 'b1', 'x/b', '1'), ('3', '', 'b1', 'y', '1')",
            )
            .await
            .unwrap();
        let uploads = |tokens: &str| {
            format!("select key from storage.list_multipart_uploads_with_delimiter('b1', '', '/', 100{tokens})")
        };
        assert_eq!(column(&client, &uploads("")).await, ["x/", "y"]);
        assert_eq!(column(&client, &uploads(", 'x/'")).await, ["y"]);
        assert_eq!(value(&client, "select storage.get_common_prefix('a/b/c', 'a/', '/')").await, "a/b/");
        assert_eq!(value(&client, "select storage.get_common_prefix('a/b', 'a/', '/')").await, "<null>");
    }
}

#[tokio::test]
async fn names_are_taken_apart_as_policies_expect() {
    for major in majors() {
        let database = ready(major).await;
        let client = database.administrator().await.unwrap();
        for (call, expected) in [
            ("foldername('a/b/c.png')", "{a,b}"),
            ("foldername('c.png')", "{}"),
            ("foldername('')", "<null>"),
            ("filename('a/b/c.png')", "c.png"),
            ("filename('a/')", ""),
            ("filename('')", "<null>"),
            ("extension('c.tar.gz')", "gz"),
            ("extension('a.b/noext')", "noext"),
            ("operation()", "<null>"),
            ("allow_only_operation('object.list')", "f"),
        ] {
            assert_eq!(value(&client, &format!("select storage.{call}")).await, expected, "{call}");
        }
        client.batch_execute("set storage.operation = 'storage.object.list'").await.unwrap();
        for (call, expected) in [
            ("operation()", "storage.object.list"),
            ("allow_only_operation('object.list')", "t"),
            ("allow_only_operation('storage.object.list')", "t"),
            ("allow_only_operation('object.get')", "f"),
            ("allow_only_operation('')", "f"),
            ("allow_only_operation(null)", "f"),
            ("allow_any_operation(array['object.get', 'object.list'])", "t"),
            ("allow_any_operation(array['', null])", "f"),
            ("allow_any_operation(null)", "f"),
        ] {
            assert_eq!(value(&client, &format!("select storage.{call}")).await, expected, "{call}");
        }
        let name = "n".repeat(101);
        let (code, message) =
            refusal(&client, &format!("insert into storage.buckets (id, name) values ('{name}', '{name}')")).await;
        assert_eq!(
            (code.as_str(), message),
            ("P0001", format!("bucket name \"{name}\" is too long (101 characters). Max is 100."))
        );
        let (code, message) = refusal(&client, "delete from storage.buckets").await;
        assert_eq!(code, "42501");
        assert_eq!(message, "Direct deletion from storage tables is not allowed. Use the Storage API instead.");
        client
            .batch_execute("insert into storage.buckets (id, name) values ('b', 'b'); insert into storage.objects (bucket_id, name, metadata) values ('b', 'x', '{\"size\": 5}'), ('b', 'y', '{\"size\": 6}')")
            .await
            .unwrap();
        assert_eq!(value(&client, "select size || bucket_id from storage.get_size_by_bucket()").await, "11b");
        assert_eq!(value(&client, "update storage.objects set updated_at = '2000-01-01' where name = 'x'; select updated_at > '2001-01-01' from storage.objects where name = 'x'").await, "t");
        let constraint = client
            .batch_execute("set storage.allow_delete_query = 'true'; delete from storage.buckets")
            .await
            .unwrap_err();
        assert_eq!(constraint.as_db_error().unwrap().constraint(), Some("objects_bucketId_fkey"));
    }
}

#[tokio::test]
async fn messages_need_partitions_which_come_and_go() {
    for major in majors() {
        let database = ready(major).await;
        let client = database.administrator().await.unwrap();
        let partitions = "select string_agg(relname, ',' order by relname) from pg_inherits join pg_class on pg_class.oid = inhrelid where inhparent = 'realtime.messages'::regclass";
        let expected = value(&client, "select string_agg('messages_' || to_char((now() at time zone 'utc')::date + n, 'YYYY_MM_DD'), ',' order by n) from generate_series(-1, 3) as n").await;
        assert_eq!(value(&client, partitions).await, expected);
        client
            .batch_execute("do $$ declare name text; begin for name in select inhrelid::regclass from pg_inherits where inhparent = 'realtime.messages'::regclass
                            loop execute 'drop table ' || name; end loop; end $$")
            .await
            .unwrap();
        // Without one, a message is lost with a warning, and the transaction goes on
        client.batch_execute("select realtime.send('{}', 'e', 't', false)").await.unwrap();
        assert_eq!(value(&client, "select count(*) from realtime.messages").await, "0");
        client
            .batch_execute("set role postgres; create table realtime.messages_2020_01_01 partition of realtime.messages for values from ('2020-01-01') to ('2020-01-02');
                            create table realtime.messages_keep partition of realtime.messages for values from ('2019-01-01') to ('2019-01-02'); reset role")
            .await
            .unwrap();
        database.maintain_message_partitions().await.unwrap();
        database.maintain_message_partitions().await.unwrap();
        assert_eq!(value(&client, partitions).await, format!("{expected},messages_keep"));
        assert_eq!(
            value(&client, "select string_agg(distinct pg_get_userbyid(relowner) || ' ' || relrowsecurity || ' ' || has_table_privilege('anon', oid, 'select'), ',') from pg_class where relname ~ '^messages_2'").await,
            "supabase_realtime_admin false false"
        );
        client.batch_execute("select realtime.send('{\"x\": 1}', 'e', 't')").await.unwrap();
        client.batch_execute("select realtime.send('{\"id\": \"mine\"}', 'e', 't', false)").await.unwrap();
        client.batch_execute("select realtime.send_binary('abc', 'e', 't')").await.unwrap();
        assert_eq!(
            column(&client, "select concat_ws(' ', (payload ->> 'id') = id::text, payload ->> 'x', private, extension, event, topic, binary_payload) from realtime.messages order by payload ->> 'x', payload ->> 'id'").await,
            ["t 1 t broadcast e t", "f f broadcast e t", "t broadcast e t \\x616263"]
        );
        assert_eq!(refusal(&client, "insert into realtime.messages (topic, extension, payload, binary_payload) values ('t', 'broadcast', '1', 'x')").await.0, "23514");
    }
}

#[tokio::test]
async fn partitions_of_messages_do_not_wait_long_for_a_lock() {
    for major in majors() {
        let database = ready(major).await;
        database.maintain_message_partitions().await.unwrap();
        let client = database.administrator().await.unwrap();
        let backup = database.administrator().await.unwrap();
        backup.batch_execute("begin; lock table realtime.messages in access share mode").await.unwrap();
        // There is nothing to do, and nothing to lock
        database.maintain_message_partitions().await.unwrap();
        backup.batch_execute("rollback").await.unwrap();
        let partitions = "select count(*) from pg_inherits where inhparent = 'realtime.messages'::regclass";
        let before = value(&client, partitions).await;
        client
            .batch_execute("do $$ begin execute 'drop table realtime.messages_' || to_char((now() at time zone 'utc')::date + 3, 'YYYY_MM_DD'); end $$")
            .await
            .unwrap();
        backup.batch_execute("begin; lock table realtime.messages in access share mode").await.unwrap();
        let error = database.maintain_message_partitions().await.unwrap_err();
        assert_eq!(error.sqlstate().unwrap().code(), "55P03");
        backup.batch_execute("rollback").await.unwrap();
        database.maintain_message_partitions().await.unwrap();
        assert_eq!(value(&client, partitions).await, before);
    }
}

#[tokio::test]
async fn changes_are_broadcast_from_row_triggers() {
    for major in majors() {
        let database = ready(major).await;
        database.maintain_message_partitions().await.unwrap();
        let mut session = database.migrations().await.unwrap();
        session
            .batch(
                "create table public.bc (id int primary key, t text);
                 create function public.bc_changed() returns trigger language plpgsql security definer as $$ begin
                   perform realtime.broadcast_changes('topic:' || coalesce(new.id, old.id)::text, tg_op, tg_op, tg_table_name, tg_table_schema, new, old);
                   return null; end $$;
                 create trigger bc after insert or update or delete on public.bc for each row execute function public.bc_changed();
                 insert into public.bc values (1, 'a'); update public.bc set t = 'b'; delete from public.bc",
            )
            .await
            .unwrap();
        assert_eq!(
            column(session.client(), "select concat_ws(' ', topic, event, private, payload - 'id') from realtime.messages order by payload ->> 'operation'").await,
            [
                r#"topic:1 DELETE t {"table": "bc", "record": null, "schema": "public", "operation": "DELETE", "old_record": {"t": "b", "id": 1}}"#,
                r#"topic:1 INSERT t {"table": "bc", "record": {"t": "a", "id": 1}, "schema": "public", "operation": "INSERT", "old_record": null}"#,
                r#"topic:1 UPDATE t {"table": "bc", "record": {"t": "b", "id": 1}, "schema": "public", "operation": "UPDATE", "old_record": {"t": "a", "id": 1}}"#,
            ]
        );
        let (_, message) =
            refusal(session.client(), "select realtime.broadcast_changes('t', 'e', 'TRUNCATE', 't', 's', null, null)")
                .await;
        assert_eq!(message, "Failed to process the row: Unexpected operation type: TRUNCATE");
        // A role without a policy loses its message; the topic is known to the policy of one that
        // has it
        session
            .batch("create policy speak on realtime.messages for insert to authenticated with check (realtime.topic() = 'mine'); truncate realtime.messages")
            .await
            .unwrap();
        for (topic, sent) in [("mine", "1"), ("other", "1")] {
            session
                .batch(&format!("set role authenticated; select realtime.send('{{}}', 'e', '{topic}'); reset role"))
                .await
                .unwrap();
            assert_eq!(value(session.client(), "select count(*) from realtime.messages").await, sent, "{topic}");
        }
    }
}

#[tokio::test]
async fn the_change_feed_shows_each_subscriber_its_part() {
    for major in majors() {
        let database = ready(major).await;
        let client = database.administrator().await.unwrap();
        client
            .batch_execute(
                "create table public.notes (id int primary key, body text, owner uuid, secret text);
                 alter table public.notes enable row level security;
                 revoke all on public.notes from authenticated; grant select (id, body, owner) on public.notes to authenticated;
                 create policy own on public.notes for select to authenticated using (owner = auth.uid());
                 create table public.keyless (a int); grant select on public.keyless to authenticated;
                 insert into public.notes values (1, 'hello', '11111111-1111-4111-8111-111111111111', 's');
                 insert into realtime.subscription (subscription_id, entity, claims) values
                   ('aaaaaaaa-0000-4000-8000-000000000001', 'public.notes', '{\"role\":\"authenticated\",\"sub\":\"11111111-1111-4111-8111-111111111111\"}'),
                   ('aaaaaaaa-0000-4000-8000-000000000002', 'public.notes', '{\"role\":\"authenticated\",\"sub\":\"22222222-2222-4222-8222-222222222222\"}'),
                   ('aaaaaaaa-0000-4000-8000-000000000003', 'public.keyless', '{\"role\":\"authenticated\"}');
                 insert into realtime.subscription (subscription_id, entity, claims, filters, selected_columns) values
                   ('aaaaaaaa-0000-4000-8000-000000000004', 'public.notes', '{\"role\":\"authenticated\",\"sub\":\"11111111-1111-4111-8111-111111111111\"}',
                    array[('body', 'eq', 'hello', false)::realtime.user_defined_filter], '{body}'),
                   ('aaaaaaaa-0000-4000-8000-000000000005', 'public.notes', '{\"role\":\"authenticated\",\"sub\":\"11111111-1111-4111-8111-111111111111\"}',
                    array[('body', 'eq', 'hello', true)::realtime.user_defined_filter], null)",
            )
            .await
            .unwrap();
        let change = |action: &str, rows: &str| {
            format!(
                r#"select concat_ws(' ', wal - 'schema' - 'table', is_rls_enabled, (select string_agg(right(s::text, 1), ',' order by s) from unnest(subscription_ids) as s), errors)
                     from realtime.apply_rls('{{"action":"{action}","schema":"public","table":"notes","timestamp":"2026-01-02 03:04:05.678+00",
                       "pk":[{{"name":"id","type":"integer","typeoid":23}}], {rows}}}') order by subscription_ids"#
            )
        };
        let columns = r#""columns":[{"name":"id","type":"integer","typeoid":23,"value":1},{"name":"body","type":"text","typeoid":25,"value":"hello"},
            {"name":"owner","type":"uuid","typeoid":2950,"value":"11111111-1111-4111-8111-111111111111"},{"name":"secret","type":"text","typeoid":25,"value":"s"}]"#;
        let identity = r#""identity":[{"name":"id","type":"integer","typeoid":23,"value":1}]"#;
        assert_eq!(
            column(&client, &change("I", columns)).await,
            [
                r#"{"type": "INSERT", "record": {"id": 1, "body": "hello", "owner": "11111111-1111-4111-8111-111111111111"}, "columns": [{"name": "id", "type": "int4"}, {"name": "body", "type": "text"}, {"name": "owner", "type": "uuid"}], "commit_timestamp": "2026-01-02T03:04:05.678Z"} t 1 {}"#,
                r#"{"type": "INSERT", "record": {"id": 1, "body": "hello"}, "columns": [{"name": "id", "type": "int4"}, {"name": "body", "type": "text"}], "commit_timestamp": "2026-01-02T03:04:05.678Z"} t 4 {}"#,
            ],
            "on {major}"
        );
        // A deleted row is sent to every subscriber whose filters match, by its key only
        let deleted = column(&client, &change("D", identity)).await;
        assert_eq!(deleted.len(), 1, "{deleted:?}");
        assert!(deleted[0].contains(r#""old_record": {"id": 1}"#) && deleted[0].ends_with("t 1,2 {}"), "{deleted:?}");
        let keyless = value(&client, r#"select wal || to_jsonb(errors) from realtime.apply_rls('{"action":"I","schema":"public","table":"keyless","timestamp":"2026-01-02","columns":[{"name":"a","typeoid":23,"value":1}]}')"#).await;
        assert!(keyless.contains("Error 400: Bad Request, no primary key"), "{keyless}");
        let large = value(
            &client,
            &change("I", columns)
                .replace("') order", "', 10) order")
                .replace("select concat_ws", "select string_agg(errors::text, '') from (select concat_ws")
                .replace("order by subscription_ids", ") as x(errors)"),
        )
        .await;
        assert!(large.contains("Error 413: Payload Too Large"), "{large}");
        assert_eq!(
            value(
                &client,
                "select current_user || coalesce(nullif(current_setting('request.jwt.claims', true), ''), '')"
            )
            .await,
            "supabase_admin"
        );
        for (filter, message) in [
            ("('nope', 'eq', '1', false)", "invalid column for filter nope"),
            ("('secret', 'eq', '1', false)", "invalid column for filter secret"),
            ("('id', 'eq', 'zz', false)", "invalid input syntax for type integer: \"zz\""),
            ("('id', 'is', 'zz', false)", "invalid value for is filter: must be null, true, false, or unknown"),
            ("('id', 'is', 'true', false)", "is true filter requires a boolean column, got integer"),
            ("('id', 'like', 'a', false)", "operator like requires a text-compatible column type, got integer"),
        ] {
            let sql = format!(
                "insert into realtime.subscription (subscription_id, entity, claims, filters) values (gen_random_uuid(), 'public.notes', '{{\"role\":\"authenticated\"}}', array[{filter}::realtime.user_defined_filter])"
            );
            assert_eq!(refusal(&client, &sql).await.1, message);
        }
        let many = (0..101).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let sql = format!(
            "insert into realtime.subscription (subscription_id, entity, claims, filters) values (gen_random_uuid(), 'public.notes', '{{\"role\":\"authenticated\"}}', array[('id', 'in', '{{{many}}}', false)::realtime.user_defined_filter])"
        );
        assert_eq!(refusal(&client, &sql).await.1, "too many values for `in` filter. Maximum 100");
        for (call, expected) in [
            ("check_equality_op('in', 'int4', '2', '{1,2}')", "t"),
            ("check_equality_op('lt', 'int4', '10', '9')", "f"),
            ("check_equality_op('eq', 'text', null, 'a')", "<null>"),
            ("check_equality_op('is', 'bool', null, 'null', false)", "t"),
            ("check_equality_op('is', 'bool', null, 'null', true)", "f"),
            ("check_equality_op('ilike', 'text', 'ABC', 'a%', false)", "t"),
            ("check_equality_op('imatch', 'text', 'ABC', '^a', true)", "f"),
            ("check_equality_op('isdistinct', 'text', 'a', null, false)", "t"),
            ("quote_wal2json('auth.users')", "auth.users"),
            ("wal2json_escape_identifier('a b.c,d\\e')", "a\\ b\\.c\\,d\\\\e"),
            ("\"cast\"('7', 'int4')", "7"),
            ("topic()", "<null>"),
        ] {
            assert_eq!(value(&client, &format!("select realtime.{call}")).await, expected, "{call}");
        }
    }
}
