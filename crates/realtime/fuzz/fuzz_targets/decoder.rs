//! Any stream of messages of `pgoutput` is decoded or rejected, and the values of its rows are
//! rendered as JSON or rejected.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| portico_realtime::check_decoder(input));
