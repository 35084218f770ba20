//! The account service over HTTP, against a real PostgreSQL.

#![allow(clippy::unwrap_used)]

mod account_rules;
mod admin;
mod admin_links;
mod admin_users;
mod allowed_issuers;
mod attempts;
mod authenticator;
mod browser;
mod column_encryption;
mod contract;
mod custom_providers;
mod dump;
mod factors;
mod factors_verify;
mod factors_webauthn;
mod failed_logins;
mod input;
mod limits;
mod linking;
mod logout;
mod mail;
mod mail_domains;
mod misbehaving;
mod oauth;
mod passkeys;
mod passkeys_management;
mod password;
mod phone;
mod phone_change;
mod phone_gateway;
mod protection;
mod proved_address;
mod provider;
mod refresh;
mod replay;
mod sessions;
mod signup;
mod slow;
mod statements;
mod switched_off;
mod token;
mod user;
mod verify;
