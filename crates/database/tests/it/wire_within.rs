//! The settings that batches want, and values joined as they come in, over the lean client.

use portico_database::wire::{Answers, Batch, Joining, Lease, PoolSettings, Statement, WireError, Within};

use crate::wire::{Scratch, one};

/// What a session shows of its settings.
const SHOWN: &str = "select current_user || ' ' || current_setting('statement_timeout') || ' ' ||
    coalesce(current_setting('app.a', true), '') || ' ' || coalesce(current_setting('app.b', true), '')";

const LIST: Joining = Joining { open: "[", between: ", ", close: "]" };

fn one_connection() -> PoolSettings {
    let session = vec![("app.b".to_owned(), "begun".to_owned()), ("statement_timeout".to_owned(), "9s".to_owned())];
    PoolSettings { connections: 1, session, ..PoolSettings::default() }
}

type Wanted<'a> = &'a [(&'a str, &'a str)];

fn shown<'a>(settings: Wanted<'a>) -> Batch<'a> {
    Batch::new().within(Within { settings, unseen: &[] }).statement(Statement::named(SHOWN, &[]))
}

async fn show(lease: &mut Lease, settings: Wanted<'_>) -> String {
    text(&lease.run(&shown(settings)).await.unwrap(), 0)
}

fn text(answers: &Answers, statement: usize) -> String {
    answers.row(statement).unwrap().text(0).unwrap().to_owned()
}

#[tokio::test]
async fn a_setting_stays_as_long_as_it_is_wanted() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(one_connection());
    let mut lease = pool.take().await.unwrap();
    let wanted = [("statement_timeout", "3s"), ("role", "pg_monitor"), ("app.a", "1")];
    assert_eq!(show(&mut lease, &wanted).await, "pg_monitor 3s 1 begun");
    // It is not set again: what a statement did to it is still there
    let tamper = "select set_config('app.a', 'tampered', false)";
    let batch = Batch::new().within(Within { settings: &wanted, unseen: &[] }).statement(Statement::named(tamper, &[]));
    let _ = lease.run(&batch).await.unwrap();
    assert_eq!(show(&mut lease, &wanted).await, "pg_monitor 3s tampered begun");
    // Unless somebody says that it may have changed
    let _ = lease.run(&shown(&wanted).restoring()).await.unwrap();
    assert_eq!(show(&mut lease, &wanted).await, "pg_monitor 3s 1 begun");
    // What nothing can see may be anything
    let blind = Within { settings: &wanted[..2], unseen: &["app.a"] };
    let answers = lease.run(&Batch::new().within(blind).statement(Statement::named(SHOWN, &[]))).await.unwrap();
    assert_eq!(text(&answers, 0), "pg_monitor 3s 1 begun");
    assert_eq!(show(&mut lease, &wanted[1..2]).await, "pg_monitor 9s  begun");
    assert_eq!(show(&mut lease, &[]).await, "supabase_admin 9s  begun");
    drop((lease, pool));
    scratch.drop().await;
}

/// Whatever comes one after the other over one connection, and however it ends: each batch sees what it wants and nothing else.
#[tokio::test]
async fn each_batch_sees_its_own_settings_whatever_was_before_it() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(one_connection());
    let mut seed = 4711_u64;
    let mut pick = |most: u64| {
        // Numerical Recipes' generator: any sequence will do, and always the same
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % most
    };
    for _ in 0..400 {
        let mut settings = Vec::new();
        let mut expected = ["supabase_admin", "9s", "", "begun"];
        for (at, (name, values)) in [
            ("statement_timeout", ["3s", "8s"]),
            ("role", ["pg_monitor", "pg_read_all_data"]),
            ("app.a", ["1", "2"]),
            ("app.b", ["3", "4"]),
        ]
        .into_iter()
        .enumerate()
        {
            if let Some(value) = values.get(usize::try_from(pick(3)).unwrap()) {
                settings.push((name, *value));
                expected[if at < 2 { 1 - at } else { at }] = value;
            }
        }
        let within = Within { settings: &settings, unseen: &[] };
        let mut lease = pool.take().await.unwrap();
        let expected = expected.join(" ");
        let fails = || Statement::named("select 1 / (current_user = 'nobody')::int", &[]);
        let begin = || Batch::new().statement(Statement::named("begin", &[])).within(within);
        let shown = || Statement::named(SHOWN, &[]);
        match pick(6) {
            0 => assert_eq!(show(&mut lease, &settings).await, expected),
            1 => {
                let answers = lease.run(&self::shown(&settings).restoring()).await.unwrap();
                assert_eq!(text(&answers, 0), expected);
            }
            2 => {
                let outcome = lease.run(&self::shown(&settings).statement(fails())).await;
                assert_eq!(outcome.unwrap_err().sqlstate(), Some("22012"));
            }
            3 => {
                let end = if pick(2) == 0 { "commit" } else { "rollback" };
                let batch = begin().statement(shown()).statement(Statement::named(end, &[]));
                let answers = lease.run(&batch).await.unwrap();
                assert_eq!((text(&answers, 1), answers.len()), (expected, 3));
            }
            4 => {
                let answers = lease.run(&begin().statement(shown())).await.unwrap();
                assert_eq!(text(&answers, 1), expected);
                // Its settings hold for all of the transaction, and the lease may end before it
                assert_eq!(show(&mut lease, &[("app.a", "other")]).await, expected);
                let end = ["commit", "rollback"].get(usize::try_from(pick(3)).unwrap());
                if let Some(end) = end {
                    one(&mut lease, end).await.unwrap();
                }
            }
            _ => {
                let _ = lease.run(&begin().statement(fails())).await.unwrap_err();
                one(&mut lease, if pick(2) == 0 { "commit" } else { "rollback" }).await.unwrap();
            }
        }
    }
    drop(pool);
    scratch.drop().await;
}

