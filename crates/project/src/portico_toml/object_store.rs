//! `[storage.backend]`: the place of the content of stored objects.

use std::time::Duration;

use portico_base::Secret;
use url::Url;

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
    /// The name of the key. Default: `AWS_ACCESS_KEY_ID`.
    pub access_key_id: String,
    /// The key that signs. Default: `AWS_SECRET_ACCESS_KEY`.
    pub secret_access_key: Secret,
    /// The token of a temporary key. Default: `AWS_SESSION_TOKEN`.
    pub session_token: Option<Secret>,
    /// The size of the parts of a large upload in bytes.
    pub part_size: Option<u64>,
    /// The time after which a request without progress is sent again.
    pub timeout: Option<Duration>,
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
        for (name, is_given) in [
            ("bucket", bucket.is_some()),
            ("region", region.is_some()),
            ("access_key_id", access_key_id.is_some()),
            ("secret_access_key", secret_access_key.is_some()),
        ] {
            backend.require(name, is_given);
        }
        Some(Self {
            endpoint,
            region: region?,
            bucket: bucket?,
            prefix,
            path_style,
            access_key_id: access_key_id?,
            secret_access_key: secret_access_key?,
            session_token,
            part_size,
            timeout,
        })
    }
}
