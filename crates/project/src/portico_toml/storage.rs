//! `[storage]`: settings of the storage service that `config.toml` does not have.

use std::collections::BTreeMap;

use portico_base::Secret;

use super::object_store::ObjectStoreSettings;
use crate::section::Section;

/// The shortest secret of an access key, in characters.
const MIN_SECRET: usize = 16;
/// The longest access key id, in characters.
const MAX_ID: usize = 128;

/// `[storage]`
#[derive(Debug, Clone, Default)]
pub struct StorageExtras {
    /// `[storage.backend]` of type `s3`; `None`: the content is in the data folder.
    pub backend: Option<ObjectStoreSettings>,
    /// `[storage.s3]`
    pub s3: S3Extras,
}

/// `[storage.s3]`: the S3 endpoint.
#[derive(Debug, Clone, Default)]
pub struct S3Extras {
    /// The region that clients see.
    pub region: Option<String>,
    /// The access keys: secrets by access key id. Each has the rights of `service_role`.
    pub access_keys: BTreeMap<String, Secret>,
}

impl StorageExtras {
    pub(super) fn read(mut storage: Section<'_, '_, '_>) -> Self {
        Self {
            backend: ObjectStoreSettings::read(storage.section("backend")),
            s3: S3Extras::read(storage.section("s3")),
        }
    }
}

impl S3Extras {
    fn read(mut s3: Section<'_, '_, '_>) -> Self {
        let region = s3.text("region").filter(|region| !region.is_empty());
        let is_word = |text: &str, also: &str| {
            text.len() <= MAX_ID && text.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c))
        };
        if region.as_ref().is_some_and(|region| !is_word(region, "-_")) {
            s3.fail("region", format!("{}: expected a name such as \"eu-central-1\"", s3.key("region")));
        }
        let access_keys = s3.named_secrets("access_keys");
        let is_usable =
            |(id, secret): (&String, &Secret)| is_word(id, "-_.") && secret.expose().chars().count() >= MIN_SECRET;
        if !access_keys.iter().all(is_usable) {
            let key = s3.key("access_keys");
            s3.fail(
                "access_keys",
                format!("{key}: expected ids of letters and digits with secrets of at least {MIN_SECRET} characters"),
            );
        }
        Self { region, access_keys }
    }
}
