//! Any `Upload-Metadata` is read or rejected, and the written form is read again.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &str| portico_storage::resumable::check_metadata(input));
