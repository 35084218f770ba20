//! Databases with the schema of the cinema, one for each test.

use std::path::Path;

use portico_database::cluster::{Cluster, ClusterSettings, Durability};
use portico_database::{BootstrapSettings, Database, Endpoint, PoolSettings, connect, scratch};
use tokio::sync::OnceCell;
use tokio_postgres::Client;

/// The schema of the cinema and its data.
pub const SCHEMA: &str = include_str!("schema.sql");

static TEMPLATE: OnceCell<String> = OnceCell::const_new();

/// A test's own database, with the bootstrap and the cinema.
pub struct CinemaDatabase {
    endpoint: Endpoint,
}

impl CinemaDatabase {
    /// Clones a template that is filled once.
    pub async fn open() -> Self {
        let admin = scratch::shared_cluster().await.unwrap().endpoint();
        let template = TEMPLATE.get_or_init(|| template(&admin)).await;
        let name = scratch::fresh_name();
        Self { endpoint: scratch::clone_database(&admin, template, &name).await.unwrap() }
    }

    /// Returns the endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Like [`open`](Self::open), but on a server of an older version of PostgreSQL, which lives as
    /// long as `folder`. `None` if none is installed.
    pub async fn of_older_version(folder: &Path) -> Option<(Self, Cluster)> {
        let settings = ClusterSettings {
            binaries: Some(scratch::older_binaries()?.folder().to_owned()),
            durability: Durability::Off,
            ..ClusterSettings::new(folder.join("database"))
        };
        let cluster = scratch::start_cluster(settings).await.unwrap();
        let admin = cluster.endpoint();
        let template = template(&admin).await;
        let endpoint = scratch::clone_database(&admin, &template, &scratch::fresh_name()).await.unwrap();
        Some((Self { endpoint }, cluster))
    }

    /// Connects as the superuser.
    pub async fn administrator(&self) -> Client {
        connect(&self.endpoint).await.unwrap()
    }

    /// Connects as the role that requests log in as.
    pub async fn authenticator(&self) -> Client {
        let client = self.administrator().await;
        client.batch_execute("set session authorization authenticator").await.unwrap();
        client
    }
}

/// Returns the name of the template. It contains a digest of the content: the template stays for
/// the next run, unless the schema changes
async fn template(admin: &Endpoint) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};

    let settings = BootstrapSettings::default();
    let mut hasher = DefaultHasher::new();
    (SCHEMA, settings.fingerprint()).hash(&mut hasher);
    let name = format!("template_cinema_{:016x}", hasher.finish());
    let fill = async |endpoint: Endpoint| {
        let database = Database::open(&endpoint, PoolSettings::default())?;
        database.bootstrap(&settings).await?;
        database.close().await;
        connect(&endpoint).await?.batch_execute(SCHEMA).await?;
        Ok(())
    };
    scratch::template(admin, &name, fill).await.unwrap();
    name
}
