//! What a connection carries from one caller to the next, and values joined as they come in.

use portico_database::wire::{
    Access, Batch, FunctionTraits, Pool, PooledConnection, ResultSets, RowSeparators, Statement, WireError,
    WirePoolSettings,
};

use crate::wire::{Scratch, one, value};

const LIST: RowSeparators = RowSeparators { open: "[", between: ", ", close: "]" };

fn one_connection() -> WirePoolSettings {
    WirePoolSettings { max_connections: 1, ..WirePoolSettings::default() }
}

fn text(answers: &ResultSets, statement: usize) -> String {
    answers.row(statement).unwrap().text(0).unwrap().to_owned()
}

/// The parts of a session that another caller could see.
const SEEN: &str = "select concat_ws(' ', current_user, session_user, current_setting('role'), current_setting('statement_timeout'),
    current_setting('search_path'), nullif(current_setting('app.a', true), ''), nullif(current_setting('app.b', true), ''),
    current_setting('default_transaction_read_only'), current_setting('plan_cache_mode'),
    (select count(*) from pg_listening_channels()), (select count(*) from pg_cursors where is_holdable),
    (select count(*) from pg_prepared_statements where from_sql),
    (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()),
    (select count(*) from pg_class where relnamespace = pg_my_temp_schema()))";

/// Everything that SQL can leave in a session, each in words that a function could run. `true`: only where the
/// transaction may write.
const LEFTOVERS: [(bool, &str); 16] = [
    (false, "select set_config('app.a', 'left', false)"),
    (false, "set app.b = 'left'"),
    (false, "set search_path = pg_catalog"),
    (false, "set statement_timeout = '1s'"),
    (false, "set default_transaction_read_only = on"),
    (false, "set plan_cache_mode = force_generic_plan"),
    (false, "set role pg_monitor"),
    (false, "set session authorization pg_monitor"),
    (false, "listen someone"),
    (false, "declare left_over cursor with hold for select 1"),
    (false, "prepare left_over as select 1"),
    (false, "select pg_advisory_lock(4711)"),
    (false, "select pg_advisory_lock_shared(4712)"),
    (true, "create temporary table left_over (id int)"),
    (true, "select nextval('numbers')"),
    (false, "discard all"),
];

/// Sends a transaction of one statement in the words of a function.
fn transaction(access: Access, sql: &str) -> String {
    let begin = if access == Access::ReadOnly { "read only" } else { "read write" };
    format!("begin {begin}|do $do$ begin execute $sql${sql}$sql$; end $do$|commit")
}

async fn run(lease: &mut PooledConnection, texts: &str, ends: Option<Access>) -> Result<ResultSets, WireError> {
    let mut batch = Batch::new();
    for text in texts.split('|') {
        batch.push(Statement::named(text, &[]));
    }
    lease
        .run(&match ends {
            Some(access) => batch.ending(access),
            None => batch,
        })
        .await
}

/// Returns what the next caller sees, and whether it has the same connection.
async fn next(pool: &Pool) -> (String, i32) {
    let mut lease = pool.checkout().await.unwrap();
    let seen = value(&mut lease, SEEN).await;
    // `lastval` tells of the last sequence that was drawn from, if there is one
    let last = one(&mut lease, "select lastval()").await;
    assert_eq!(last.unwrap_err().sqlstate(), Some("55000"));
    (seen, lease.process())
}

