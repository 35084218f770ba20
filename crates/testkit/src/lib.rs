//! A whole server on a scratch database, for the tests of every crate
