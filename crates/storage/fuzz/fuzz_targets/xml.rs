//! Any document is read or rejected, and the written form is read again.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| portico_storage::s3::check_xml(input));
