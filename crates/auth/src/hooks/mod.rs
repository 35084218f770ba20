//! Hooks: functions of the application that take part in sign-ups, sign-ins and messages.
//!
//! A hook is an HTTP server or a PostgreSQL function. Most of them belong to a transaction: when
//! the hook fails, nothing is written. A PostgreSQL function is called in the transaction.
//!
//! Invariant: a hook over HTTP is never called while the request holds a connection to the
//! database. Where a transaction needs its response, the transaction ends with
//! [`AuthError::HookPending`] and is rolled back. [`complete`] then calls the hook without a
//! connection, keeps the response in the [`HookLedger`] of the request, and runs the transaction
//! again. A response counts only for the same question: when the account was changed meanwhile, the
//! hook is called again. Values that are drawn at random and that a hook sees (ids, codes) come
//! from the ledger, so that they are the same in each run. So a slow hook occupies its own requests
//! only, and nothing is half-written.
//!
//! Every function that runs a transaction with such an operation calls it through [`complete`].

mod call;
mod claims;
mod emails;
mod endpoint;
mod function;
mod http;
pub(crate) mod ledger;
mod output;
mod points;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use portico_base::Clock;
use portico_database::RolePool;

use crate::error::{AuthError, ContractError};
use crate::http::extract::RequestInfo;
use crate::model::JsonObject;
use crate::operation::AccountOperation;
use crate::settings::{HookPoint, HookSettings, SettingsError};
use crate::sql::{Tx, users};
use endpoint::{HookEndpoint, HookEndpointError, parse_secrets};
use http::{HookTimes, HttpHooks};

pub(crate) use call::HookCall;
pub(crate) use emails::{EmailData, send_email, send_notification};
pub(crate) use points::{
    FactorAttempt, HookDecision, before_user_created, complete_user, custom_access_token, mfa_verification_attempt,
    password_verification_attempt, text_message_call,
};

/// The number of runs of one operation: each hook of it may be called once, and a few times more
/// when the account changes meanwhile.
const MAX_RUNS: usize = 10;

/// The configured hooks.
pub(crate) struct Hooks {
    points: HashMap<HookPoint, Hook>,
    allow_private_addresses: bool,
    /// Built at the first call, since loading root certificates would delay the start.
    http: OnceLock<HttpHooks>,
    /// The duration of the last call that sent an email.
    mail_duration: Mutex<Duration>,
    /// Runs the hooks that are functions, outside of transactions.
    database: RolePool,
    clock: Clock,
}

struct Hook {
    endpoint: HookEndpoint,
    secrets: Vec<portico_base::Secret>,
}

impl Hooks {
    /// Reads the settings. Unless `allow_private_addresses`, no hook over HTTP may be inside a
    /// private network, other than on this machine.
    ///
    /// # Errors
    /// [`SettingsError`] names the hook whose address or secrets cannot work.
    pub(crate) fn new(
        settings: &BTreeMap<HookPoint, HookSettings>,
        allow_private_addresses: bool,
        database: RolePool,
        clock: Clock,
    ) -> Result<Self, SettingsError> {
        Ok(Self {
            points: read_points(settings, allow_private_addresses)?,
            allow_private_addresses,
            http: OnceLock::new(),
            mail_duration: Mutex::default(),
            database,
            clock,
        })
    }

    /// Returns true if there is a hook for a point.
    pub(crate) fn has(&self, point: HookPoint) -> bool {
        self.points.contains_key(&point)
    }

