//! The private messages about sessions that begin and end, by which account pages stay up to date.

use portico_database::Database;
use tokio_postgres::Client;

use super::bootstrap::{column, majors, ready, refusal, value};
use crate::AUTH;

const ADA: &str = "aaaaaaaa-0000-4000-8000-000000000001";
const BOB: &str = "bbbbbbbb-0000-4000-8000-000000000002";

/// The topics of the messages, which are removed.
const TOPICS: &str = "
    with sent as (delete from realtime.messages returning topic, event, private, extension, payload)
    select concat_ws(' ', topic, event, private, extension, payload) from sent order by topic";

fn message(user: &str) -> String {
    format!("portico:account:{user} sessions_changed t broadcast {{}}")
}

fn sessions(user: &str, count: usize) -> String {
    format!(
        "insert into auth.sessions (id, user_id, created_at)
         select gen_random_uuid(), '{user}', now() from generate_series(1, {count})"
    )
}

/// Returns a database in which messages can be sent today.
async fn ready_for_messages(major: u32) -> Database {
    let database = ready(major).await;
    database.maintain_message_partitions().await.unwrap();
    database
}

/// Begins a session of each account, and sends messages that are not about sessions.
async fn send_to_accounts_and_others(client: &Client) {
    let begun = [sessions(ADA, 1), sessions(BOB, 1)].join("; ");
    client
        .batch_execute(&format!(
            "insert into auth.users (id) values ('{ADA}'), ('{BOB}'); {begun};
             insert into realtime.messages (topic, extension)
             values ('portico:account:{ADA}', 'presence'), ('portico:account:', 'broadcast'), ('other', 'broadcast')"
        ))
        .await
        .unwrap();
}

/// Runs statements as the role of requests with these claims, in a transaction that is rolled back.
async fn seen_by(client: &Client, claims: &str, query: &str) -> Vec<String> {
    client.batch_execute("begin").await.unwrap();
    let rows = column(
        client,
        &format!(
            "do $$ begin perform set_config('request.jwt.claims', '{claims}', true); set local role authenticated; end $$; {query}"
        ),
    )
    .await;
    client.batch_execute("rollback").await.unwrap();
    rows
}

#[tokio::test]
async fn sessions_that_begin_or_end_send_one_message_to_each_account() {
    for major in majors() {
        let database = ready_for_messages(major).await;
        let admin = database.administrator().await.unwrap();
        // As the account service signs in and out
        let auth = database.pool(AUTH).client().await.unwrap();
        auth.batch_execute(&format!("insert into auth.users (id) values ('{ADA}'), ('{BOB}')")).await.unwrap();
        auth.batch_execute(&sessions(ADA, 3)).await.unwrap();
        assert_eq!(column(&admin, TOPICS).await, [message(ADA)]);
        auth.batch_execute(&sessions(BOB, 1)).await.unwrap();
        assert_eq!(column(&admin, TOPICS).await, [message(BOB)]);
        auth.batch_execute("update auth.sessions set refreshed_at = now()").await.unwrap();
        assert_eq!(column(&admin, TOPICS).await, Vec::<String>::new());
        auth.batch_execute("delete from auth.sessions where id = gen_random_uuid()").await.unwrap();
        assert_eq!(column(&admin, TOPICS).await, Vec::<String>::new());
        auth.batch_execute("delete from auth.sessions").await.unwrap();
        assert_eq!(column(&admin, TOPICS).await, [message(ADA), message(BOB)]);
        // SQL of the project, and the end of an account
        let mut project = database.migrations().await.unwrap();
        project.batch(&sessions(ADA, 1)).await.unwrap();
        project.batch(&format!("delete from auth.users where id = '{ADA}'")).await.unwrap();
        assert_eq!(column(&admin, TOPICS).await, [message(ADA), message(ADA)]);
    }
}

