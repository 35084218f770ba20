//! Databases that live as long as a test: cloned from a template, dropped afterwards; and a cluster
//! for them. Also clusters and servers that live as long as a test.

mod folder;
mod initialised;
mod leftovers;
mod name;
mod ordinary;
mod pooler;

use std::env;
use std::fs;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio_postgres::error::SqlState;

pub use initialised::{ClusterFolder, start_cluster};
pub use name::fresh_name;
pub use ordinary::OrdinaryServer;
pub use pooler::{PoolerMode, TestPooler};

use self::folder::{boot, clusters_folder, slots_folder};
use self::leftovers::SearchedFolders;
use self::name::PREFIX;
use crate::cluster::{Binaries, Cluster, ClusterError, ClusterSettings, Durability};
use crate::connection;
use crate::endpoint::Endpoint;
use crate::error::DatabaseError;
use crate::quote;
use crate::replication::end_streams;

/// The time to wait for other connections to leave the template: a connection that was just closed
/// is seen for a moment still.
const TEMPLATE_IN_USE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);
/// Test programs of one user that run at the same time, at most.
const SLOTS: u32 = 64;
/// The variable that names the folder of the programs of an older PostgreSQL.
const OLDER_VARIABLE: &str = "PORTICO_TEST_POSTGRES";

/// Returns the programs of an older PostgreSQL, which tests run on besides the embedded one: those
/// in the folder that `PORTICO_TEST_POSTGRES` names, otherwise Debian's of version 15, the oldest
/// that the hosted service runs. `None` if they are not installed.
///
/// # Panics
/// If the variable names a folder without them.
#[must_use]
pub fn older_binaries() -> Option<Binaries> {
    match env::var_os(OLDER_VARIABLE).filter(|folder| !folder.is_empty()) {
        Some(folder) => match Binaries::find(Some(Path::new(&folder))) {
            Ok(binaries) => Some(binaries),
            Err(error) => panic!("{OLDER_VARIABLE}: {error}"),
        },
        None => Binaries::find(Some(Path::new("/usr/lib/postgresql/15/bin"))).ok(),
    }
}

/// Returns the cluster that all tests of this process share, started at the first call. It loses
/// everything when the machine crashes, which makes it fast.
///
/// Its data outlives the process: the next test program uses it again, with the templates in it,
/// and needs to make neither a cluster nor a template. Programs that run at the same time each
/// have their own. What an earlier program left behind is dropped: every database but PostgreSQL's
/// own and those whose name begins with `template_`.
///
/// # Errors
/// [`ClusterError`] when PostgreSQL is missing or cannot start.
pub async fn shared_cluster() -> Result<&'static Cluster, ClusterError> {
    // Never dropped: when the process ends, the system ends PostgreSQL.
    static SHARED: OnceCell<Cluster> = OnceCell::const_new();
    SHARED.get_or_try_init(start_in_a_free_slot).await
}

