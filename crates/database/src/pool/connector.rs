//! Opens the connections of a pool.

use deadpool_postgres::Connect;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;

use crate::connection::{self, SessionStart, dial_patiently, is_temporary};
use crate::endpoint::Endpoint;
use crate::temporary;
use crate::tls::Tls;

/// Returns true if a failure to connect is temporary for a pool, see [`temporary`].
fn is_temporary_for_pools(error: &tokio_postgres::Error) -> bool {
    is_temporary(error) || error.code().is_some_and(|code| temporary::is_recreation(code.code()))
}

/// Opens the connections of one pool.
pub(super) struct PoolConnector {
    pub(super) endpoint: Endpoint,
    pub(super) tls: Tls,
    /// The role to act as; `None`: the endpoint's login role.
    pub(super) role: Option<&'static str>,
    pub(super) set_up: String,
    pub(super) preamble: String,
}

type OpenedConnection = (tokio_postgres::Client, JoinHandle<()>);

impl PoolConnector {
    /// Returns the login and the statements that follow it. Found out anew for each connection: the
    /// bootstrap may have created a login role for this part meanwhile.
    fn login(&self) -> (tokio_postgres::Config, String) {
        let Some(part) = self.role else {
            let mut config = self.endpoint.to_config();
            config.options(connection::guarded_options(&self.endpoint));
            return (config, self.set_up.clone());
        };
        let (endpoint, role) = (self.endpoint.for_part(part), self.endpoint.role_for(part));
        let set_up = match endpoint.role() == role {
            true => self.set_up.clone(),
            false => format!("{} set role {role};", self.set_up),
        };
        (endpoint.to_config(), set_up)
    }

    /// Like [`login`](Self::login), but behind a pooler: the statements begin each transaction.
    fn pooled_login(&self) -> (Endpoint, String) {
        let Some(part) = self.role else {
            let guard = connection::guarded_preamble(&self.endpoint);
            return (self.endpoint.clone(), format!("{guard}; {}", self.preamble));
        };
        let (endpoint, role) = (self.endpoint.for_part(part), self.endpoint.role_for(part));
        let preamble = match endpoint.user() == role {
            true => self.preamble.clone(),
            false => format!("{} set local role {role}", self.preamble),
        };
        (endpoint, preamble)
    }
}

impl Connect for PoolConnector {
    fn connect(&self, _: &tokio_postgres::Config) -> BoxFuture<'_, Result<OpenedConnection, tokio_postgres::Error>> {
        async move {
            let patience = self.endpoint.connect_timeout();
            if self.endpoint.is_pooled() {
                let (endpoint, preamble) = self.pooled_login();
                let config = endpoint.to_config();
                let start = SessionStart { endpoint: &endpoint, config: &config, tls: &self.tls, preamble: &preamble };
                let opened = dial_patiently(&start, patience, is_temporary_for_pools).await?;
                // A login that may not act as the role is noticed here, and not by the first
                // statement of a service
                opened.0.batch_execute("").await?;
                return Ok(opened);
            }
            let (config, set_up) = self.login();
            let start = SessionStart { endpoint: &self.endpoint, config: &config, tls: &self.tls, preamble: "" };
            let (client, driver) = dial_patiently(&start, patience, is_temporary_for_pools).await?;
            client.batch_execute(&set_up).await?;
            Ok((client, driver))
        }
        .boxed()
    }
}
