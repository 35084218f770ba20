//! Codes that somebody types are counted (see `limits`), and wrong ones across restarts: otherwise whoever waits for an update of
//! the server could guess anew.
//!
//! The limits are in memory. A wrong code is also written down before it is refused; the first code that this process sees
//! reads back what is written. A right one costs nothing more.

use std::pin::pin;

use tokio::sync::OnceCell;

use crate::Auth;
use crate::error::AuthError;
use crate::extract::RequestInfo;
use crate::limits::MAX_BUCKETS;
use crate::sql::wrong_codes;

/// Whether the wrong codes from before this process are in its memory.
pub(crate) type Recalled = OnceCell<()>;

/// Lets somebody try a code of `account`, an address, number or anything else that has codes: `attempt` compares it, and its
/// error says that it was wrong.
///
/// # Errors
/// 429 `over_request_rate_limit`; then nothing was compared. Otherwise those of `attempt`.
pub(crate) async fn counted<T>(
    auth: &Auth,
    account: &str,
    request: &RequestInfo,
    attempt: impl Future<Output = Result<T, AuthError>>,
) -> Result<T, AuthError> {
    let recall = async || {
        let client = auth.database().auth().await?;
        let most = i64::try_from(MAX_BUCKETS).unwrap_or(i64::MAX);
        auth.limits().recall_codes(&wrong_codes::not_full(&client, request.now, most).await?, request.now);
        Ok::<_, AuthError>(())
    };
    auth.inner.recalled.get_or_try_init(recall).await?;
    auth.limits().check_code(account, request)?;
    let result = pin!(attempt).await;
    match &result {
        Ok(_) => auth.limits().code_was_right(account, request),
        // Before the answer: who reads it may know that the server is about to stop
        Err(error) if error.contract().status.is_client_error() => note_wrong(auth, account, request).await,
        Err(_) => {}
    }
    result
}

async fn note_wrong(auth: &Auth, account: &str, request: &RequestInfo) {
    let wrong = auth.limits().wrong_code(account, request);
    let noted = async {
        let client = auth.database().auth().await?;
        wrong_codes::count(&client, &wrong, request.now).await.map_err(AuthError::from)
    };
    if let Err(error) = noted.await {
        // Memory still counts it
        tracing::warn!(error = format!("{:#}", anyhow::Error::new(error)), "A wrong code could not be written down");
    }
}
