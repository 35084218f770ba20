//! The settings of the service.

use std::path::{Path, PathBuf};
use std::time::Duration;

use portico_base::{AllowedOrigins, Secret};
use portico_images::RendererSettings;

/// The operator's settings of the service.
#[derive(Debug, Clone)]
pub struct StorageSettings {
    /// The largest object, in bytes. Buckets may have lower limits.
    pub file_size_limit: u64,
    /// The place of the content.
    pub backend: BackendSettings,
    /// The number of uploads that are received at the same time, of which a single user or address
    /// has at most half. Further ones wait, and are rejected after
    /// [`upload_wait`](Self::upload_wait).
    pub max_uploads: usize,
    /// The time for which an upload waits until another one ends.
    pub upload_wait: Duration,
    /// An upload that sends nothing for this long is ended.
    pub idle_timeout: Duration,
    /// The lowest average rate of an upload, in bytes per second. A slower one is ended.
    pub min_upload_rate: u64,
    /// The time for which [`min_upload_rate`](Self::min_upload_rate) does not apply yet.
    pub min_rate_after: Duration,
    /// The longest time for a JSON body, for the fields of a form before its file, and for what
    /// follows the file.
    pub fields_timeout: Duration,
    /// The time that downloads wait for the statement that looks up many objects, which takes a
    /// millisecond, before they look up their own alone.
    pub look_up_patience: Duration,
    /// The lifetime of signed upload URLs.
    pub upload_url_lifetime: Duration,
    /// The time from the creation of a resumable upload to its expiry.
    pub resumable_lifetime: Duration,
    /// The number of unfinished resumable uploads, and of unfinished uploads in parts, that one
    /// user has, or one address without a user.
    pub max_pending_uploads: usize,
    /// Content whose beginning does not fit its declared media type is rejected.
    pub sniff_mime_types: bool,
    /// Clients reach the server by https, whatever the headers of a proxy say.
    pub https: bool,
    /// The largest number of objects that emptying a bucket deletes.
    pub empty_bucket_limit: u64,
    /// The age from which content without a row is deleted. No upload may take longer from its last
    /// byte to its commit.
    pub grace: Duration,
    /// The rendering of images; `None` if it is switched off.
    pub images: Option<ImageSettings>,
    /// The S3 protocol; `None` turns it off.
    pub s3: Option<S3Settings>,
}

/// The settings of the rendering of images.
#[derive(Debug, Clone)]
pub struct ImageSettings {
    /// The bounds of one rendering, the workers and the queue.
    pub rendering: RendererSettings,
    /// The folder of results, which has nothing else in it.
    pub cache_folder: PathBuf,
    /// The largest sum of the sizes of results, in bytes.
    pub cache_bytes: u64,
    /// A request that accepts AVIF and names no format gets it, as far as its encoder's bound
    /// allows.
    pub negotiate_avif: bool,
}

impl ImageSettings {
    /// Returns the default settings with results in a folder of their own.
    #[must_use]
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        let cache_folder = folder.into();
        Self {
            rendering: RendererSettings::default(),
            cache_folder,
            cache_bytes: 512 * 1024 * 1024,
            negotiate_avif: false,
        }
    }
}

/// The settings of the S3 protocol.
#[derive(Debug, Clone, Default)]
pub struct S3Settings {
    /// The region that clients see. Signatures for other regions are accepted as well.
    pub region: String,
    /// The access keys, each with the rights of the service.
    pub access_keys: Vec<S3AccessKey>,
    /// The only pages whose requests may have more rights than a user's; `None`: every page. For a
    /// development server, whose access key is published.
    pub pages: Option<AllowedOrigins>,
}

/// An access key of the S3 protocol.
#[derive(Debug, Clone)]
pub struct S3AccessKey {
    /// The access key id.
    pub id: String,
    /// The secret access key.
    pub secret: Secret,
}

/// The place of the content of objects.
#[derive(Debug, Clone)]
pub enum BackendSettings {
    /// A folder of this machine.
    Folder(PathBuf),
    /// A bucket of an S3-compatible store.
    S3 {
        /// The store.
        store: S3StoreSettings,
        /// The folder of this machine with the journal.
        folder: PathBuf,
    },
}