/// However its last transaction ended: committed, rolled back, failed, or left open by a caller that went away.
#[tokio::test]
async fn nothing_that_a_transaction_leaves_in_the_session_reaches_the_next_caller() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(one_connection());
    one(&mut pool.checkout().await.unwrap(), "create sequence numbers").await.unwrap();
    // A function that prepares statements, which the pool does not always know of
    one(&mut pool.checkout().await.unwrap(), "insert into portico_session.noted values (2)").await.unwrap();
    let (clean, _) = next(&pool).await;
    for traits in [FunctionTraits::UNKNOWN, FunctionTraits::NONE] {
        for access in [Access::ReadOnly, Access::ReadWrite] {
            for (writes, sql) in LEFTOVERS {
                if writes && access == Access::ReadOnly {
                    continue;
                }
                let whole = transaction(access, sql);
                let open = whole.trim_end_matches("|commit");
                let ends: [(String, Option<Access>); 6] = [
                    (whole.clone(), Some(access)),
                    (format!("{open}|rollback"), Some(access)),
                    (format!("{open}|select 1 / 0|commit"), Some(access)),
                    // A caller that does not end its transaction, and one that does not say so
                    (open.to_owned(), None),
                    (whole.clone(), None),
                    (sql.to_owned(), None),
                ];
                for (texts, ends) in ends {
                    pool.set_function_traits(traits);
                    let mut lease = pool.checkout().await.unwrap();
                    let _ = run(&mut lease, &texts, ends).await;
                    drop(lease);
                    assert_eq!(next(&pool).await.0, clean, "{texts} {ends:?}");
                }
            }
        }
    }
    drop(pool);
    scratch.drop().await;
}

/// What is usual costs no connection and no parsed statement.
#[tokio::test]
async fn a_session_is_taken_back_without_losing_its_statements() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(one_connection());
    let (_, process) = next(&pool).await;
    let mut lease = pool.checkout().await.unwrap();
    for sql in ["select set_config('app.a', 'left', false)", "select pg_advisory_lock(4711)"] {
        run(&mut lease, &transaction(Access::ReadWrite, sql), Some(Access::ReadWrite)).await.unwrap();
    }
    let kept = "select count(*) from pg_prepared_statements";
    let before = value(&mut lease, kept).await;
    drop(lease);
    assert_eq!(next(&pool).await.1, process);
    let mut lease = pool.checkout().await.unwrap();
    // Those of `next`: two, and the rollback of the failed one
    let after = value(&mut lease, kept).await.parse::<usize>().unwrap();
    assert!(after >= before.parse().unwrap(), "{before} {after}");
    drop((lease, pool));
    scratch.drop().await;
}

/// A function that is declared immutable and reads a setting may be computed while a plan is made; the plan stays
/// with the session, here inside another function.
#[tokio::test]
async fn a_plan_that_holds_a_caller_s_value_is_of_no_use_to_another() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(one_connection());
    let mut lease = pool.checkout().await.unwrap();
    for sql in [
        "create function who() returns text language plpgsql immutable as $$ begin return current_setting('app.a'); end $$",
        "create function asks() returns text language plpgsql stable as $$ begin return who(); end $$",
    ] {
        one(&mut lease, sql).await.unwrap();
    }
    drop(lease);
    for round in 0..20 {
        let caller = format!("caller {round}");
        let set = format!("select set_config('app.a', '{caller}', true)");
        let mut lease = pool.checkout().await.unwrap();
        let texts = format!("begin read only|{set}|select concat(asks(), who())|commit");
        let answers = run(&mut lease, &texts, Some(Access::ReadOnly)).await.unwrap();
        assert_eq!(text(&answers, 2), format!("{caller}{caller}"));
    }
    drop(pool);
    scratch.drop().await;
}

/// What the server believes of a connection may be wrong: a function has thrown away its statements.
#[tokio::test]
async fn a_connection_in_doubt_is_replaced_and_the_batch_run_again() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(one_connection());
    let mut lease = pool.checkout().await.unwrap();
    let process = lease.process();
    let texts = "begin read only|select 'answer'|commit";
    run(&mut lease, texts, Some(Access::ReadOnly)).await.unwrap();
    run(&mut lease, "deallocate all", None).await.unwrap();
    let answers = run(&mut lease, texts, Some(Access::ReadOnly)).await.unwrap();
    assert_eq!(text(&answers, 1), "answer");
    assert_ne!(lease.process(), process);
    // In the middle of a transaction nothing can be run again
    run(&mut lease, "begin|select 'answer'", None).await.unwrap();
    run(&mut lease, "deallocate all", None).await.unwrap();
    let error = run(&mut lease, "select 'answer'", None).await.unwrap_err();
    assert_eq!(error.sqlstate(), Some("26000"));
    assert!(lease.is_broken());
    drop((lease, pool));
    scratch.drop().await;
}

