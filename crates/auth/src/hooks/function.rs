//! Hooks that are PostgreSQL functions. They run as the role of the service, `supabase_auth_admin`,
//! within two seconds.

use super::endpoint::HookEndpoint;
use super::output;
use crate::error::{AuthError, ContractError};
use crate::model::JsonObject;
use crate::sql::{Tx, hook_functions};

/// Calls a function in the transaction.
///
/// # Errors
/// The error that the function states or raises; the transaction can then only be dropped, if it
/// was raised.
pub(super) async fn call(
    tx: &Tx,
    endpoint: &HookEndpoint,
    schema: &str,
    name: &str,
    input: &str,
) -> Result<JsonObject, AuthError> {
    let output = hook_functions::call(tx, schema, name, input).await.map_err(|source| failed(endpoint, source))?;
    if output.as_ref().is_some_and(|output| output.len() > output::MAX_BYTES) {
        return Err(ContractError::HookOutputTooLarge.into());
    }
    output::read(output.as_deref().map(str::as_bytes))
}

/// Like [`call`], but the transaction can go on when the function raises an error.
///
/// # Errors
/// The error that the function states or raises.
pub(super) async fn try_call(
    tx: &Tx,
    endpoint: &HookEndpoint,
    schema: &str,
    name: &str,
    input: &str,
) -> Result<JsonObject, AuthError> {
    hook_functions::save_point(tx).await?;
    let output = call(tx, endpoint, schema, name, input).await;
    if output.is_err() {
        hook_functions::roll_back_to_save_point(tx).await?;
    }
    output
}

fn failed(endpoint: &HookEndpoint, source: tokio_postgres::Error) -> AuthError {
    match AuthError::from(source) {
        AuthError::Sql { source, .. } => {
            AuthError::Sql { error: ContractError::HookFunctionFailed { uri: endpoint.to_string() }, source }
        }
        other => other,
    }
}