impl BackendSettings {
    /// Returns the folder of this machine: with the content, if that is not in a store, and with
    /// the journal.
    #[must_use]
    pub fn folder(&self) -> &Path {
        match self {
            Self::Folder(folder) | Self::S3 { folder, .. } => folder,
        }
    }
}

/// A bucket of an S3-compatible store.
#[derive(Debug, Clone)]
pub struct S3StoreSettings {
    /// The URL of the store; `None`: that of Amazon S3 in the region.
    pub endpoint: Option<String>,
    /// The region, which every signature contains.
    pub region: String,
    /// The name of the bucket. It must exist.
    pub bucket: String,
    /// The begin of all keys, without the slash behind it; empty: none.
    pub prefix: String,
    /// True if URLs have the bucket in their path, false if they have it in their host.
    pub path_style: bool,
    /// The credentials.
    pub credentials: S3StoreCredentials,
    /// The size of the parts of an upload in bytes, at least 5 MiB. Smaller content is stored in
    /// one request. The parts of very large objects are larger.
    pub part_size: u64,
    /// The memory for parts that are being received or sent, in bytes.
    pub part_memory: u64,
    /// The time after which a request without progress is sent again.
    pub timeout: Duration,
}

impl S3StoreSettings {
    /// Returns the default settings for a bucket.
    #[must_use]
    pub fn new(bucket: impl Into<String>, region: impl Into<String>, credentials: S3StoreCredentials) -> Self {
        Self {
            endpoint: None,
            region: region.into(),
            bucket: bucket.into(),
            prefix: String::new(),
            path_style: false,
            credentials,
            part_size: 8 * 1024 * 1024,
            part_memory: 256 * 1024 * 1024,
            timeout: Duration::from_secs(60),
        }
    }
}

/// The credentials for a store.
#[derive(Debug, Clone)]
pub enum S3StoreCredentials {
    /// A key.
    Key(S3StoreKey),
    /// The temporary keys of a role, which the platform gives to this program.
    Role(Box<S3StoreRole>),
}

/// The way to the keys of a role of Amazon Web Services.
#[derive(Debug, Clone)]
pub enum S3StoreRole {
    /// By a token that names this program (service accounts of Kubernetes).
    WebIdentity {
        /// The URL of the security token service.
        sts_url: String,
        /// The role.
        role_arn: String,
        /// The name of the session in the records of the platform.
        session_name: String,
        /// The file with the token.
        token_file: PathBuf,
    },
    /// From the agent of a container (ECS, EKS Pod Identity).
    Container {
        /// The URL of the key.
        url: String,
        /// The token that the agent wants.
        token: Option<ContainerToken>,
    },
    /// From the metadata of a virtual machine (EC2).
    Instance {
        /// The URL of the metadata, without a slash at the end.
        metadata_url: String,
    },
}

/// The token for the agent of a container.
#[derive(Debug, Clone)]
pub enum ContainerToken {
    /// The token.
    Text(Secret),
    /// The file with the token.
    File(PathBuf),
}

/// A key of a store.
#[derive(Debug, Clone)]
pub struct S3StoreKey {
    /// The name of the key.
    pub access_key_id: String,
    /// The key that signs.
    pub secret_access_key: Secret,
    /// The token of a session, if the key is a temporary one.
    pub session_token: Option<Secret>,
}

impl StorageSettings {
    /// Returns the default settings with the content in a folder.
    #[must_use]
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self {
            file_size_limit: 50 * 1024 * 1024,
            backend: BackendSettings::Folder(folder.into()),
            max_uploads: 512,
            upload_wait: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            min_upload_rate: 8 * 1024,
            min_rate_after: Duration::from_secs(60),
            fields_timeout: Duration::from_secs(60),
            look_up_patience: Duration::from_millis(50),
            upload_url_lifetime: Duration::from_secs(7200),
            resumable_lifetime: Duration::from_secs(24 * 60 * 60),
            max_pending_uploads: 1000,
            sniff_mime_types: false,
            https: false,
            empty_bucket_limit: 200_000,
            grace: Duration::from_secs(3600),
            images: None,
            s3: None,
        }
    }
}