/// Behind a pooler that lends sessions by transaction, everything is taken back with the transaction's own write.
#[tokio::test]
async fn without_a_session_of_its_own_a_transaction_leaves_nothing_either() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(WirePoolSettings { max_connections: 1, prepared: false, ..WirePoolSettings::default() });
    one(&mut pool.checkout().await.unwrap(), "create sequence numbers").await.unwrap();
    let (clean, process) = next(&pool).await;
    for (_, sql) in LEFTOVERS {
        let mut lease = pool.checkout().await.unwrap();
        let _ = run(&mut lease, &transaction(Access::ReadWrite, sql), Some(Access::ReadWrite)).await;
        drop(lease);
        assert_eq!(next(&pool).await, (clean.clone(), process), "{sql}");
    }
    drop(pool);
    scratch.drop().await;
}

#[tokio::test]
async fn values_of_many_rows_are_joined_as_they_come() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(one_connection());
    let mut lease = pool.checkout().await.unwrap();
    for (rows, length) in [(0, 1), (1, 3), (3, 100_000), (5000, 7)] {
        let text = format!("select repeat('x', {length}), 'y' from generate_series(1, {rows})");
        let batch = Batch::new()
            .statement(Statement::named("select 'in front'", &[]))
            .statement(Statement::named(&text, &[]).joined(LIST))
            .statement(Statement::named("select 'behind'", &[]));
        let mut answers = lease.run(&batch).await.unwrap();
        let joined_rows = answers.take_joined_rows().unwrap();
        assert_eq!(joined_rows.rows, rows);
        let joined = vec!["x".repeat(length); usize::try_from(rows).unwrap()].join(", ");
        assert!(joined_rows.pieces.concat() == format!("[{joined}]").as_bytes());
        assert_eq!((self::text(&answers, 0), self::text(&answers, 2)), ("in front".to_owned(), "behind".to_owned()));
        assert_eq!((answers.rows(1).len(), answers.affected(1)), (0, Some(rows)));
    }
    let late = "select 1 / (5 - n) from generate_series(1, 9) as n";
    let outcome = lease.run(&Batch::new().statement(Statement::named(late, &[]).joined(LIST))).await;
    assert!(matches!(outcome, Err(WireError::Postgres(error)) if error.code == "22012"));
    drop((lease, pool));
    scratch.drop().await;
}

/// SQL can exchange the statements that a connection has prepared, also those that take the session back. The pool may
/// not know yet that the database has a function that does so.
#[tokio::test]
async fn exchanged_statements_neither_run_for_the_next_caller_nor_hide_what_is_left() {
    const EXCHANGE: &str = "
        do $do$
        declare
          s record;
        begin
          perform set_config('app.a', 'left', false), pg_advisory_lock(4711);
          for s in select name from pg_prepared_statements where not from_sql and statement not like '%deallocate%' loop
            execute format('deallocate %I', s.name);
            execute format('prepare %I as select 0, ''none'', session_user, false, 0, false', s.name);
          end loop;
        end $do$";
    let scratch = Scratch::new().await;
    let pool = scratch.pool(one_connection());
    let admin = portico_database::connect(&scratch.endpoint).await.unwrap();
    admin.batch_execute("insert into portico_session.noted values (2)").await.unwrap();
    let (clean, _) = next(&pool).await;
    for traits in [FunctionTraits::UNKNOWN, FunctionTraits::NONE] {
        for round in 0..3 {
            pool.set_function_traits(traits);
            let mut lease = pool.checkout().await.unwrap();
            let mut batch = Batch::new();
            for text in ["begin", EXCHANGE, "commit"] {
                batch.push(Statement::named(text, &[]));
            }
            let _ = lease.run(&batch.ending(Access::ReadWrite)).await;
            drop(lease);
            assert_eq!(next(&pool).await.0, clean, "{traits:?} {round}");
            assert!(pool.function_traits().prepares);
        }
    }
    drop((admin, pool));
    scratch.drop().await;
}