fn parameters() -> Vec<(String, String)> {
    [
        // Many tests at once, each with pools of its own
        ("max_connections", "400"),
        ("autovacuum", "off"),
        // A test that sets synchronous_commit to on has a commit that waits: this standby does not
        // exist
        ("synchronous_standby_names", "missing_standby"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

async fn start_in_a_free_slot() -> Result<Cluster, ClusterError> {
    let binaries = Binaries::find(None)?;
    let parent = clusters_folder();
    let folder = slots_folder(&parent).map_err(|error| ClusterError::folder(&parent, &error))?;
    let boot = boot();
    let generation = format!("{boot}-pg{}", binaries.major());
    remove_other_boots(&folder, &boot);
    // On a thread of its own, since the tests need not wait for it
    std::thread::spawn(|| SearchedFolders::of_this_system().sweep());
    let mut rejection = ClusterError::SupervisorGone;
    for slot in 0..SLOTS {
        let settings = ClusterSettings {
            binaries: Some(binaries.folder().to_owned()),
            durability: Durability::Off,
            parameters: parameters(),
            ..ClusterSettings::new(folder.join(format!("{generation}-{slot}")))
        };
        match Cluster::start(settings).await {
            Ok(cluster) => {
                match set_aside_left_behind(&cluster.endpoint()).await {
                    Ok(left) => drop_in_background(cluster.endpoint(), left),
                    Err(error) => tracing::warn!(error = %error, "databases of an earlier test program stay"),
                }
                return Ok(cluster);
            }
            Err(error @ ClusterError::Locked { .. }) => rejection = error,
            Err(error) => return Err(error),
        }
    }
    Err(rejection)
}

/// Removes the clusters of earlier boots: without durability a cluster is worth nothing after the
/// machine went down.
fn remove_other_boots(folder: &Path, boot: &str) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(boot) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Frees the names of what an earlier program left behind: to rename a database is a moment's work,
/// to drop one is not.
async fn set_aside_left_behind(admin: &Endpoint) -> Result<Vec<String>, DatabaseError> {
    let client = connection::connect(admin).await?;
    let left = client
        .query(
            "select datname::text from pg_catalog.pg_database
              where datname <> 'postgres' and not datistemplate and not starts_with(datname, 'template_')",
            &[],
        )
        .await?;
    let mut aside = Vec::new();
    for row in left {
        let name: String = row.try_get(0)?;
        let new = fresh_name();
        client
            .batch_execute(&format!(
                "alter database {} rename to {}",
                quote::identifier(&name),
                quote::identifier(&new)
            ))
            .await?;
        aside.push(new);
    }
    Ok(aside)
}

/// Drops databases on a thread of its own, since the runtime we are in may end with the first test.
/// Those it does not get to are the next program's.
fn drop_in_background(admin: Endpoint, names: Vec<String>) {
    if names.is_empty() {
        return;
    }
    let work = move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        for name in names {
            if let Err(error) = runtime.block_on(drop_database(&admin, &name)) {
                tracing::debug!(error = %error, name, "a database of an earlier test program stays");
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("drop databases".into()).spawn(work) {
        tracing::debug!(error = %error, "databases of an earlier test program stay");
    }
}

/// Makes sure that the template `name` exists: when it does not, `fill` gets an empty database,
/// which becomes the template when it is done. Concurrent callers wait. A name that contains a
/// fingerprint of what is filled in is never stale.
///
/// # Errors
/// PostgreSQL's error or that of `fill`; no template stays then.
pub async fn template<Fill, Filled>(admin: &Endpoint, name: &str, fill: Fill) -> Result<(), DatabaseError>
where
    Fill: FnOnce(Endpoint) -> Filled,
    Filled: Future<Output = Result<(), DatabaseError>>,
{
    let client = connection::connect(admin).await?;
    if exists(&client, name).await? {
        return Ok(());
    }
    // Ends with the connection.
    client.execute("select pg_catalog.pg_advisory_lock(pg_catalog.hashtext($1))", &[&name]).await?;
    if exists(&client, name).await? {
        return Ok(());
    }
    let unfinished = format!("{PREFIX}{name}");
    let (from, to) = (quote::identifier(&unfinished), quote::identifier(name));
    client.batch_execute(&format!("drop database if exists {from} with (force)")).await?;
    client.batch_execute(&format!("create database {from} template template0")).await?;
    fill(admin.with_database(&unfinished)).await?;
    unless_in_use(&client, &format!("alter database {from} rename to {to}")).await
}

/// Makes the database `name` a copy of `template`, file by file, which takes some hundredths of a
/// second. `admin` must be allowed to create databases; the template must have no connections.
///
/// # Errors
/// PostgreSQL's error when the name is taken, or when the template is missing or stays in use.
pub async fn clone_database(admin: &Endpoint, template: &str, name: &str) -> Result<Endpoint, DatabaseError> {
    let client = connection::connect(admin).await?;
    let statement = format!(
        "create database {} template {} strategy file_copy",
        quote::identifier(name),
        quote::identifier(template)
    );
    unless_in_use(&client, &statement).await?;
    client.batch_execute(&inherit(template, name)).await?;
    Ok(admin.with_database(name))
}

/// Returns the statement that copies the owner, the grants and the settings that the bootstrap has
/// given to a template, which `create database` does not copy.
fn inherit(template: &str, name: &str) -> String {
    format!(
        "do $inherit$
         declare
           template pg_catalog.pg_database;
           item record;
         begin
           select * into strict template from pg_catalog.pg_database where datname = {template};
           execute format('alter database %I owner to %I', {name}, pg_catalog.pg_get_userbyid(template.datdba));
           for item in select distinct grantee, privilege_type from pg_catalog.aclexplode(template.datacl) where grantee <> 0 loop
             execute format('grant %s on database %I to %I', item.privilege_type, {name}, pg_catalog.pg_get_userbyid(item.grantee));
           end loop;
           for item in select split_part(entry, '=', 1) as name, substr(entry, strpos(entry, '=') + 1) as value
                         from pg_catalog.pg_db_role_setting, unnest(setconfig) as entry
                        where setdatabase = template.oid and setrole = 0
           loop
             execute format('alter database %I set %I = %L', {name}, item.name, item.value);
           end loop;
         end $inherit$",
        template = quote::literal(template),
        name = quote::literal(name),
    )
}

/// Drops the database, ending whatever is connected to it. One that is not there is fine.
///
/// # Errors
/// PostgreSQL's error when the database cannot be dropped.
pub async fn drop_database(admin: &Endpoint, name: &str) -> Result<(), DatabaseError> {
    let client = connection::connect(admin).await?;
    end_streams(&client, name).await?;
    unless_in_use(&client, &format!("drop database if exists {} with (force)", quote::identifier(name))).await
}

/// Returns true if there is a database of that name.
///
/// # Errors
/// PostgreSQL's error when it cannot be asked.
pub async fn database_exists(admin: &Endpoint, name: &str) -> Result<bool, DatabaseError> {
    Ok(exists(&connection::connect(admin).await?, name).await?)
}

/// Returns one connection, closed when dropped.
///
/// # Errors
/// Those of [`connect`](crate::connect).
pub async fn connect(endpoint: &Endpoint) -> Result<tokio_postgres::Client, DatabaseError> {
    connection::connect(endpoint).await
}

async fn exists(client: &tokio_postgres::Client, name: &str) -> Result<bool, tokio_postgres::Error> {
    Ok(client.query_opt("select 1 from pg_catalog.pg_database where datname::text = $1", &[&name]).await?.is_some())
}

/// Runs a statement that needs a database without connections, and tries again while one is just
/// going.
async fn unless_in_use(client: &tokio_postgres::Client, statement: &str) -> Result<(), DatabaseError> {
    let deadline = tokio::time::Instant::now() + TEMPLATE_IN_USE;
    loop {
        match client.batch_execute(statement).await {
            Err(error) if error.code() == Some(&SqlState::OBJECT_IN_USE) && tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(PAUSE).await;
            }
            outcome => return Ok(outcome?),
        }
    }
}
