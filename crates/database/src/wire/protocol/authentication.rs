//! The start of a session: the start-up message and the password exchange that the server asks for.

use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256};
use postgres_protocol::message::frontend;

use super::error::{PostgresError, WireError};
use super::message_channel::MessageChannel;
use super::message_reader::MessageHead;
use crate::endpoint::Endpoint;

/// The backend key of a session (`BackendKeyData`), which a cancel request names.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BackendKey {
    /// The number of the server's process.
    pub process: i32,
    /// The secret that authorises a cancel request.
    pub secret: i32,
}

/// Starts the session and authenticates, up to the first `ReadyForQuery`.
///
/// `settings` are in force from the start of the session. `reset all` returns to them.
pub(crate) async fn authenticate(
    channel: &mut MessageChannel,
    endpoint: &Endpoint,
    settings: &[(String, String)],
) -> Result<BackendKey, WireError> {
    let mut parameters = vec![
        ("user", endpoint.user()),
        ("database", endpoint.database()),
        ("application_name", endpoint.application_name().unwrap_or("portico")),
        ("client_encoding", "UTF8"),
    ];
    parameters.extend(endpoint.options().map(|options| ("options", options)));
    parameters.extend(settings.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    frontend::startup_message(parameters, &mut channel.out).map_err(WireError::Lost)?;
    channel.send(&[]).await.map_err(WireError::Lost)?;

    let mut exchange = PasswordExchange { endpoint, scram: None, is_server_verified: false };
    let mut key = BackendKey::default();
    loop {
        let message = channel.message().await?;
        match message.tag {
            b'R' => exchange.respond(channel, message).await?,
            b'K' => {
                if let Some((process, rest)) = channel.reader.body(message).split_first_chunk()
                    && let Some(secret) = rest.first_chunk()
                {
                    key = BackendKey { process: i32::from_be_bytes(*process), secret: i32::from_be_bytes(*secret) };
                }
            }
            b'E' => return Err(WireError::Postgres(Box::new(PostgresError::read(channel.reader.body(message))))),
            b'Z' => {
                channel.reader.skip(message);
                return Ok(key);
            }
            b'S' | b'N' | b'A' => {}
            _ => return Err(WireError::Protocol("a message that has no place at the start of a session")),
        }
        channel.reader.skip(message);
    }
}

/// The state of a password exchange.
struct PasswordExchange<'a> {
    endpoint: &'a Endpoint,
    scram: Option<ScramSha256>,
    /// The server has proved that it knows the password too.
    is_server_verified: bool,
}

impl PasswordExchange<'_> {
    /// Responds to an authentication message. The caller skips the message itself.
    async fn respond(&mut self, channel: &mut MessageChannel, message: MessageHead) -> Result<(), WireError> {
        const CUT: WireError = WireError::Protocol("an authentication message that ends too early");
        let (kind, body) = channel.reader.body(message).split_first_chunk().ok_or(CUT)?;
        let bound = self.endpoint.tls().require_channel_binding;
        match (i32::from_be_bytes(*kind), &mut self.scram) {
            (0, Some(_)) if !self.is_server_verified => {
                return Err(WireError::Refused("the database did not prove that it knows the password".into()));
            }
            (0 | 3 | 5, None) if bound => {
                return Err(WireError::Refused("the database does not bind the password to the TLS connection".into()));
            }
            (0, _) => return Ok(()),
            (3, None) => {
                if !channel.stream.is_private() {
                    return Err(WireError::Refused(format!(
                        "the database at {} asks for the password in the clear over an unprotected connection: use \
                         sslmode=require or more, or scram-sha-256",
                        self.endpoint.description()
                    )));
                }
                frontend::password_message(self.password()?.as_bytes(), &mut channel.out).map_err(WireError::Lost)?;
            }
            (5, None) => {
                let salt = *body.first_chunk().ok_or(CUT)?;
                let hash = md5_hash(self.endpoint.user().as_bytes(), self.password()?.as_bytes(), salt);
                frontend::password_message(hash.as_bytes(), &mut channel.out).map_err(WireError::Lost)?;
            }
            (10, None) => {
                let offered = |name: &str| body.split(|byte| *byte == 0).any(|offered| offered == name.as_bytes());
                let (mechanism, binding) = match channel.stream.tls_server_end_point() {
                    Some(hash) if offered(SCRAM_SHA_256_PLUS) => {
                        (SCRAM_SHA_256_PLUS, ChannelBinding::tls_server_end_point(hash))
                    }
                    _ if bound => {
                        let text = "the database does not bind the password to the TLS connection";
                        return Err(WireError::Refused(text.into()));
                    }
                    Some(_) => (SCRAM_SHA_256, ChannelBinding::unrequested()),
                    None => (SCRAM_SHA_256, ChannelBinding::unsupported()),
                };
                if !offered(mechanism) {
                    return Err(WireError::Refused(
                        "the database asks for an unknown kind of password exchange".into(),
                    ));
                }
                let scram = ScramSha256::new(self.password()?.as_bytes(), binding);
                frontend::sasl_initial_response(mechanism, scram.message(), &mut channel.out)
                    .map_err(WireError::Lost)?;
                self.scram = Some(scram);
            }
            (11, Some(scram)) if !self.is_server_verified => {
                scram.update(body).map_err(|error| failed(&error))?;
                frontend::sasl_response(scram.message(), &mut channel.out).map_err(WireError::Lost)?;
            }
            (12, Some(scram)) if !self.is_server_verified => {
                scram.finish(body).map_err(|error| failed(&error))?;
                self.is_server_verified = true;
                return Ok(());
            }
            (3 | 5 | 10 | 11 | 12, _) => return Err(WireError::Protocol("authentication out of order")),
            _ => {
                let text = "the database asks for an authentication other than trust, password, md5 and scram-sha-256";
                return Err(WireError::Refused(text.into()));
            }
        }
        channel.send(&[]).await.map_err(WireError::Lost)
    }

    fn password(&self) -> Result<&str, WireError> {
        match self.endpoint.password() {
            Some(password) => Ok(password.expose()),
            None => Err(WireError::Refused(format!(
                "the database at {} asks for the password of `{}`, and its URL has none",
                self.endpoint.description(),
                self.endpoint.user()
            ))),
        }
    }
}

fn failed(error: &std::io::Error) -> WireError {
    WireError::Refused(format!("the password exchange with the database failed: {error}"))
}
