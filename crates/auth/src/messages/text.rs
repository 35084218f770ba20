//! Text messages with codes: reserved in a transaction, sent after its commit, withdrawn if the gateway rejects them.
//!
//! A gateway may take seconds to answer. So the code and the time of sending are committed first, and no
//! connection or lock is held during the call. If it fails, the code is removed and the next message need not
//! wait; an account that was created for the message is removed with it.

use futures_util::future::BoxFuture;
use portico_mail::Template;
use serde_json::{Value, json};

use crate::Auth;
use crate::error::{AuthError, ContractError, SqlResultExt as _};
use crate::http::extract::RequestInfo;
use crate::model::User;
use crate::model::ids::{PhoneNumber, UserId};
use crate::one_time::text_code::{in_time, test_otp};
use crate::one_time::token::{Kind, OneTimeToken};
use crate::sql::{Tx, one_time_tokens, texts, users};

/// A text message.
#[derive(Debug, Clone)]
pub struct TextMessage {
    /// Digits without the plus sign.
    pub to: String,
    /// Its text.
    pub body: String,
    /// The code in it, for gateways with templates of their own.
    pub code: String,
    /// `sms` or `whatsapp`.
    pub channel: String,
}

/// Sends text messages.
pub trait TextTransport: Send + Sync {
    /// Sends a message. Returns the gateway's id of it, which may be empty.
    ///
    /// # Errors
    /// The explanation of the gateway, which clients see: no secrets.
    fn send(&self, message: TextMessage) -> BoxFuture<'_, Result<String, String>>;

    /// Returns true if the channel `whatsapp` is supported.
    fn speaks_whatsapp(&self) -> bool {
        false
    }

    /// Checks a code that the gateway created itself. `None`: it creates none, and the code is that of the
    /// [`TextMessage`]. Nothing happens before the future is polled.
    ///
    /// # Errors
    /// The explanation of the gateway if it did not check the code, which clients see: no secrets.
    fn check<'a>(&'a self, _to: &'a str, _code: &'a str) -> Option<BoxFuture<'a, Result<bool, String>>> {
        None
    }
}

/// Checks that a channel is supported. Empty is `sms`.
///
/// # Errors
/// 400 `validation_failed`.
pub(crate) fn check_channel(auth: &Auth, channel: &str) -> Result<(), AuthError> {
    let works = match channel {
        "" | "sms" => true,
        "whatsapp" => auth.texts().is_some_and(|texts| texts.speaks_whatsapp()),
        _ => false,
    };
    if works { Ok(()) } else { Err(ContractError::InvalidChannel.into()) }
}

/// A message whose code is stored. It must be delivered after the commit of the transaction.
#[must_use = "the message is not sent before it is delivered"]
pub(crate) struct ReservedText {
    user: UserId,
    kind: Kind,
    hash: String,
    /// The time of the previous message, which is restored if this one is not sent.
    sent_before: Option<time::OffsetDateTime>,
    /// The account was created for the message.
    is_new: bool,
    /// `None`: a test number, to which nothing is sent.
    message: Option<TextMessage>,
}

/// A message with a code that is to be sent to a user.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CodeMessage<'a> {
    pub(crate) user: &'a User,
    pub(crate) kind: Kind,
    pub(crate) phone: &'a PhoneNumber,
    /// `sms` or `whatsapp`. Empty is `sms`.
    pub(crate) channel: &'a str,
}

