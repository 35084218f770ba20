//! `[storage.backend]`: the place of the content of stored objects.

use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Duration;

use portico_base::Secret;
use url::{Host, Url};

use crate::section::Section;

/// `[storage.backend]`: the bucket of an S3-compatible store.
#[derive(Debug, Clone)]
pub struct ObjectStoreSettings {
    /// The URL of the store; `None`: that of Amazon S3 in the region.
    pub endpoint: Option<String>,
    /// The region.
    pub region: String,
    /// The name of the bucket.
    pub bucket: String,
    /// The begin of all keys; empty: none.
    pub prefix: String,
    /// True if URLs have the bucket in their path. Default: true with an endpoint.
    pub path_style: bool,
    /// The credentials.
    pub credentials: ObjectStoreCredentials,
    /// The size of the parts of a large upload in bytes.
    pub part_size: Option<u64>,
    /// The time after which a request without progress is sent again.
    pub timeout: Option<Duration>,
}

/// The credentials for a store.
#[derive(Debug, Clone)]
pub enum ObjectStoreCredentials {
    /// A key.
    Key {
        /// The name of the key. Default: `AWS_ACCESS_KEY_ID`.
        access_key_id: String,
        /// The key that signs. Default: `AWS_SECRET_ACCESS_KEY`.
        secret_access_key: Secret,
        /// The token of a temporary key. Default: `AWS_SESSION_TOKEN`.
        session_token: Option<Secret>,
    },
    /// The keys of a role.
    Role(ObjectStoreRole),
}

/// The way to the keys of a role of Amazon Web Services, by the variables that the platform sets.
#[derive(Debug, Clone)]
pub enum ObjectStoreRole {
    /// `AWS_WEB_IDENTITY_TOKEN_FILE`, `AWS_ROLE_ARN` and `AWS_ROLE_SESSION_NAME`, as Kubernetes
    /// sets them for a service account.
    WebIdentity {
        /// The file with the token.
        token_file: PathBuf,
        /// The role.
        role_arn: String,
        /// The name of the session in the records of the platform.
        session_name: String,
        /// The URL of the security token service: `AWS_ENDPOINT_URL_STS`, or that of the region.
        sts_url: String,
    },
    /// `AWS_CONTAINER_CREDENTIALS_FULL_URI` or `AWS_CONTAINER_CREDENTIALS_RELATIVE_URI`, as ECS and
    /// EKS set them.
    Container {
        /// The URL of the key.
        url: String,
        /// `AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE`
        token_file: Option<PathBuf>,
        /// `AWS_CONTAINER_AUTHORIZATION_TOKEN`
        token: Option<Secret>,
    },
    /// None of these: the metadata of the virtual machine.
    Instance {
        /// The URL of the metadata: `AWS_EC2_METADATA_SERVICE_ENDPOINT`, or that of EC2.
        metadata_url: String,
    },
}

