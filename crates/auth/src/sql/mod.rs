//! The statements, one file per table, and the transaction they run in.
//!
//! Every statement is declared by `statements!`, and every file by `tables!`. Both feed [`all`], so
//! that a test prepares each statement against the migrated schema.

/// Declares the statements of a file, and `all`, which lists them by name.
macro_rules! statements {
    ($($(#[$attribute:meta])* const $name:ident = $sql:expr;)+) => {
        $($(#[$attribute])* const $name: &str = $sql;)+

        /// Returns the statements of this file, by name.
        pub(super) fn all() -> Vec<(&'static str, &'static str)> {
            vec![$((concat!(module_path!(), "::", stringify!($name)), $name)),+]
        }
    };
}

/// Declares the files of statements, and `all`, which lists the statements of all of them.
macro_rules! tables {
    ($(mod $name:ident;)+) => {
        $(pub mod $name;)+

        /// Returns the statements of all files, by name.
        pub fn all() -> Vec<(&'static str, &'static str)> {
            [$($name::all()),+].concat()
        }
    };
}

tables! {
    mod attempts;
    mod audit_log_entries;
    mod custom_providers;
    mod flow_state;
    mod hook_functions;
    mod identities;
    mod link_sessions;
    mod mfa_challenges;
    mod mfa_factors;
    mod one_time_tokens;
    mod outbox;
    mod recovery_codes;
    mod refresh_tokens;
    mod saml_relay_states;
    mod sessions;
    mod signing_keys;
    mod totp_steps;
    mod transaction;
    mod users;
    mod webauthn_challenges;
    mod webauthn_credentials;
}

pub use transaction::{Params, Run, Tx, TypedParams};