/// Who hardens a database takes `set_config` away from everybody but the role that logs in.
#[tokio::test]
async fn roles_need_no_right_to_set_anything() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(one_connection());
    let mut lease = pool.take().await.unwrap();
    one(&mut lease, "revoke execute on function pg_catalog.set_config from public").await.unwrap();
    for round in ["1", "2", "3", "4"] {
        let wanted = [("role", "pg_monitor"), ("app.a", round)];
        assert_eq!(show(&mut lease, &wanted).await, format!("pg_monitor 9s {round} begun"));
        // What a statement may not do is another matter
        let within = Within { settings: &[("role", "pg_monitor"), ("app.a", "9")], unseen: &[] };
        let forbidden = Statement::named("select from pg_authid", &[]);
        let outcome = lease.run(&Batch::new().within(within).statement(forbidden)).await;
        assert_eq!(outcome.unwrap_err().sqlstate(), Some("42501"));
    }
    drop((lease, pool));
    scratch.drop().await;
}

/// A role that was taken away is not kept for long, nor is one of the same name that is no more.
#[tokio::test]
async fn a_role_that_is_no_longer_allowed_is_left() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(one_connection());
    let mut lease = pool.take().await.unwrap();
    let name = portico_database::scratch::fresh_name();
    one(&mut lease, &format!("create role {name}")).await.unwrap();
    let wanted = [("role", name.as_str())];
    assert_eq!(show(&mut lease, &wanted).await, format!("{name} 9s  begun"));
    one(&mut lease, &format!("drop role {name}")).await.unwrap();
    let begun = std::time::Instant::now();
    // From the connection's clock: no event tells of it
    while let Ok(answers) = lease.run(&shown(&wanted)).await {
        drop(answers);
        assert!(begun.elapsed().as_secs() < 60, "it is never asked for again");
    }
    one(&mut lease, &format!("create role {name}")).await.unwrap();
    assert_eq!(show(&mut lease, &wanted).await, format!("{name} 9s  begun"));
    one(&mut lease, &format!("drop role {name}")).await.unwrap();
    drop((lease, pool));
    scratch.drop().await;
}

/// Behind a pooler that shares sessions, nothing may stay in one.
#[tokio::test]
async fn without_a_session_settings_last_for_the_batch() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(PoolSettings { connections: 1, prepared: false, ..PoolSettings::default() });
    let mut lease = pool.take().await.unwrap();
    let wanted = [("statement_timeout", "3s"), ("role", "pg_monitor"), ("app.a", "1")];
    for _ in 0..2 {
        assert_eq!(show(&mut lease, &wanted).await, "pg_monitor 3s 1 ");
        assert_eq!(show(&mut lease, &[]).await, "supabase_admin 0  ");
    }
    drop((lease, pool));
    scratch.drop().await;
}

#[tokio::test]
async fn values_of_many_rows_are_joined_as_they_come() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(one_connection());
    let mut lease = pool.take().await.unwrap();
    for (rows, length) in [(0, 1), (1, 3), (3, 100_000), (5000, 7)] {
        let text = format!("select repeat('x', {length}), 'y' from generate_series(1, {rows})");
        let batch = Batch::new()
            .statement(Statement::named("select 'in front'", &[]))
            .statement(Statement::named(&text, &[]).gathered(LIST))
            .statement(Statement::named("select 'behind'", &[]));
        let mut answers = lease.run(&batch.within(Within { settings: &[("app.a", "1")], unseen: &[] })).await.unwrap();
        let gathered = answers.gathered().unwrap();
        assert_eq!(gathered.rows, rows);
        let joined = vec!["x".repeat(length); usize::try_from(rows).unwrap()].join(", ");
        assert!(gathered.pieces.concat() == format!("[{joined}]").as_bytes());
        assert_eq!((self::text(&answers, 0), self::text(&answers, 2)), ("in front".to_owned(), "behind".to_owned()));
        assert_eq!((answers.rows(1).len(), answers.affected(1)), (0, Some(rows)));
    }
    let late = "select 1 / (5 - n) from generate_series(1, 9) as n";
    let outcome = lease.run(&Batch::new().statement(Statement::named(late, &[]).gathered(LIST))).await;
    assert!(matches!(outcome, Err(WireError::Postgres(error)) if error.code == "22012"));
    drop((lease, pool));
    scratch.drop().await;
}
