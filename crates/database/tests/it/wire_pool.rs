//! The pool of the wire client: its limits, and its behaviour when connections break.

use std::time::Duration;

use futures_util::future::join_all;
use portico_database::cluster::{ClusterSettings, Durability};
use portico_database::connect;
use portico_database::scratch::{ClusterFolder, start_cluster};
use portico_database::wire::{Access, Batch, Pool, PoolStatus, Statement, WireError, WirePoolSettings};
use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::within;
use crate::wire::{NO_TRAITS, PATIENCE, Scratch, one, pool_settings, value};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_callers_share_eight_connections() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(pool_settings(8));
    let callers = (0..100).map(|caller: u32| {
        let pool = pool.clone();
        tokio::spawn(async move {
            for round in 0..20 {
                let sent = format!("{caller}-{round}");
                let mut connection = pool.checkout().await.unwrap();
                let params = [Some(sent.as_bytes())];
                let batch = Batch::new()
                    .statement(Statement::named("select set_config('app.sent', $1, true)", &params))
                    .statement(Statement::named("select current_setting('app.sent'), pg_sleep(0)", &[]));
                let results = connection.run(&batch).await.unwrap();
                assert_eq!(results.row(1).unwrap().text(0), Some(&*sent));
                assert!(pool.status().open <= 8);
            }
        })
    });
    for caller in join_all(callers).await {
        caller.unwrap();
    }
    // Sessions are restored after their callers have returned them
    within(PATIENCE, async || (pool.status().open == pool.status().idle).then_some(())).await;
    let PoolStatus { idle, waiting, .. } = pool.status();
    assert!(idle <= 8 && waiting == 0, "{idle} {waiting}");
    assert_eq!(pool.timeouts(), 0);
    drop(pool);
    scratch.drop().await;
}

#[tokio::test]
async fn callers_are_served_in_their_order_or_time_out() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(pool_settings(1));
    let held = pool.checkout().await.unwrap();
    let served = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for number in 0..5_usize {
        let (pool, served) = (pool.clone(), served.clone());
        waiters.push(tokio::spawn({
            let pool = pool.clone();
            async move {
                let connection = pool.checkout().await.unwrap();
                served.lock().unwrap().push(number);
                drop(connection);
            }
        }));
        within(PATIENCE, async || (pool.status().waiting == number + 1).then_some(())).await;
    }
    drop(held);
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(*served.lock().unwrap(), [0, 1, 2, 3, 4]);
    assert_eq!(pool.status(), PoolStatus { open: 1, idle: 1, waiting: 0 });

    let hasty = scratch.pool(WirePoolSettings {
        max_connections: 1,
        checkout_timeout: Duration::from_millis(50),
        ..WirePoolSettings::default()
    });
    let held = hasty.checkout().await.unwrap();
    let error = hasty.checkout().await.unwrap_err();
    assert!(matches!(error, WireError::Busy(_)) && error.is_unavailable(), "{error}");
    assert_eq!(hasty.timeouts(), 1);
    drop(held);
    drop(hasty.checkout().await.unwrap());
    hasty.close();
    assert!(matches!(hasty.checkout().await, Err(WireError::Closed)));
    assert_eq!(hasty.status().open, 0);
    drop(pool);
    scratch.drop().await;
}

#[tokio::test]
async fn the_most_recently_used_connection_is_used_first_and_idle_ones_are_closed() {
    let scratch = Scratch::new().await;
    let settings =
        WirePoolSettings { max_connections: 3, max_idle: Duration::from_millis(100), ..WirePoolSettings::default() };
    let pool = scratch.pool(settings);
    let connections = [pool.checkout().await.unwrap(), pool.checkout().await.unwrap(), pool.checkout().await.unwrap()];
    let last = connections[2].process();
    drop(connections);
    assert_eq!(pool.checkout().await.unwrap().process(), last);
    within(PATIENCE, async || (pool.status().open == 0).then_some(())).await;
    let admin = connect(&scratch.endpoint).await.unwrap();
    within(PATIENCE, async || {
        let others =
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
        (admin.query_one(others, &[]).await.unwrap().get::<_, i64>(0) == 0).then_some(())
    })
    .await;
    // And again, after the pool was empty
    drop(pool.checkout().await.unwrap());
    within(PATIENCE, async || (pool.status().open == 0).then_some(())).await;
    drop(admin);
    scratch.drop().await;
}