impl ObjectStoreRole {
    /// Finds the way by the variables that `of_aws` returns.
    fn find(of_aws: impl Fn(&str) -> Option<String>, region: &str) -> Self {
        let path = |name| of_aws(name).map(PathBuf::from);
        if let (Some(token_file), Some(role_arn)) = (path("AWS_WEB_IDENTITY_TOKEN_FILE"), of_aws("AWS_ROLE_ARN")) {
            let sts_url =
                of_aws("AWS_ENDPOINT_URL_STS").unwrap_or_else(|| format!("https://sts.{region}.amazonaws.com"));
            let session_name = of_aws("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| "portico".to_owned());
            return Self::WebIdentity { token_file, role_arn, session_name, sts_url };
        }
        let relative = of_aws("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").map(|path| format!("{CONTAINER_AGENT}{path}"));
        if let Some(url) = relative.or_else(|| of_aws("AWS_CONTAINER_CREDENTIALS_FULL_URI")) {
            return Self::Container {
                url,
                token_file: path("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
                token: of_aws("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(Secret::new),
            };
        }
        let metadata_url = of_aws("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or_else(|| INSTANCE_METADATA.to_owned());
        Self::Instance { metadata_url: metadata_url.trim_end_matches('/').to_owned() }
    }
}

/// The agent of containers, and the metadata of virtual machines: addresses of the platform itself.
const CONTAINER_AGENT: &str = "http://169.254.170.2";
const CONTAINER_AGENTS_V4: [[u8; 4]; 2] = [[169, 254, 170, 2], [169, 254, 170, 23]];
const CONTAINER_AGENT_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23);
const INSTANCE_METADATA: &str = "http://169.254.169.254";

/// Returns true if a URL may be asked for the key of a container, with the token for it: over TLS,
/// or at an address that no network leads to, which are this machine and the agents of ECS and EKS.
fn is_agent(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else { return false };
    match (url.scheme(), url.host()) {
        ("https", Some(_)) | ("http", Some(Host::Domain("localhost"))) => true,
        ("http", Some(Host::Ipv4(address))) => address.is_loopback() || CONTAINER_AGENTS_V4.contains(&address.octets()),
        ("http", Some(Host::Ipv6(address))) => address.is_loopback() || address == CONTAINER_AGENT_V6,
        _ => false,
    }
}

/// The kinds of credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CredentialsKind {
    Key,
    Role,
}

/// The kinds of backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BackendKind {
    Folder,
    S3,
}

/// The sizes that stores allow for a part, in bytes.
const PART_SIZES: std::ops::RangeInclusive<u64> = 5 * 1024 * 1024..=1024 * 1024 * 1024;

impl ObjectStoreSettings {
    /// Reads `[storage.backend]`; `None` if the content is in the data folder.
    pub(super) fn read(mut backend: Section<'_, '_, '_>) -> Option<Self> {
        let kind = backend.choice("type", &[("folder", BackendKind::Folder), ("s3", BackendKind::S3)]);
        let is_used = kind == Some(BackendKind::S3);
        backend.require("type", kind.is_some() || !backend.is_present());
        backend.quiet_unless(is_used);
        let environment = backend.reading().environment();
        let of_aws = |name: &str| environment.get(name).filter(|text| !text.is_empty()).map(str::to_owned);
        let text = |backend: &mut Section<'_, '_, '_>, name| backend.text(name).filter(|text| !text.is_empty());
        let endpoint = text(&mut backend, "endpoint");
        let is_web = |text: &String| {
            Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some())
        };
        if endpoint.as_ref().is_some_and(|endpoint| !is_web(endpoint)) {
            let message =
                format!("{}: expected the URL of a store, such as https://s3.example.com", backend.key("endpoint"));
            backend.fail("endpoint", message);
        }
        let bucket = text(&mut backend, "bucket");
        if bucket.as_ref().is_some_and(|bucket| bucket.contains('/')) {
            backend.fail("bucket", format!("{}: expected a name without a slash", backend.key("bucket")));
        }
        let part_size = backend.size("part_size");
        if part_size.is_some_and(|size| !PART_SIZES.contains(&size)) {
            backend.fail("part_size", format!("{}: expected a size from 5MiB to 1GiB", backend.key("part_size")));
        }
        let credentials =
            backend.choice("credentials", &[("key", CredentialsKind::Key), ("role", CredentialsKind::Role)]);
        let region = text(&mut backend, "region").or_else(|| of_aws("AWS_REGION"));
        let access_key_id = text(&mut backend, "access_key_id").or_else(|| of_aws("AWS_ACCESS_KEY_ID"));
        let secret_access_key =
            backend.secret("secret_access_key").or_else(|| of_aws("AWS_SECRET_ACCESS_KEY").map(Secret::new));
        let session_token = backend.secret("session_token").or_else(|| of_aws("AWS_SESSION_TOKEN").map(Secret::new));
        let prefix = backend.text_or("prefix", "");
        let path_style = backend.flag_or("path_style", endpoint.is_some());
        let timeout = backend.duration("timeout").filter(|timeout| !timeout.is_zero());
        if !is_used {
            return None;
        }
        let needs_key = credentials != Some(CredentialsKind::Role);
        for (name, is_given) in [
            ("bucket", bucket.is_some()),
            ("region", region.is_some()),
            ("access_key_id", access_key_id.is_some() || !needs_key),
            ("secret_access_key", secret_access_key.is_some() || !needs_key),
        ] {
            backend.require(name, is_given);
        }
        let region = region?;
        let credentials = if needs_key {
            let (access_key_id, secret_access_key) = (access_key_id?, secret_access_key?);
            ObjectStoreCredentials::Key { access_key_id, secret_access_key, session_token }
        } else {
            let role = ObjectStoreRole::find(of_aws, &region);
            if let ObjectStoreRole::Container { url, .. } = &role
                && !is_agent(url)
            {
                let message = "AWS_CONTAINER_CREDENTIALS_FULL_URI: expected a URL with https, or with http and the \
                               address of this machine or of the agent of ECS or EKS";
                backend.fail("credentials", message.to_owned());
            }
            ObjectStoreCredentials::Role(role)
        };
        Some(Self { endpoint, region, bucket: bucket?, prefix, path_style, credentials, part_size, timeout })
    }
}
