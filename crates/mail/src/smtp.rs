//! Delivery to a mail server.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use futures_util::future::BoxFuture;
use lettre::{
    AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor,
    address::Envelope,
    message::{
        Mailbox, MultiPart,
        header::{HeaderName, HeaderValue, Headers},
    },
    transport::smtp::{
        Error, PoolConfig,
        authentication::Credentials,
        client::{Certificate, Tls, TlsParameters},
    },
};

use crate::{Email, SendError, Transport, plain_text};

/// The protection of the connection to the mail server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SmtpTls {
    /// By the port: TLS from the first byte on 465, else [`SmtpTls::Opportunistic`].
    #[default]
    Automatic,
    /// Never: for a server on the same machine.
    None,
    /// STARTTLS if the server offers it. With a password, and a server on another machine, it is
    /// required.
    Opportunistic,
    /// STARTTLS, or no email.
    Required,
    /// TLS from the first byte.
    Implicit,
}

/// The address and login of a mail server.
#[derive(Clone)]
pub struct SmtpSettings {
    /// Name of the server, which its certificate must carry.
    pub host: String,
    /// Its port; usually 587, 465 or 25.
    pub port: u16,
    /// Name to log in with; without one there is no login.
    pub user: Option<String>,
    /// Password to log in with.
    pub password: Option<String>,
    /// Protection of the connection.
    pub tls: SmtpTls,
    /// Certificates (PEM) to trust beside the system's: for a server with a private authority.
    pub extra_roots: Option<Vec<u8>>,
    /// Time that connecting, and each answer, may take.
    pub timeout: Duration,
    /// Connections that are kept open at most.
    pub connections: u32,
}

impl SmtpSettings {
    /// Makes a server on the given port, without login, protected as the port suggests.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
            user: None,
            password: None,
            tls: SmtpTls::Automatic,
            extra_roots: None,
            timeout: Duration::from_secs(10),
            connections: 4,
        }
    }

    fn is_local(&self) -> bool {
        matches!(self.host.as_str(), "localhost" | "127.0.0.1" | "::1")
    }

    fn protection(&self) -> SmtpTls {
        match self.tls {
            SmtpTls::Automatic if self.port == 465 => SmtpTls::Implicit,
            // An attacker in the network could remove the server's offer of TLS and read the
            // password
            SmtpTls::Automatic | SmtpTls::Opportunistic if self.user.is_some() && !self.is_local() => SmtpTls::Required,
            SmtpTls::Automatic => SmtpTls::Opportunistic,
            other => other,
        }
    }
}

impl std::fmt::Debug for SmtpSettings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SmtpSettings")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("user", &self.user.as_ref().map(|_| "***"))
            .field("password", &self.password.as_ref().map(|_| "***"))
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// A mail server, reached over SMTP. Connections are kept and used again; clones share them.
#[derive(Clone)]
pub struct SmtpTransport {
    connections: AsyncSmtpTransport<Tokio1Executor>,
}

impl SmtpTransport {
    /// Prepares the transport; nothing is connected yet.
    ///
    /// # Errors
    ///
    /// [`SendError::Permanent`] when the extra certificates cannot be read or the host is no name.
    pub fn new(settings: &SmtpSettings) -> Result<Self, SendError> {
        let refused = |error: Error| SendError::Permanent(describe(&error));
        let parameters = || {
            let mut parameters = TlsParameters::builder(settings.host.clone());
            if let Some(pem) = &settings.extra_roots {
                parameters = parameters.add_root_certificate(Certificate::from_pem(pem)?);
            }
            parameters.build()
        };
        let tls = match settings.protection() {
            SmtpTls::None => Tls::None,
            SmtpTls::Required => Tls::Required(parameters().map_err(refused)?),
            SmtpTls::Implicit => Tls::Wrapper(parameters().map_err(refused)?),
            SmtpTls::Opportunistic | SmtpTls::Automatic => Tls::Opportunistic(parameters().map_err(refused)?),
        };
        let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&settings.host)
            .port(settings.port)
            .tls(tls)
            .timeout(Some(settings.timeout))
            .pool_config(PoolConfig::new().max_size(settings.connections.max(1)).idle_timeout(Duration::from_secs(60)));
        if let Some(user) = &settings.user {
            let password = settings.password.clone().unwrap_or_default();
            builder = builder.credentials(Credentials::new(user.clone(), password));
        }
        Ok(Self { connections: builder.build() })
    }

    /// Checks that the server answers and accepts the login.
    ///
    /// # Errors
    ///
    /// [`SendError::Temporary`] says what it answered.
    pub async fn check(&self) -> Result<(), SendError> {
        match self.connections.test_connection().await {
            Ok(true) => Ok(()),
            Ok(false) => Err(SendError::Temporary("the server does not answer".to_owned())),
            Err(error) => Err(SendError::Temporary(describe(&error))),
        }
    }
}

