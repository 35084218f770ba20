//! The session reset: what a connection must not carry from one caller to the next. And joined
//! rows.

use portico_database::wire::{
    Access, Batch, FunctionTraits, Pool, PooledConnection, ResultSets, RowSeparators, Statement, WireError,
    WirePoolSettings,
};

use crate::bootstrap::ready;
use crate::wire::{Scratch, one, value};

const LIST: RowSeparators = RowSeparators { open: "[", between: ", ", close: "]" };

fn one_connection() -> WirePoolSettings {
    WirePoolSettings { max_connections: 1, ..WirePoolSettings::default() }
}

fn text(results: &ResultSets, statement: usize) -> String {
    results.row(statement).unwrap().text(0).unwrap().to_owned()
}

/// Selects the parts of a session that another caller could see.
const VISIBLE_STATE: &str = "select concat_ws(' ', current_user, session_user, current_setting('role'), current_setting('statement_timeout'),
    current_setting('search_path'), nullif(current_setting('app.a', true), ''), nullif(current_setting('app.b', true), ''),
    current_setting('default_transaction_read_only'), current_setting('plan_cache_mode'),
    (select count(*) from pg_listening_channels()), (select count(*) from pg_cursors where is_holdable),
    (select count(*) from pg_prepared_statements where from_sql),
    (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()),
    (select count(*) from pg_class where relnamespace = pg_my_temp_schema()))";

/// Everything that SQL can leave in a session, each as a statement that a function can run. `true`:
/// only where the transaction may write.
pub(crate) const LEFTOVERS: [(bool, &str); 16] = [
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

/// Returns a transaction that runs one statement inside a function.
pub(crate) fn transaction(access: Access, sql: &str) -> String {
    let begin = if access == Access::ReadOnly { "read only" } else { "read write" };
    format!("begin {begin}|do $do$ begin execute $sql${sql}$sql$; end $do$|commit")
}

pub(crate) async fn run(
    connection: &mut PooledConnection,
    texts: &str,
    ends: Option<Access>,
) -> Result<ResultSets, WireError> {
    let mut batch = Batch::new();
    for text in texts.split('|') {
        batch.push(Statement::named(text, &[]));
    }
    connection
        .run(&match ends {
            Some(access) => batch.ending(access),
            None => batch,
        })
        .await
}

/// Returns what the next caller sees, and the process of its connection.
pub(crate) async fn next(pool: &Pool) -> (String, i32) {
    let mut connection = pool.checkout().await.unwrap();
    let seen = value(&mut connection, VISIBLE_STATE).await;
    // `lastval` returns the last value that was drawn from a sequence, if there is one
    let last = one(&mut connection, "select lastval()").await;
    assert_eq!(last.unwrap_err().sqlstate(), Some("55000"));
    (seen, connection.process())
}

/// The end of the last transaction makes no difference: committed, rolled back, failed, or left
/// open by a caller that was cancelled.
#[tokio::test]
async fn nothing_that_a_transaction_leaves_in_the_session_reaches_the_next_caller() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(one_connection());
    one(&mut pool.checkout().await.unwrap(), "create sequence numbers").await.unwrap();
    // A function that prepares statements, which is not always known to the pool
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
                    // A caller that does not end its transaction, and callers that do not declare
                    // its end
                    (open.to_owned(), None),
                    (whole.clone(), None),
                    (sql.to_owned(), None),
                ];
                for (texts, ends) in ends {
                    pool.set_function_traits(traits);
                    let mut connection = pool.checkout().await.unwrap();
                    let _ = run(&mut connection, &texts, ends).await;
                    drop(connection);
                    assert_eq!(next(&pool).await.0, clean, "{texts} {ends:?}");
                }
            }
        }
    }
    drop(pool);
    scratch.drop().await;
}

/// Usual leftovers cost neither a connection nor prepared statements.
#[tokio::test]
async fn a_session_reset_keeps_the_prepared_statements() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(one_connection());
    let (_, process) = next(&pool).await;
    let mut connection = pool.checkout().await.unwrap();
    for sql in ["select set_config('app.a', 'left', false)", "select pg_advisory_lock(4711)"] {
        run(&mut connection, &transaction(Access::ReadWrite, sql), Some(Access::ReadWrite)).await.unwrap();
    }
    let kept = "select count(*) from pg_prepared_statements";
    let before = value(&mut connection, kept).await;
    drop(connection);
    assert_eq!(next(&pool).await.1, process);
    let mut connection = pool.checkout().await.unwrap();
    // `next` adds two, and the rollback of the failed one
    let after = value(&mut connection, kept).await.parse::<usize>().unwrap();
    assert!(after >= before.parse().unwrap(), "{before} {after}");
    drop((connection, pool));
    scratch.drop().await;
}

