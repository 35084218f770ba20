//! The pool of the wire client, shared by callers on several runtimes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use futures_util::FutureExt as _;
use portico_database::connect;
use portico_database::wire::{Pool, PoolStatus, WireError};

use crate::cluster::within;
use crate::wire::{PATIENCE, Scratch, pool_settings, value};

/// Runs `work` on a thread with a runtime of its own.
fn on_another_runtime<F: Future<Output: Send> + 'static>(
    work: impl FnOnce() -> F + Send + 'static,
) -> JoinHandle<F::Output> {
    std::thread::spawn(|| tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work()))
}

async fn ended<T: Send + 'static>(thread: JoinHandle<T>) -> T {
    portico_base::spawn_blocking(|| thread.join().unwrap()).await.unwrap()
}

async fn process(pool: &Pool) -> (i32, String) {
    let mut connection = pool.checkout().await.unwrap();
    (connection.process(), value(&mut connection, "select pg_backend_pid()").await)
}

#[tokio::test]
async fn callers_of_four_runtimes_share_three_connections() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(pool_settings(3));
    let threads = (0..4_u32).map(|runtime| {
        let pool = pool.clone();
        on_another_runtime(move || async move {
            let callers = (0..5_u32).map(|caller| {
                let pool = pool.clone();
                tokio::spawn(async move {
                    for round in 0..40 {
                        let sent = format!("{runtime}-{caller}-{round}");
                        let mut connection = pool.checkout().await.unwrap();
                        assert_eq!(value(&mut connection, &format!("select '{sent}'")).await, sent);
                        assert!(pool.status().open <= 3);
                    }
                })
            });
            for caller in futures_util::future::join_all(callers).await {
                caller.unwrap();
            }
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        ended(thread).await;
    }
    let PoolStatus { open, idle, waiting } = pool.status();
    assert!(open == idle && idle <= 3 && waiting == 0, "{open} {idle} {waiting}");
    assert_eq!(pool.timeouts(), 0);
    // They did not end with the runtimes that they were opened on
    let (pid, reported) = process(&pool).await;
    assert_eq!(reported, pid.to_string());
    drop(pool);
    scratch.drop().await;
}

#[tokio::test]
async fn a_connection_moves_to_the_runtime_of_its_caller() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(pool_settings(1));
    let there = pool.clone();
    let (pid, _) = ended(on_another_runtime(move || async move { process(&there).await })).await;
    // Its runtime has ended, and would never wake this task
    assert_eq!(process(&pool).await, (pid, pid.to_string()));
    let there = pool.clone();
    let same = ended(on_another_runtime(move || async move { process(&there).await })).await;
    assert_eq!(same.0, pid);
    drop(pool);
    scratch.drop().await;
}

#[tokio::test]
async fn a_connection_that_the_server_closed_does_not_move() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(pool_settings(1));
    let admin = connect(&scratch.endpoint).await.unwrap();
    let there = pool.clone();
    let (pid, _) = ended(on_another_runtime(move || async move { process(&there).await })).await;
    admin.execute("select pg_terminate_backend($1)", &[&pid]).await.unwrap();
    within(PATIENCE, async || {
        let gone = "select not exists (select from pg_stat_activity where pid = $1)";
        admin.query_one(gone, &[&pid]).await.unwrap().get::<_, bool>(0).then_some(())
    })
    .await;
    let (other, reported) = process(&pool).await;
    assert_ne!(other, pid);
    assert_eq!(reported, other.to_string());
    drop((pool, admin));
    scratch.drop().await;
}

#[tokio::test]
async fn a_caller_on_another_runtime_does_not_wait_forever() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(pool_settings(1));
    let (busy, over) = (pool.clone(), Arc::new(AtomicBool::new(false)));
    let is_over = over.clone();
    let thread = on_another_runtime(move || async move {
        // Whenever one caller returns the connection, the other waits for it
        let caller = || {
            let (pool, over) = (busy.clone(), is_over.clone());
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let mut connection = pool.checkout().await.unwrap();
                    value(&mut connection, "select 1").await;
                }
            })
        };
        let (one, other) = (caller(), caller());
        one.await.unwrap();
        other.await.unwrap();
    });
    within(PATIENCE, async || (pool.status().waiting > 0).then_some(())).await;
    for _ in 0..20 {
        process(&pool).await;
    }
    over.store(true, Ordering::Relaxed);
    ended(thread).await;
    assert_eq!(pool.timeouts(), 0);
    drop(pool);
    scratch.drop().await;
}

#[tokio::test]
async fn a_grant_for_a_cancelled_caller_returns_to_the_pool() {
    let scratch = Scratch::new().await;
    let pool = scratch.pool(pool_settings(1));
    let held = pool.checkout().await.unwrap();
    let pid = held.process();
    let mut first = Box::pin(pool.checkout());
    let mut second = Box::pin(pool.checkout());
    assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
    assert_eq!(pool.status().waiting, 2);
    drop(second);
    assert_eq!(pool.status().waiting, 1);
    // It is granted to the first caller, which does not poll any more
    drop(held);
    assert_eq!(pool.status(), PoolStatus { open: 1, idle: 0, waiting: 0 });
    drop(first);
    assert_eq!(pool.status(), PoolStatus { open: 1, idle: 1, waiting: 0 });
    assert_eq!(process(&pool).await.0, pid);

    let held = pool.checkout().await.unwrap();
    let mut waiting = Box::pin(pool.checkout());
    assert!(waiting.as_mut().now_or_never().is_none());
    pool.close();
    assert!(matches!(waiting.await, Err(WireError::Closed)));
    drop(held);
    assert_eq!(pool.status().open, 0);
    scratch.drop().await;
}
