//! Resumable uploads, as `portico_storage::resumable` names them.

#[path = "../../src/resumable/metadata.rs"]
mod metadata;

use http::HeaderValue;

use self::metadata::UploadMetadata;

/// Reads `Upload-Metadata`.
pub fn check_metadata(input: &str) {
    let Some(parsed) = UploadMetadata::parse(input) else { return };
    assert_eq!(UploadMetadata::parse(&parsed.to_header()).as_ref(), Some(&parsed));
    let stored = parsed.with_cache_control();
    assert!(HeaderValue::try_from(stored.to_header()).is_ok());
    let cache_control = stored.description().cache_control;
    assert!(cache_control == "no-cache" || cache_control.starts_with("max-age="));
    assert_eq!(UploadMetadata::parse(&stored.to_header()), Some(stored));
}
