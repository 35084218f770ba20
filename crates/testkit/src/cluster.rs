//! One PostgreSQL for all tests of a process, and a database in it for each test.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use portico_database::{Database, Endpoint, PoolSettings, scratch};
use tokio::sync::{OnceCell, Semaphore};

/// The database that the databases of tests are cloned from.
const TEMPLATE: &str = "portico_test_template";

static PREPARED: OnceCell<Endpoint> = OnceCell::const_new();
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// PostgreSQL copies a template one at a time; waiting here is cheaper than there.
static CLONING: Semaphore = Semaphore::const_new(1);

/// The database of a test. It is dropped with this, in the background.
pub struct ScratchDatabase {
    endpoint: Endpoint,
    name: String,
}

impl ScratchDatabase {
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl Drop for ScratchDatabase {
    fn drop(&mut self) {
        if let Some(admin) = PREPARED.get() {
            let _ = janitor().send((admin.clone(), std::mem::take(&mut self.name)));
        }
    }
}

/// Returns a new database in the state after the first start of a server.
pub(crate) async fn scratch_database() -> ScratchDatabase {
    let admin = PREPARED.get_or_init(prepare).await;
    let _turn = CLONING.acquire().await.expect("the semaphore is never closed");
    let name = format!("portico_test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let endpoint = scratch::clone_database(admin, &template(), &name).await.expect("the template is cloned");
    ScratchDatabase { endpoint, name }
}

/// Returns the name of the template. Each process has its own, so that test programs of different
/// builds do not interfere.
fn template() -> String {
    format!("{TEMPLATE}_{}", std::process::id())
}

async fn prepare() -> Endpoint {
    let admin = scratch::shared_cluster().await.expect("PostgreSQL starts").endpoint();
    let name = template();
    let endpoint = scratch::clone_database(&admin, "template0", &name).await.expect("the template is made");
    let database = Database::open(&endpoint, PoolSettings::default()).expect("the pools are made");
    portico::compose::setup::bootstrap_for_tests(&database).await.expect("the bootstrap runs");
    database.close().await;
    admin
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