    /// Returns the duration of the last call over HTTP that sent an email; zero where none does.
    fn mail_duration(&self) -> Duration {
        *self.mail_duration.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn http(&self) -> Result<&HttpHooks, AuthError> {
        if let Some(http) = self.http.get() {
            return Ok(http);
        }
        let http = HttpHooks::new(HookTimes::default(), self.allow_private_addresses).map_err(AuthError::internal)?;
        Ok(self.http.get_or_init(|| http))
    }

    /// Calls a hook outside of a transaction. The caller holds no connection.
    ///
    /// # Errors
    /// Those of the hook, and of the database for a PostgreSQL function.
    pub(crate) async fn call(&self, call: &HookCall) -> Result<JsonObject, AuthError> {
        let Some(hook) = self.points.get(&call.point) else { return Ok(JsonObject::new()) };
        let began = Instant::now();
        let output = match &hook.endpoint {
            HookEndpoint::Http(url) => {
                let now = self.clock.now_in_microseconds();
                let sent = self.http()?.call(url, &hook.secrets, now, call.input(now).as_bytes()).await;
                sent.map_err(|error| AuthError::from(ContractError::from(error)))
                    .and_then(|body| output::read(body.as_deref()))
            }
            HookEndpoint::Function { schema, name } => {
                let now = self.clock.now_in_microseconds();
                let tx = Tx::begin(&self.database).await?;
                let output = function::call(&tx, &hook.endpoint, schema, name, &call.input(now)).await;
                match &output {
                    Ok(_) => tx.commit().await?,
                    Err(_) => tx.rollback().await,
                }
                output
            }
        };
        if call.point == HookPoint::SendEmail && matches!(hook.endpoint, HookEndpoint::Http(_)) {
            *self.mail_duration.lock().unwrap_or_else(PoisonError::into_inner) = began.elapsed();
        }
        log_failure(hook, call, &output);
        output
    }

    /// Calls a hook for the transaction of `op`: a PostgreSQL function in it where the point
    /// permits that, other hooks between two runs of it.
    ///
    /// # Errors
    /// Those of the hook, and [`AuthError::HookPending`] in the first run.
    pub(crate) async fn call_within(&self, op: AccountOperation<'_>, call: HookCall) -> Result<JsonObject, AuthError> {
        let Some(hook) = self.points.get(&call.point) else { return Ok(JsonObject::new()) };
        match &hook.endpoint {
            HookEndpoint::Function { schema, name } if call.point.belongs_to_transaction() => {
                let input = call.input(self.clock.now_in_microseconds());
                let output = match call.is_optional {
                    false => Box::pin(function::call(op.tx, &hook.endpoint, schema, name, &input)).await,
                    true => Box::pin(function::try_call(op.tx, &hook.endpoint, schema, name, &input)).await,
                };
                log_failure(hook, &call, &output);
                if call.is_optional {
                    return Ok(output.unwrap_or_default());
                }
                output.inspect_err(|_| op.request.hooks.note_failure(call.point))
            }
            _ => match op.request.hooks.response(&call) {
                Some(response) => Ok(response),
                None => {
                    op.request.hooks.await_response(call);
                    Err(AuthError::HookPending)
                }
            },
        }
    }

    /// Calls the hook after a new account, if the committed run made one. The account stays when it
    /// fails.
    async fn after_user_created(&self, request: &RequestInfo) -> Result<(), AuthError> {
        let Some(created) = request.hooks.take_created() else { return Ok(()) };
        if !self.has(HookPoint::AfterUserCreated) {
            return Ok(());
        }
        let user = {
            let client = self.database.client().await?;
            users::complete(&client, created).await?
        };
        let Some(user) = user else { return Ok(()) };
        // Clients know this text from sign-ups by contact
        let provider = user.app_metadata.get("provider").and_then(Value::as_str).unwrap_or_default();
        let is_sign_up = matches!(provider, "email" | "phone");
        let members = JsonObject::from_iter([("user".to_owned(), json!(user))]);
        let called = self.call(&HookCall::new(request.ip, HookPoint::AfterUserCreated, members)).await;
        match called {
            Err(_) if is_sign_up => Err(ContractError::HookFailedAfterSignUp.into()),
            called => called.map(drop),
        }
    }
}

/// Reads the settings of all points.
fn read_points(
    settings: &BTreeMap<HookPoint, HookSettings>,
    allow_private_addresses: bool,
) -> Result<HashMap<HookPoint, Hook>, SettingsError> {
    let mut points = HashMap::new();
    for (point, configured) in settings {
        let failed = |error: HookEndpointError| SettingsError::Value {
            name: "hook",
            reason: format!("{}: {error}", point.key()),
        };
        let endpoint = HookEndpoint::parse(&configured.uri).map_err(failed)?;
        if !allow_private_addresses && endpoint.is_at_private_address() {
            return Err(failed(HookEndpointError::PrivateAddress));
        }
        let secrets = parse_secrets(configured.secrets.expose()).map_err(failed)?;
        points.insert(*point, Hook { endpoint, secrets });
    }
    Ok(points)
}

fn log_failure(hook: &Hook, call: &HookCall, output: &Result<JsonObject, AuthError>) {
    if let Err(error) = output {
        tracing::warn!(hook = call.point.name(), endpoint = %hook.endpoint, error = %error, "a hook failed");
    }
}

/// Runs an operation with its transaction, calls the hooks over HTTP that it needs, and runs it
/// again with their responses. `attempt` begins and commits the transaction, and does nothing else
/// that must not happen twice. The hook after a new account is called when the transaction is
/// committed.
///
/// # Errors
/// Those of `attempt` and of the hooks.
pub(crate) async fn complete<T, Attempt>(
    hooks: &Hooks,
    request: &RequestInfo,
    mut attempt: impl FnMut() -> Attempt,
) -> Result<T, AuthError>
where
    Attempt: Future<Output = Result<T, AuthError>>,
{
    for _ in 0..MAX_RUNS {
        request.hooks.begin_run();
        // In boxes: these futures are large, and would be on the stack of every caller
        match Box::pin(attempt()).await {
            Err(AuthError::HookPending) => {
                let Some(call) = request.hooks.take_pending() else { return Err(AuthError::HookPending) };
                let response = match Box::pin(hooks.call(&call)).await {
                    Err(_) if call.is_optional => JsonObject::new(),
                    response => response.inspect_err(|_| request.hooks.note_failure(call.point))?,
                };
                request.hooks.keep(call, response);
            }
            Err(error) => {
                // Some rejections are committed, such as that of a sign-in whose address is not
                // proved
                let _ = Box::pin(hooks.after_user_created(request)).await;
                return Err(error);
            }
            Ok(done) => {
                Box::pin(hooks.after_user_created(request))
                    .await
                    .inspect_err(|_| request.hooks.note_failure(HookPoint::AfterUserCreated))?;
                if request.hooks.has_decoy() {
                    // As slow as for an address that gets an email
                    tokio::time::sleep(hooks.mail_duration()).await;
                }
                return Ok(done);
            }
        }
    }
    Err(ContractError::HookOutdated.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_at_an_address_of_a_private_network_needs_the_setting() {
        let hooks = |uri: &str, allow_private_addresses| {
            let settings = HookSettings { uri: uri.to_owned(), secrets: "".into() };
            read_points(&BTreeMap::from([(HookPoint::SendEmail, settings)]), allow_private_addresses)
                .map(drop)
                .map_err(|error| error.to_string())
        };
        let error = hooks("https://169.254.169.254/", false).unwrap_err();
        assert!(error.starts_with("hook: send_email: ") && error.contains("private_addresses"), "{error}");
        assert_eq!(hooks("https://169.254.169.254/", true), Ok(()));
        assert_eq!(hooks("http://127.0.0.1:8000/", false), Ok(()));
    }
}
