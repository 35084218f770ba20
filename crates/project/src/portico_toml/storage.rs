//! `[storage]`: settings of the storage service that `config.toml` does not have.

use std::collections::BTreeMap;
use std::time::Duration;

use portico_base::Secret;

use super::object_store::ObjectStoreSettings;
use crate::section::Section;

/// The shortest secret of an access key, in characters.
const MIN_SECRET: usize = 16;
/// The shortest lifetime of a resumable upload.
const MIN_LIFETIME: Duration = Duration::from_secs(60);
/// The longest access key id, in characters.
const MAX_ID: usize = 128;

/// `[storage]`
#[derive(Debug, Clone, Default)]
pub struct StorageExtras {
    /// `[storage.backend]` of type `s3`; `None`: the content is in the data folder.
    pub backend: Option<ObjectStoreSettings>,
    /// `[storage.s3]`
    pub s3: S3Extras,
    /// The time from the creation of a resumable upload to its expiry.
    pub resumable_lifetime: Option<Duration>,
    /// Content whose beginning does not fit its declared media type is rejected.
    pub sniff_mime_types: bool,
    /// Requests for images that accept AVIF get it.
    pub negotiate_avif: bool,
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
        let resumable_lifetime = storage.duration("resumable_lifetime");
        if resumable_lifetime.is_some_and(|lifetime| lifetime < MIN_LIFETIME) {
            let message =
                format!("{}: expected at least one minute, such as \"24h\"", storage.key("resumable_lifetime"));
            storage.fail("resumable_lifetime", message);
        }
        Self {
            resumable_lifetime,
            sniff_mime_types: storage.flag_or("sniff_mime_types", false),
            negotiate_avif: storage.flag_or("negotiate_avif", false),
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
        for (id, _) in access_keys.iter().filter(|key| !is_usable(*key)) {
            let key = s3.key("access_keys");
            // An id of another form may be a secret
            let which = if is_word(id, "-_.") { format!("the key {id}") } else { "a key".to_owned() };
            s3.fail(
                "access_keys",
                format!(
                    "{key}: {which} cannot be used: expected ids of letters, digits and `-_.` with secrets of at \
                     least {MIN_SECRET} characters"
                ),
            );
        }
        Self { region, access_keys }
    }
}