#[tokio::test]
async fn renewals_and_expiry_replace_connections() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(WirePoolSettings { max_connections: 2, ..WirePoolSettings::default() });
    let (mut held, idle) = (pool.checkout().await.unwrap(), pool.checkout().await.unwrap());
    let old = [held.process(), idle.process()];
    drop(idle);
    pool.renew();
    assert_eq!(pool.status(), PoolStatus { open: 1, idle: 0, waiting: 0 });
    assert_eq!(value(&mut held, "select 1").await, "1", "a connection in use stays usable");
    drop(held);
    let new = [pool.checkout().await.unwrap(), pool.checkout().await.unwrap()];
    assert!(new.iter().all(|connection| !old.contains(&connection.process())));
    drop(new);

    let ageing = scratch.pool(WirePoolSettings { max_lifetime: Duration::ZERO, ..WirePoolSettings::default() });
    let first = ageing.checkout().await.unwrap().process();
    assert_ne!(ageing.checkout().await.unwrap().process(), first);
    drop((pool, ageing));
    scratch.drop().await;
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_not_used() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(WirePoolSettings { max_connections: 2, ..WirePoolSettings::default() });
    let admin = connect(&scratch.endpoint).await.unwrap();
    let end = "select pg_terminate_backend($1)";
    let (mut held, idle) = (pool.checkout().await.unwrap(), pool.checkout().await.unwrap());
    let (first, second) = (held.process(), idle.process());
    drop(idle);
    for process in [first, second] {
        admin.execute(end, &[&process]).await.unwrap();
        within(PATIENCE, async || {
            let gone = "select not exists (select from pg_stat_activity where pid = $1)";
            admin.query_one(gone, &[&process]).await.unwrap().get::<_, bool>(0).then_some(())
        })
        .await;
    }
    let error = one(&mut held, "select 1").await.unwrap_err();
    assert!(error.is_unavailable() && held.is_broken(), "{error}");
    assert_eq!(pool.status().idle, 0, "the other one was dropped with it");
    drop(held);
    let mut connections = [pool.checkout().await.unwrap(), pool.checkout().await.unwrap()];
    for connection in &mut connections {
        assert_eq!(value(connection, "select 1").await, "1");
    }
    drop(connections);

    // During a statement the server sends the reason
    let mut connection = pool.checkout().await.unwrap();
    let process = connection.process();
    let (error, ()) = tokio::join!(one(&mut connection, "select pg_sleep(600)"), async {
        within(PATIENCE, async || {
            let running = "select exists (select from pg_stat_activity where pid = $1 and query like '%pg_sleep%' and state = 'active')";
            admin.query_one(running, &[&process]).await.unwrap().get::<_, bool>(0).then_some(())
        })
        .await;
        admin.execute(end, &[&process]).await.unwrap();
    });
    let error = error.unwrap_err();
    assert_eq!(error.sqlstate(), Some("57P01"));
    assert!(error.is_unavailable());
    drop((connection, admin));
    scratch.drop().await;
}

#[tokio::test]
async fn asynchronous_messages_do_no_harm() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(WirePoolSettings { max_connections: 1, ..WirePoolSettings::default() });
    let admin = connect(&scratch.endpoint).await.unwrap();
    let mut connection = pool.checkout().await.unwrap();
    let process = connection.process();
    one(&mut connection, "listen news").await.unwrap();
    for _ in 0..3 {
        // Some arrive while the connection is idle, some during a response
        drop(connection);
        for number in 0..500 {
            admin.execute("select pg_notify('news', $1 || repeat('x', 7000))", &[&number.to_string()]).await.unwrap();
        }
        connection = pool.checkout().await.unwrap();
        admin.execute("notify news", &[]).await.unwrap();
        assert_eq!(value(&mut connection, "select set_config('timezone', 'Asia/Tokyo', false)").await, "Asia/Tokyo");
        assert_eq!(connection.process(), process);
    }
    drop((connection, admin));
    scratch.drop().await;
}