/// A command that was exchanged shows by its tag, though no list says that a function prepares statements.
#[tokio::test]
async fn a_command_that_did_not_run_is_noticed() {
    let scratch = Scratch::new().await;
    let pool = scratch.plain_pool(one_connection());
    let (clean, _) = next(&pool).await;
    for (command, leaves) in [
        ("reset all", "perform set_config('app.a', 'left', false)"),
        ("close all", "declare left_over cursor with hold for select 1"),
        ("unlisten *", "listen someone"),
        ("discard sequences", "perform nextval('numbers')"),
    ] {
        let mut lease = pool.checkout().await.unwrap();
        one(&mut lease, "create sequence if not exists numbers").await.unwrap();
        // Statements that the batch below makes and that the tail needs are there from here on
        run(&mut lease, "begin|commit", Some(Access::ReadWrite)).await.unwrap();
        let exchange = format!(
            "do $do$
             declare s text := (select name from pg_prepared_statements where statement = '{command}');
             begin
               {leaves};
               execute format('deallocate %I', s);
               execute format('prepare %I as select 1', s);
             end $do$"
        )
        .replace("declare left_over", "execute 'declare left_over")
        .replace("select 1;", "select 1';");
        run(&mut lease, &format!("begin|{exchange}|commit"), Some(Access::ReadWrite)).await.unwrap();
        drop(lease);
        assert_eq!(next(&pool).await.0, clean, "{command}");
    }
    drop(pool);
    scratch.drop().await;
}

/// The same where nothing is asked behind the transaction.
#[tokio::test]
async fn without_a_session_of_its_own_a_connection_ends_while_expressions_keep_values() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(WirePoolSettings { max_connections: 1, prepared: false, ..WirePoolSettings::default() });
    pool.set_function_traits(FunctionTraits { keeps: true, ..FunctionTraits::NONE });
    let mut lease = pool.checkout().await.unwrap();
    let process = lease.process();
    run(&mut lease, "begin read only|select 1|commit", Some(Access::ReadOnly)).await.unwrap();
    drop(lease);
    assert_ne!(pool.checkout().await.unwrap().process(), process);
    drop(pool);
    scratch.drop().await;
}

/// PostgreSQL keeps what immutable functions return in some expressions until the session ends.
#[tokio::test]
async fn a_session_ends_with_its_transaction_while_expressions_keep_values() {
    let scratch = Scratch::new().await;
    let pool = scratch.plain_pool(one_connection());
    let (clean, mut process) = next(&pool).await;
    let admin = portico_database::connect(&scratch.endpoint).await.unwrap();
    admin.batch_execute("insert into portico_session.noted values (4)").await.unwrap();
    for _ in 0..3 {
        let mut lease = pool.checkout().await.unwrap();
        run(&mut lease, "begin read only|select 1|commit", Some(Access::ReadOnly)).await.unwrap();
        drop(lease);
        let (seen, next) = next(&pool).await;
        assert_eq!(seen, clean);
        assert_ne!(std::mem::replace(&mut process, next), next);
    }
    drop((admin, pool));
    scratch.drop().await;
}

/// What was compiled or looked up while a temporary table hid another one may stay with the session.
#[tokio::test]
async fn a_session_with_a_temporary_table_ends() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(one_connection());
    let (clean, process) = next(&pool).await;
    let mut lease = pool.checkout().await.unwrap();
    let texts = "begin|create temporary table items (id text) on commit drop|commit";
    run(&mut lease, texts, Some(Access::ReadWrite)).await.unwrap();
    drop(lease);
    let (seen, next) = next(&pool).await;
    assert_eq!(seen, clean);
    assert_ne!(next, process);
    drop(pool);
    scratch.drop().await;
}
