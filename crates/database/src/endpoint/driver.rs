//! The configuration of the driver for an endpoint.

use std::borrow::Cow;
use std::time::Duration;

use super::Endpoint;
use super::settings::{Host, TlsMode};

impl Endpoint {
    /// Returns the driver's configuration for this endpoint.
    pub(crate) fn to_config(&self) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config.user(&self.user).dbname(&self.database).port(self.port).connect_timeout(self.connect_timeout);
        match &self.host {
            Host::Socket(folder) => config.host_path(folder),
            Host::Tcp(host) => config.host(host),
        };
        if let Some(password) = &self.password {
            config.password(password.expose());
        }
        if let Some(options) = self.options_with_role() {
            config.options(&*options);
        }
        config.application_name(self.application_name.as_deref().unwrap_or("portico"));
        config.ssl_mode(match self.tls.mode {
            TlsMode::Disable => tokio_postgres::config::SslMode::Disable,
            TlsMode::Prefer => tokio_postgres::config::SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => tokio_postgres::config::SslMode::Require,
        });
        if self.tls.require_channel_binding {
            config.channel_binding(tokio_postgres::config::ChannelBinding::Require);
        }
        // A peer that disappeared without closing the connection is noticed after a minute, not
        // after hours.
        config
            .keepalives_idle(Duration::from_secs(30))
            .keepalives_interval(Duration::from_secs(10))
            .keepalives_retries(3)
            .tcp_user_timeout(Duration::from_secs(60));
        config
    }

    /// Returns the `options` of the session's start, with the role that `reset role` is to return
    /// to.
    fn options_with_role(&self) -> Option<Cow<'_, str>> {
        match (&self.role, self.options.as_deref()) {
            (None, given) => given.map(Cow::Borrowed),
            (Some(role), given) => Some(Cow::Owned(format!("{} -c role={role}", given.unwrap_or_default()))),
        }
    }
}