/// Creates and stores a code, and counts the message.
///
/// # Errors
/// 429 `over_sms_send_rate_limit`, 400 for an unsupported channel, 500 without a gateway.
pub(crate) async fn reserve(
    auth: &Auth,
    tx: &Tx,
    message: CodeMessage<'_>,
    request: &RequestInfo,
) -> Result<ReservedText, AuthError> {
    let CodeMessage { user, kind, phone, channel } = message;
    let settings = &auth.settings().sms;
    if let Some(wait) = kind.wait(user, settings.max_frequency, auth.now()) {
        return Err(AuthError::too_soon(wait, |seconds| ContractError::TextTooSoon { seconds }));
    }
    check_channel(auth, channel)?;
    let token = OneTimeToken::generate(phone.as_str(), settings.otp_length, false);
    let is_test = test_otp(auth, phone, request.now).is_some();
    if !is_test && auth.texts().is_none() {
        return Err(AuthError::failed(ContractError::TextProviderMissing, anyhow::anyhow!("no SMS provider")));
    }
    if !is_test && !settings.autoconfirm {
        auth.limits().take_text()?;
    }
    match kind {
        Kind::PhoneChange => users::set_phone_change(tx, user.id, phone, &token.hash, request.now).await,
        Kind::Reauthentication => users::set_reauthentication(tx, user.id, &token.hash, request.now).await,
        _ => users::set_confirmation(tx, user.id, &token.hash, request.now).await,
    }
    .context(ContractError::UpdatingUserFailed)?;
    one_time_tokens::put(tx, user.id, kind.as_str(), &token.hash, phone.as_str(), request.now).await?;
    let message = (!is_test).then(|| {
        let body = Template::parse(&settings.template)
            .and_then(|template| template.render(&json!({"Code": token.code})))
            .unwrap_or_else(|_| format!("Your code is {}", token.code));
        let channel = if channel.is_empty() { "sms" } else { channel };
        TextMessage { to: phone.to_string(), body, code: token.code, channel: channel.to_owned() }
    });
    let sent_before = kind.sent_at(user);
    Ok(ReservedText { user: user.id, kind, hash: token.hash, sent_before, is_new: false, message })
}

impl ReservedText {
    /// Marks the account as created for the message: it is removed if the message cannot be sent.
    pub(crate) fn of_new_account(self) -> Self {
        Self { is_new: true, ..self }
    }

    /// Sends the message. Returns the response of the request. Continues when the client disconnects.
    ///
    /// # Errors
    /// 422 `sms_send_failed`; the message was then withdrawn.
    pub(crate) async fn deliver(self, auth: &Auth) -> Result<Value, AuthError> {
        if self.message.is_none() {
            return Ok(json!({"message_id": "test-otp"}));
        }
        let auth = auth.clone();
        let delivery = tokio::spawn(async move { self.send(&auth).await });
        delivery.await.map_err(AuthError::internal)?
    }

    async fn send(mut self, auth: &Auth) -> Result<Value, AuthError> {
        let sent = match (self.message.take(), auth.texts()) {
            (Some(message), Some(texts)) => in_time(auth.settings().http_timeout, texts.send(message)).await,
            _ => Err("there is no provider".to_owned()),
        };
        match sent {
            Ok(id) if id.is_empty() => Ok(json!({})),
            Ok(id) => Ok(json!({"message_id": id})),
            Err(detail) => {
                if let Err(error) = self.withdraw(auth).await {
                    // The code stays valid, but was not sent
                    error.log();
                }
                let purpose = match self.kind {
                    Kind::PhoneChange => "phone_change",
                    Kind::Reauthentication => "reauthentication",
                    _ => "confirmation",
                };
                Err(ContractError::TextNotSent { purpose, detail }.into())
            }
        }
    }

    async fn withdraw(&self, auth: &Auth) -> Result<(), AuthError> {
        if self.is_new {
            let tx = Tx::begin(auth.database()).await?;
            match texts::delete_unreached(&tx, self.user, &self.hash).await {
                Ok(_) => return tx.commit().await,
                // A row of the application refers to the account: it is kept, without a code
                Err(error) => tracing::warn!(%error, "an account whose number was not reached could not be removed"),
            }
        }
        let tx = Tx::begin(auth.database()).await?;
        texts::forget(&tx, self.user, self.kind, &self.hash, self.sent_before).await?;
        tx.commit().await
    }
}