#[tokio::test]
async fn a_message_about_sessions_is_read_by_its_account_alone() {
    for major in majors() {
        let database = ready_for_messages(major).await;
        let client = database.administrator().await.unwrap();
        send_to_accounts_and_others(&client).await;
        let topics = "select concat_ws(' ', topic, extension) from realtime.messages";
        for user in [ADA, BOB] {
            let claims = format!(r#"{{"sub": "{user}"}}"#);
            assert_eq!(seen_by(&client, &claims, topics).await, [format!("portico:account:{user} broadcast")]);
        }
        // A subject of another issuer may be any text, or absent
        for claims in [r#"{"sub": "user_2x"}"#, "{}", r#"{"sub": null}"#, ""] {
            assert_eq!(seen_by(&client, claims, topics).await, Vec::<String>::new(), "{claims}");
        }
        let write = format!(
            "begin; set local role authenticated; set local request.jwt.claims = '{{\"sub\": \"{ADA}\"}}';
             insert into realtime.messages (topic, extension) values ('portico:account:{ADA}', 'broadcast')"
        );
        assert_eq!(refusal(&client, &write).await.0, "42501");
        client.batch_execute("rollback").await.unwrap();
        assert_eq!(
            refusal(&client, "set role anon; create temporary table t (user_id uuid); create trigger t after insert on t referencing new table as changed for each statement execute function realtime.portico_send_session_changes()").await.0,
            "42501"
        );
    }
}

#[tokio::test]
async fn policies_for_all_topics_do_not_open_the_topics_of_accounts() {
    for major in majors() {
        let database = ready_for_messages(major).await;
        let client = database.administrator().await.unwrap();
        // The last role may use nothing in schema auth
        client
            .batch_execute(
                "create policy everything on realtime.messages to public using (true) with check (true);
                 create role portico_topic_reader; grant portico_topic_reader to current_user;
                 grant usage on schema realtime to portico_topic_reader;
                 grant select, insert on realtime.messages to portico_topic_reader",
            )
            .await
            .unwrap();
        send_to_accounts_and_others(&client).await;
        let topics = "select concat_ws(' ', topic, extension) from realtime.messages order by topic desc";
        let own = format!("portico:account:{ADA} broadcast");
        let claims = format!(r#"{{"sub": "{ADA}"}}"#);
        assert_eq!(seen_by(&client, &claims, topics).await, [&*own, "other broadcast"]);
        for claims in [r#"{"sub": "user_2x"}"#, r#"{"sub": ""}"#, "{}", r#"{"sub": null}"#, ""] {
            let visible: Vec<String> =
                seen_by(&client, claims, topics).await.into_iter().filter(|row| row.contains("-")).collect();
            assert_eq!(visible, Vec::<String>::new(), "{claims}");
        }
        let write = |role: &str, topic: &str| {
            format!(
                "begin; set local role {role}; set local request.jwt.claims = '{claims}';
                 insert into realtime.messages (topic, extension) values ('{topic}', 'broadcast')"
            )
        };
        for role in ["anon", "authenticated", "portico_topic_reader"] {
            client.batch_execute(&write(role, "other")).await.unwrap();
            client.batch_execute("rollback").await.unwrap();
            for user in [ADA, BOB] {
                let refused = refusal(&client, &write(role, &format!("portico:account:{user}"))).await;
                assert_eq!(refused.0, "42501", "{role}");
                client.batch_execute("rollback").await.unwrap();
            }
        }
        let moved = format!(
            "begin; set local role authenticated; update realtime.messages set topic = 'portico:account:{BOB}' where topic = 'other'"
        );
        assert_eq!(refusal(&client, &moved).await.0, "42501");
        client
            .batch_execute("rollback; drop owned by portico_topic_reader; drop role portico_topic_reader")
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_message_that_cannot_be_sent_leaves_the_session() {
    for major in majors() {
        let database = ready_for_messages(major).await;
        let admin = database.administrator().await.unwrap();
        let auth = database.pool(AUTH).client().await.unwrap();
        auth.batch_execute(&format!("insert into auth.users (id) values ('{ADA}')")).await.unwrap();
        let lock_timeout = value(&auth, "show lock_timeout").await;
        // A migration that changes the policies of messages, and takes its time
        admin.batch_execute("begin; lock table realtime.messages in access exclusive mode").await.unwrap();
        auth.batch_execute(&sessions(ADA, 1)).await.unwrap();
        admin.batch_execute("commit").await.unwrap();
        assert_eq!(value(&admin, "select count(*) from realtime.messages").await, "0");
        // Without a partition for today
        admin
            .batch_execute(
                "do $$ declare name text; begin for name in select inhrelid::regclass from pg_inherits where inhparent = 'realtime.messages'::regclass
                 loop execute 'drop table ' || name; end loop; end $$",
            )
            .await
            .unwrap();
        auth.batch_execute(&sessions(ADA, 1)).await.unwrap();
        assert_eq!(value(&auth, "show lock_timeout").await, lock_timeout);
        // A trigger of the application that fails
        database.maintain_message_partitions().await.unwrap();
        admin
            .batch_execute(
                "create function public.refuse() returns trigger language plpgsql as 'begin raise exception ''no''; end';
                 create trigger refuse before insert on realtime.messages for each row execute function public.refuse()",
            )
            .await
            .unwrap();
        auth.batch_execute(&sessions(ADA, 1)).await.unwrap();
        auth.batch_execute("delete from auth.sessions where id in (select id from auth.sessions limit 1)")
            .await
            .unwrap();
        assert_eq!(value(&admin, "select count(*) from auth.sessions").await, "2");
    }
}