#[tokio::test]
async fn the_statement_of_a_cancelled_caller_is_cancelled() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(pool_settings(1));
    let admin = connect(&scratch.endpoint).await.unwrap();
    let task = tokio::spawn({
        let pool = pool.clone();
        async move { drop(one(&mut pool.checkout().await.unwrap(), "select pg_sleep(600)").await) }
    });
    let sleeping = async || {
        let running = "select count(*) from pg_stat_activity where datname = current_database() and query = 'select pg_sleep(600)' and state = 'active'";
        admin.query_one(running, &[]).await.unwrap().get::<_, i64>(0)
    };
    within(PATIENCE, async || (sleeping().await == 1).then_some(())).await;
    task.abort();
    within(PATIENCE, async || (sleeping().await == 0).then_some(())).await;
    let mut connection = pool.checkout().await.unwrap();
    assert_eq!(value(&mut connection, "select 1").await, "1");
    drop((connection, admin));
    scratch.drop().await;
}

#[tokio::test]
async fn the_pool_recovers_from_a_restart_of_the_server() {
    let folder = ClusterFolder::new();
    let settings =
        ClusterSettings { durability: Durability::Off, ..ClusterSettings::new(folder.path().join("database")) };
    let cluster = start_cluster(settings).await.unwrap();
    let admin = connect(&cluster.endpoint()).await.unwrap();
    admin.batch_execute(NO_TRAITS).await.unwrap();
    // So that the list survives the crash below
    admin.batch_execute("checkpoint").await.unwrap();
    drop(admin);
    let pool = Pool::open(
        &cluster.endpoint(),
        "supabase_admin",
        WirePoolSettings { max_connections: 4, ..WirePoolSettings::default() },
    )
    .unwrap();
    let mut held = pool.checkout().await.unwrap();
    drop(join_all((0..3).map(|_| pool.checkout())).await);
    assert_eq!(pool.status(), PoolStatus { open: 4, idle: 3, waiting: 0 });
    let before = cluster.process().unwrap();

    kill_process(Pid::from_raw(before.cast_signed()).unwrap(), Signal::KILL).unwrap();

    within(PATIENCE, async || cluster.process().filter(|process| *process != before)).await;
    let broken = within(PATIENCE, async || one(&mut held, "select 1").await.err()).await;
    assert!(broken.is_unavailable(), "{broken}");
    drop(held);
    within(PATIENCE, async || {
        let attempt = async { one(&mut pool.checkout().await?, "select 1").await };
        attempt.await.inspect_err(|error| assert!(error.is_unavailable(), "{error}")).ok()
    })
    .await;
    for connection in join_all((0..4).map(|_| pool.checkout())).await {
        assert_eq!(value(&mut connection.unwrap(), "select 1").await, "1");
    }
    cluster.stop().await;
    let error = within(PATIENCE, async || match pool.checkout().await {
        Ok(mut connection) => one(&mut connection, "select 1").await.err(),
        Err(error) => Some(error),
    })
    .await;
    assert!(error.is_unavailable(), "{error}");
}

#[tokio::test]
async fn a_session_that_cannot_be_reset_ends() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(pool_settings(1));
    let mut connection = pool.checkout().await.unwrap();
    let process = connection.process();
    // The statements of the reset are prepared from here on
    let plain = Batch::new().statement(Statement::named("begin", &[])).statement(Statement::named("commit", &[]));
    connection.run(&plain.ending(Access::ReadWrite)).await.unwrap();
    let batch = Batch::new()
        .statement(Statement::named("begin", &[]))
        .statement(Statement::named("select set_config('app.left', 'behind', false)", &[]))
        .statement(Statement::named("deallocate all", &[]))
        .statement(Statement::unnamed("commit", &[]))
        .ending(Access::ReadWrite);
    // It was committed, so the batch succeeds
    let results = connection.run(&batch).await.unwrap();
    assert_eq!((results.row(1).unwrap().text(0), results.tag(3)), (Some("behind"), "COMMIT"));
    assert!(connection.is_broken());
    drop(connection);
    let mut connection = pool.checkout().await.unwrap();
    assert_ne!(connection.process(), process);
    assert_eq!(
        value(&mut connection, "select coalesce(current_setting('app.left', true), 'nothing')").await,
        "nothing"
    );
    drop((connection, pool));
    scratch.drop().await;
}
