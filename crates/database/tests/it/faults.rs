//! Crashes that the embedded cluster survives: of its server, and of its owner.

use std::env;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use portico_database::cluster::{Cluster, ClusterError, ClusterSettings};
use portico_database::scratch::{ClusterFolder, start_cluster};
use portico_database::{Database, PoolSettings, connect};
use rustix::process::{Pid, Signal, getpgid, kill_process};

use crate::cluster::within;

/// Names the folder of the cluster that a process of its own is to keep.
const OWNED: &str = "PORTICO_TEST_OWNED_CLUSTER";

/// Not a test of its own but the body of the process that the tests below start and kill: without
/// the variable that they set there is nothing to keep.
#[test]
fn a_process_that_keeps_a_cluster() {
    let Some(folder) = env::var_os(OWNED) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let cluster = runtime.block_on(start_cluster(ClusterSettings::new(Path::new(&folder).join("database")))).unwrap();
    let ready = Path::new(&folder).join("ready");
    std::fs::write(ready.with_extension("new"), cluster.process().unwrap().to_string()).unwrap();
    std::fs::rename(ready.with_extension("new"), ready).unwrap();
    loop {
        std::thread::park();
    }
}

/// Starts a process that keeps a cluster in `folder`; also the number of its PostgreSQL.
async fn owner(folder: &Path) -> (Child, Pid) {
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "faults::a_process_that_keeps_a_cluster", "--nocapture"])
        .env(OWNED, folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let number = within(Duration::from_secs(60), async || std::fs::read_to_string(folder.join("ready")).ok()).await;
    (child, Pid::from_raw(number.parse().unwrap()).unwrap())
}

#[tokio::test]
async fn a_killed_owner_takes_its_server_along_and_the_next_one_finds_everything() {
    let folder = ClusterFolder::new();
    let (mut child, server) = owner(folder.path()).await;
    let settings = ClusterSettings::new(folder.path().join("database"));
    assert_eq!(getpgid(Some(server)).unwrap(), server, "what a terminal sends to us does not reach it");
    let process = std::fs::metadata(format!("/proc/{}", server.as_raw_nonzero())).unwrap();
    assert_ne!(process.uid(), 0, "never as root");

    let refusal = Cluster::start(settings.clone()).await.unwrap_err();
    assert!(
        matches!(&refusal, ClusterError::Locked { process: Some(process), .. } if *process == child.id()),
        "{refusal}"
    );
    assert!(refusal.to_string().contains(&child.id().to_string()), "{refusal}");

    child.kill().unwrap();
    child.wait().unwrap();
    let cluster = Cluster::start(settings).await.unwrap();
    // Its number may stay for a while, but a process that ended works in no folder.
    let old = std::fs::read_link(format!("/proc/{}/cwd", server.as_raw_nonzero()));
    assert!(!old.is_ok_and(|at| at.starts_with(folder.path())), "the old server is gone before the new one starts");
    connect(&cluster.endpoint()).await.unwrap().batch_execute("create table t ()").await.unwrap();
}

#[tokio::test]
async fn owner_and_server_killed_together_leave_nothing_in_the_way() {
    let folder = ClusterFolder::new();
    let (mut child, server) = owner(folder.path()).await;
    // Stopped, the server cannot follow its owner: the next start finds it alive and has to kill
    // it.
    kill_process(server, Signal::STOP).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    kill_process(server, Signal::KILL).unwrap();

    let cluster = Cluster::start(ClusterSettings::new(folder.path().join("database"))).await.unwrap();

    connect(&cluster.endpoint()).await.unwrap().batch_execute("create table t ()").await.unwrap();
}

#[tokio::test]
async fn a_killed_server_comes_back_with_what_was_committed_and_the_pools_heal() {
    let folder = ClusterFolder::new();
    let cluster = start_cluster(ClusterSettings::new(folder.path().join("database"))).await.unwrap();
    let database = Database::open(&cluster.endpoint(), PoolSettings::default()).unwrap();
    let held = database.login_client().await.unwrap();
    held.batch_execute("create table public.kept (n int); insert into public.kept values (1)").await.unwrap();
    // One connection in hand, one idle in the pool.
    drop(database.login_client().await.unwrap());
    let before = cluster.process().unwrap();

    kill_process(Pid::from_raw(before.cast_signed()).unwrap(), Signal::KILL).unwrap();

    let broken = within(Duration::from_secs(60), async || held.query_one("select 1", &[]).await.err()).await;
    assert!(portico_database::DatabaseError::from(broken).is_unavailable());
    drop(held);
    // A session that has not noticed yet may still answer, so the new server is waited for first.
    within(Duration::from_secs(60), async || cluster.process().filter(|process| *process != before)).await;
    let kept: i32 = within(Duration::from_secs(60), async || {
        let attempt =
            async { Ok(database.login_client().await?.query_one("select n from public.kept", &[]).await?.get(0)) };
        let attempt: Result<_, portico_database::DatabaseError> = attempt.await;
        attempt.inspect_err(|error| assert!(error.is_unavailable(), "{error}")).ok()
    })
    .await;
    assert_eq!(kept, 1);
    assert_eq!(cluster.restarts(), 1);

    // Every connection of the pool is whole again.
    let all = futures_util::future::join_all((0..4).map(|_| database.login_client())).await;
    for client in all {
        client.unwrap().query_one("select 1", &[]).await.unwrap();
    }
}
