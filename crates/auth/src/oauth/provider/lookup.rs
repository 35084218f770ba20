//! The lookup of a provider by its name: a built-in one, or a custom one.

use super::resolved::{self, ResolvedProvider};
use super::{catalogue, custom};
use crate::Auth;
use crate::error::{AuthError, ContractError};

/// Finds the provider of a request's `provider` parameter.
///
/// # Errors
/// 400 `validation_failed` "Unsupported provider: ..." when it is unknown, disabled or incomplete.
pub(crate) async fn find(auth: &Auth, name: &str) -> Result<ResolvedProvider, AuthError> {
    let name = name.to_lowercase();
    if name.starts_with(custom::PREFIX) {
        return custom::find(auth, &name).await;
    }
    let unsupported = |reason: &str| AuthError::from(ContractError::ProviderUnsupported { reason: reason.to_owned() });
    let provider = catalogue::find(&name).ok_or_else(|| {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
        unsupported(&format!("Provider {shown} could not be found"))
    })?;
    let settings = auth.settings();
    let own =
        settings.external.get(&name).filter(|own| own.enabled).ok_or_else(|| unsupported("provider is not enabled"))?;
    let resolved = resolved::resolve(provider, own, &settings.external_url);
    if resolved.client_id().is_empty() {
        return Err(unsupported("missing OAuth client ID"));
    }
    if resolved.secret.is_empty() {
        return Err(unsupported("missing OAuth secret"));
    }
    if provider.needs_url && own.url.is_empty() {
        return Err(unsupported("missing provider URL"));
    }
    Ok(resolved)
}
