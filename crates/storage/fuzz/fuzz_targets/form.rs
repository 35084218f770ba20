//! Any form is read or rejected, in the same way whatever its pieces are.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| portico_storage::check_form(input));
