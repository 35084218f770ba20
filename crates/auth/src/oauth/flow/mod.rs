//! The steps of a sign-in or a link at a provider, from `/authorize` to the session or code.

pub(crate) mod account_linking;
pub(crate) mod authorize;
pub(crate) mod browser_binding;
pub(crate) mod callback;
pub(crate) mod callback_redirect;
pub(crate) mod id_token_grant;
pub(crate) mod manual_linking;
pub(crate) mod oauth1;

use crate::error::{AuthError, ContractError};

/// Returns the error for a provider that does not respond.
fn provider_unreachable(error: impl std::error::Error + Send + Sync + 'static) -> AuthError {
    AuthError::failed(ContractError::ProviderUnreachable, error)
}
