//! Sign-in and linking flows: from the request to `/authorize` to the session or code.

pub(crate) mod account_linking;
pub(crate) mod authorize;
pub(crate) mod browser_binding;
pub(crate) mod callback;
pub(crate) mod callback_redirect;
pub(crate) mod id_token_grant;
pub(crate) mod manual_linking;
pub(crate) mod oauth1;
