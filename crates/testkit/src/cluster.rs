//! One PostgreSQL for all tests of a process, and a database in it for each test. Also servers of
//! their own behind a connection pooler.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use portico_base::Clock;
use portico_database::cluster::Binaries;
use portico_database::scratch::{OrdinaryServer, PoolerMode, TestPooler};
use portico_database::{BootstrapSettings, Database, Endpoint, PoolSettings, scratch};
use tokio::sync::{OnceCell, Semaphore};

static PREPARED: OnceCell<PreparedCluster> = OnceCell::const_new();
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// PostgreSQL copies a template one at a time; waiting here is cheaper than there.
static CLONING: Semaphore = Semaphore::const_new(1);

/// The cluster of this process, with the template in it.
struct PreparedCluster {
    admin: Endpoint,
    /// The name of the database that the databases of tests are cloned from.
    template: String,
}

/// The database of a test. It is dropped with this, in the background.
pub struct TestDatabase {
    endpoint: Endpoint,
    /// The way of the superuser to the database.
    direct: Endpoint,
    name: String,
    /// The server and its pooler, if the server has only this database.
    pooled: Option<(OrdinaryServer, TestPooler)>,
}

impl TestDatabase {
    /// Returns a new database in the state after the first start of a server.
    ///
    /// # Panics
    /// When PostgreSQL is missing or cannot start.
    pub async fn new() -> Self {
        let PreparedCluster { admin, template } = PREPARED.get_or_init(prepare).await;
        let _turn = CLONING.acquire().await.expect("the semaphore is never closed");
        let name = format!("portico_test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let endpoint = scratch::clone_database(admin, template, &name).await.expect("the template is cloned");
        Self { direct: endpoint.clone(), endpoint, name, pooled: None }
    }

    /// Returns the endpoint that the server under test uses.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns the pooler that the server under test uses.
    pub(crate) fn pooler(&self) -> Option<&TestPooler> {
        self.pooled.as_ref().map(|(_, pooler)| pooler)
    }

    /// Returns the endpoint of the superuser, past any pooler.
    pub(crate) fn direct(&self) -> &Endpoint {
        &self.direct
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        if self.pooled.is_some() {
            return;
        }
        if let Some(PreparedCluster { admin, .. }) = PREPARED.get() {
            let _ = janitor().send((admin.clone(), std::mem::take(&mut self.name)));
        }
    }
}

/// Returns a new database in the state after the first start of a server that reaches it through a
/// connection pooler. The roles have the names that they have on the embedded cluster.
pub(crate) async fn pooled_database(mode: PoolerMode) -> TestDatabase {
    const NAME: &str = "pooled";
    let binaries = Binaries::find(None).expect("PostgreSQL is installed");
    let server = OrdinaryServer::start(binaries.folder()).await.expect("PostgreSQL starts");
    let superuser = server.login("cloud", "", NAME);
    let admin = server.administrator().await;
    let set_up = format!("create role cloud superuser login; create database {NAME} owner cloud");
    for statement in set_up.split("; ") {
        admin.batch_execute(statement).await.expect("a superuser may");
    }
    server.set_rules("host all all 127.0.0.1/32 trust\n").await.expect("the server answers");
    let connected = async {
        loop {
            match scratch::connect(&superuser).await {
                Ok(client) => return client,
                // The rules are read a moment later, without an event
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let client = tokio::time::timeout(Duration::from_secs(60), connected).await.expect("the server trusts us");
    drop(admin);
    client.batch_execute("alter role postgres rename to cloud_root").await.expect("a superuser may");
    let address = SocketAddr::from(([127, 0, 0, 1], superuser.port()));
    let pooler = TestPooler::start(address, mode).await.expect("there is a free port");
    let url = format!("postgresql://cloud@{}/{NAME}", pooler.address());
    let endpoint = Endpoint::parse(&url).expect("a URL of our own").with_login_secret(b"a secret of the tests");
    let database = Database::open(&endpoint, PoolSettings::default()).expect("the pools are made");
    portico::compose::setup::bootstrap_for_tests(&database).await.expect("the bootstrap runs");
    assert!(database.is_pooled(), "the pooler is recognised");
    database.close().await;
    TestDatabase { endpoint, direct: superuser, name: NAME.to_owned(), pooled: Some((server, pooler)) }
}

/// Makes the template if the cluster has none. Its name contains a digest of the content, so that
/// it stays for the next test program; the date is part of it, since it has message partitions for
/// the days after it.
async fn prepare() -> PreparedCluster {
    let admin = scratch::shared_cluster().await.expect("PostgreSQL starts").endpoint();
    let fingerprint = BootstrapSettings::default().fingerprint();
    let template = format!("template_server_{}_{}", &fingerprint[..16], Clock::system().now().date());
    let fill = async |endpoint: Endpoint| {
        let database = Database::open(&endpoint, PoolSettings::default())?;
        portico::compose::setup::bootstrap_for_tests(&database).await?;
        database.close().await;
        Ok(())
    };
    scratch::template(&admin, &template, fill).await.expect("the template is made");
    PreparedCluster { admin, template }
}

/// Returns the channel to a thread that drops databases one by one, and that outlives the test that
/// made them.
fn janitor() -> &'static mpsc::Sender<(Endpoint, String)> {
    static JANITOR: OnceLock<mpsc::Sender<(Endpoint, String)>> = OnceLock::new();
    JANITOR.get_or_init(|| {
        let (sender, receiver) = mpsc::channel::<(Endpoint, String)>();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            for (admin, name) in receiver {
                // A remaining database is removed with the cluster
                let _ = runtime.block_on(scratch::drop_database(&admin, &name));
            }
        });
        sender
    })
}
