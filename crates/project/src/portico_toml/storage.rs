//! `[storage]`: settings of the storage service that `config.toml` has no key for.

use super::object_store::ObjectStoreSettings;
use crate::section::Section;

/// `[storage]`
#[derive(Debug, Clone, Default)]
pub struct StorageExtras {
    /// `[storage.backend]` of type `s3`; `None`: the content is in the data folder.
    pub backend: Option<ObjectStoreSettings>,
}

impl StorageExtras {
    pub(super) fn read(mut storage: Section<'_, '_, '_>) -> Self {
        Self { backend: ObjectStoreSettings::read(storage.section("backend")) }
    }
}