/// A function that is declared immutable and reads a setting may be evaluated while a plan is made.
/// The plan stays with the session, here inside another function.
#[tokio::test]
async fn a_plan_with_a_value_of_one_caller_is_not_used_for_another() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(one_connection());
    let mut connection = pool.checkout().await.unwrap();
    for sql in [
        "create function who() returns text language plpgsql immutable as $$ begin return current_setting('app.a'); end $$",
        "create function asks() returns text language plpgsql stable as $$ begin return who(); end $$",
    ] {
        one(&mut connection, sql).await.unwrap();
    }
    drop(connection);
    for round in 0..20 {
        let caller = format!("caller {round}");
        let set = format!("select set_config('app.a', '{caller}', true)");
        let mut connection = pool.checkout().await.unwrap();
        let texts = format!("begin read only|{set}|select concat(asks(), who())|commit");
        let results = run(&mut connection, &texts, Some(Access::ReadOnly)).await.unwrap();
        assert_eq!(text(&results, 2), format!("{caller}{caller}"));
    }
    drop(pool);
    scratch.drop().await;
}

/// The prepared statements that the client believes in may be gone: a function has deallocated
/// them.
#[tokio::test]
async fn a_connection_that_is_out_of_sync_is_replaced_and_its_batch_retried() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(one_connection());
    let mut connection = pool.checkout().await.unwrap();
    let process = connection.process();
    let texts = "begin read only|select 'answer'|commit";
    run(&mut connection, texts, Some(Access::ReadOnly)).await.unwrap();
    run(&mut connection, "deallocate all", None).await.unwrap();
    let results = run(&mut connection, texts, Some(Access::ReadOnly)).await.unwrap();
    assert_eq!(text(&results, 1), "answer");
    assert_ne!(connection.process(), process);
    // Within a transaction nothing can be retried
    run(&mut connection, "begin|select 'answer'", None).await.unwrap();
    run(&mut connection, "deallocate all", None).await.unwrap();
    let error = run(&mut connection, "select 'answer'", None).await.unwrap_err();
    assert_eq!(error.sqlstate(), Some("26000"));
    assert!(connection.is_broken());
    drop((connection, pool));
    scratch.drop().await;
}

/// Behind a pooler that lends sessions by transaction, everything is discarded in the write of the
/// transaction.
#[tokio::test]
async fn without_prepared_statements_a_transaction_leaves_nothing_either() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(WirePoolSettings { max_connections: 1, prepared: false, ..WirePoolSettings::default() });
    one(&mut pool.checkout().await.unwrap(), "create sequence numbers").await.unwrap();
    let (clean, process) = next(&pool).await;
    for (_, sql) in LEFTOVERS {
        let mut connection = pool.checkout().await.unwrap();
        let _ = run(&mut connection, &transaction(Access::ReadWrite, sql), Some(Access::ReadWrite)).await;
        drop(connection);
        assert_eq!(next(&pool).await, (clean.clone(), process), "{sql}");
    }
    drop(pool);
    scratch.drop().await;
}

#[tokio::test]
async fn values_of_many_rows_are_joined_as_they_arrive() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(one_connection());
    let mut connection = pool.checkout().await.unwrap();
    for (rows, length) in [(0, 1), (1, 3), (3, 100_000), (5000, 7)] {
        let text = format!("select repeat('x', {length}), 'y' from generate_series(1, {rows})");
        let batch = Batch::new()
            .statement(Statement::named("select 'in front'", &[]))
            .statement(Statement::named(&text, &[]).joined(LIST))
            .statement(Statement::named("select 'behind'", &[]));
        let mut results = connection.run(&batch).await.unwrap();
        let joined_rows = results.take_joined_rows().unwrap();
        assert_eq!(joined_rows.rows, rows);
        let joined = vec!["x".repeat(length); usize::try_from(rows).unwrap()].join(", ");
        assert!(joined_rows.pieces.concat() == format!("[{joined}]").as_bytes());
        assert_eq!((self::text(&results, 0), self::text(&results, 2)), ("in front".to_owned(), "behind".to_owned()));
        assert_eq!((results.rows(1).len(), results.affected(1)), (0, Some(rows)));
    }
    let late = "select 1 / (5 - n) from generate_series(1, 9) as n";
    let outcome = connection.run(&Batch::new().statement(Statement::named(late, &[]).joined(LIST))).await;
    assert!(matches!(outcome, Err(WireError::Postgres(error)) if error.code == "22012"));
    drop((connection, pool));
    scratch.drop().await;
}

