//! Second factors of accounts.

#![allow(dead_code)]

mod totp;
