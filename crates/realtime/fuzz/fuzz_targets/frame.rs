//! Any frame of a client, text and binary, is parsed or dropped. The first byte selects the version
//! and the kind.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| portico_realtime::check_frame(input));