/// SQL can replace the statements that a connection has prepared, including those of the session
/// reset. The pool may not know yet that the database has a function that does so.
#[tokio::test]
async fn replaced_statements_neither_run_for_the_next_caller_nor_hide_leftovers() {
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
            let mut connection = pool.checkout().await.unwrap();
            let mut batch = Batch::new();
            for text in ["begin", EXCHANGE, "commit"] {
                batch.push(Statement::named(text, &[]));
            }
            let _ = connection.run(&batch.ending(Access::ReadWrite)).await;
            drop(connection);
            assert_eq!(next(&pool).await.0, clean, "{traits:?} {round}");
            assert!(pool.function_traits().prepares);
        }
    }
    drop((admin, pool));
    scratch.drop().await;
}

/// A command that was replaced is detected by its command tag, although no list contains the
/// function that prepares statements.
#[tokio::test]
async fn a_reset_command_that_did_not_run_is_detected() {
    let scratch = Scratch::new().await;
    let pool = scratch.plain_pool(one_connection());
    let (clean, _) = next(&pool).await;
    for (command, leaves) in [
        ("reset all", "perform set_config('app.a', 'left', false)"),
        ("close all", "declare left_over cursor with hold for select 1"),
        ("unlisten *", "listen someone"),
        ("discard sequences", "perform nextval('numbers')"),
    ] {
        let mut connection = pool.checkout().await.unwrap();
        one(&mut connection, "create sequence if not exists numbers").await.unwrap();
        // The statements of the batch below and of the reset are prepared from here on
        run(&mut connection, "begin|commit", Some(Access::ReadWrite)).await.unwrap();
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
        run(&mut connection, &format!("begin|{exchange}|commit"), Some(Access::ReadWrite)).await.unwrap();
        drop(connection);
        assert_eq!(next(&pool).await.0, clean, "{command}");
    }
    drop(pool);
    scratch.drop().await;
}

/// The same without a reset check after the transaction.
#[tokio::test]
async fn without_prepared_statements_a_connection_ends_while_expressions_keep_values() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(WirePoolSettings { max_connections: 1, prepared: false, ..WirePoolSettings::default() });
    pool.set_function_traits(FunctionTraits { keeps: true, ..FunctionTraits::NONE });
    let mut connection = pool.checkout().await.unwrap();
    let process = connection.process();
    run(&mut connection, "begin read only|select 1|commit", Some(Access::ReadOnly)).await.unwrap();
    drop(connection);
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
        let mut connection = pool.checkout().await.unwrap();
        run(&mut connection, "begin read only|select 1|commit", Some(Access::ReadOnly)).await.unwrap();
        drop(connection);
        let (seen, next) = next(&pool).await;
        assert_eq!(seen, clean);
        assert_ne!(std::mem::replace(&mut process, next), next);
    }
    drop((admin, pool));
    scratch.drop().await;
}

/// Without event triggers nothing reports an expression that a migration has just created.
#[tokio::test]
async fn a_session_without_event_triggers_ends_once_the_expressions_have_changed() {
    let database = ready(18).await;
    let admin = database.administrator().await.unwrap();
    admin.batch_execute("drop event trigger portico_functions_changed").await.unwrap();
    let traits = FunctionTraits::load(&admin).await.unwrap();
    for prepared in [true, false] {
        let settings = WirePoolSettings { prepared, ..one_connection() };
        let pool = Pool::open(database.endpoint(), "authenticator", settings).unwrap();
        pool.set_function_traits(traits);
        let (_, process) = next(&pool).await;
        assert_eq!(next(&pool).await.1, process, "{prepared}: without a change it is kept");
        admin
            .batch_execute(
                "create or replace function public.caller() returns text language plpgsql immutable
                   as $$ begin return current_setting('app.a', true); end $$;
                 drop domain if exists public.own;
                 create domain public.own as text check (value = public.caller())",
            )
            .await
            .unwrap();
        for caller in ["one", "other"] {
            let texts =
                format!("begin|select set_config('app.a', '{caller}', true)|select '{caller}'::public.own|commit");
            let mut connection = pool.checkout().await.unwrap();
            let results = run(&mut connection, &texts, Some(Access::ReadWrite)).await;
            assert_eq!(text(&results.unwrap_or_else(|error| panic!("{prepared} {caller}: {error}")), 2), caller);
        }
        admin.batch_execute("drop domain public.own; drop function public.caller()").await.unwrap();
    }
}

/// A session may keep what was compiled or resolved while a temporary table hid another one.
#[tokio::test]
async fn a_session_with_a_temporary_table_ends() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(one_connection());
    let (clean, process) = next(&pool).await;
    let mut connection = pool.checkout().await.unwrap();
    let texts = "begin|create temporary table items (id text) on commit drop|commit";
    run(&mut connection, texts, Some(Access::ReadWrite)).await.unwrap();
    drop(connection);
    let (seen, next) = next(&pool).await;
    assert_eq!(seen, clean);
    assert_ne!(next, process);
    drop(pool);
    scratch.drop().await;
}
