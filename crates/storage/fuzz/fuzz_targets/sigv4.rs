//! Any signature is read or rejected, and none that was not made with the secret is accepted. The
//! body behind it is decoded in the same way whatever its pieces are.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| portico_storage::s3::check_signature(input));