impl Transport for SmtpTransport {
    fn send(&self, email: Email) -> BoxFuture<'_, Result<(), SendError>> {
        Box::pin(async move {
            let message = message(&email)?;
            let needs_utf8 = !email.to.wire().user().is_ascii();
            self.connections
                .send_raw(&message.envelope, &message.bytes)
                .await
                .map(drop)
                .map_err(|error| classify(&error, needs_utf8))
        })
    }
}

fn classify(error: &Error, needs_utf8: bool) -> SendError {
    let reason = describe(error);
    // A refused login (530, 534, 535, 538) is our configuration's fault: the email is fine once
    // that is put right
    let about_the_mail = error.is_permanent()
        && error.status().is_none_or(|code| !matches!(u16::from(code), 500 | 502 | 503 | 530 | 534 | 535 | 538));
    if about_the_mail || (needs_utf8 && error.is_client()) {
        SendError::Permanent(reason)
    } else {
        SendError::Temporary(reason)
    }
}

/// Returns the kind and code of a failure. Servers repeat the recipient in their words, which do
/// not belong in a log.
fn describe(error: &Error) -> String {
    if let Some(code) = error.status() {
        return format!("it answered with code {code}");
    }
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    if error.is_permanent() || error.is_transient() {
        return "it refused without a code".to_owned();
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = cause.to_string();
        source = cause.source();
    }
    text.chars().filter(|character| !character.is_control()).take(200).collect()
}

/// A message and who it is for, as the server gets it.
pub(crate) struct WireMessage {
    pub envelope: Envelope,
    pub bytes: Vec<u8>,
}

/// Puts the parts of an email together.
pub(crate) fn message(email: &Email) -> Result<WireMessage, SendError> {
    let name = email.from.name();
    let from = Mailbox::new((!name.is_empty()).then(|| name.to_owned()), email.from.address().wire().clone());
    let to = Mailbox::new(None, email.to.wire().clone());
    let id = format!("<{}@{}>", email.id.clone().unwrap_or_else(unique), email.from.address().domain());
    let message = Message::builder()
        .from(from)
        .to(to)
        .subject(email.subject.as_str())
        .date_now()
        .message_id(Some(id))
        .multipart(MultiPart::alternative_plain_html(plain_text(&email.html), email.html.clone()))
        .map_err(|error| SendError::Permanent(error.to_string()))?;

    // Written before the rest because the message builder keeps one line per name
    let mut bytes = String::from("Auto-Submitted: auto-generated\r\n").into_bytes();
    for (name, value) in &email.headers {
        let name = HeaderName::new_from_ascii(name.clone())
            .map_err(|_| SendError::Permanent("a header has no valid name".to_owned()))?;
        let mut line = Headers::new();
        line.insert_raw(HeaderValue::new(name, value.as_str().to_owned()));
        bytes.extend_from_slice(line.to_string().as_bytes());
    }
    bytes.extend_from_slice(&message.formatted());
    Ok(WireMessage { envelope: message.envelope().clone(), bytes })
}

/// Returns an identifier that no other message has; it need not be hard to guess.
fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}.{}", random(), random(), COUNT.fetch_add(1, Ordering::Relaxed))
}
