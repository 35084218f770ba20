//! Text messages and their way: reserved in a transaction, handed over after it, taken back when nobody takes them.
//!
//! A gateway may take seconds to answer. So the code and the time of sending are committed first, and no connection or
//! lock waits for the gateway. When it refuses, the code is forgotten and the next message need not wait; an account
//! that was made for the message goes with it.

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
    /// What it says.
    pub body: String,
    /// The code in it, for gateways with templates of their own.
    pub code: String,
    /// `sms` or `whatsapp`.
    pub channel: String,
}

/// Something that takes text messages.
pub trait TextTransport: Send + Sync {
    /// Hands the message over. Returns the gateway's id of it, which may be empty.
    ///
    /// # Errors
    /// What the gateway said, for the caller: no secrets.
    fn send(&self, message: TextMessage) -> BoxFuture<'_, Result<String, String>>;

    /// Whether the `whatsapp` channel works.
    fn speaks_whatsapp(&self) -> bool {
        false
    }

    /// Whether a code is the one that was sent to a number, where the gateway makes the codes itself. `None`: it does
    /// not, and the code is the one of the [`TextMessage`]. Nothing happens before the future is polled.
    ///
    /// # Errors
    /// What the gateway said instead of a verdict, for the caller: no secrets.
    fn check<'a>(&'a self, _to: &'a str, _code: &'a str) -> Option<BoxFuture<'a, Result<bool, String>>> {
        None
    }
}

/// Whether messages can travel this way. Empty is `sms`.
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

/// A message whose code is stored. It must be delivered when the transaction is committed.
#[must_use = "nobody gets the code before it is delivered"]
pub(crate) struct Reserved {
    user: UserId,
    kind: Kind,
    hash: String,
    /// When the message before it was sent: what counts again if this one is not.
    sent_before: Option<time::OffsetDateTime>,
    /// The account was made for the message.
    is_new: bool,
    /// `None`: a test number, which gets none.
    message: Option<TextMessage>,
}

/// Makes a code of a kind, stores it, and counts the message.
///
/// # Errors
/// 429 `over_sms_send_rate_limit`, 400 for a channel that does not work, 500 without a gateway.
pub(crate) async fn reserve(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    kind: Kind,
    phone: &PhoneNumber,
    channel: &str,
    request: &RequestInfo,
) -> Result<Reserved, AuthError> {
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
    Ok(Reserved { user: user.id, kind, hash: token.hash, sent_before, is_new: false, message })
}

impl Reserved {
    /// The account was made for the message: it goes when nobody takes the message.
    pub(crate) fn of_new_account(self) -> Self {
        Self { is_new: true, ..self }
    }

    /// Hands the message to the gateway. Returns the answer of the request. Goes on when the client goes away.
    ///
    /// # Errors
    /// 422 `sms_send_failed`; then the message was taken back.
    pub(crate) async fn deliver(self, auth: &Auth) -> Result<Value, AuthError> {
        if self.message.is_none() {
            return Ok(json!({"message_id": "test-otp"}));
        }
        let auth = auth.clone();
        let delivery = tokio::spawn(async move { self.hand_over(&auth).await });
        delivery.await.map_err(AuthError::internal)?
    }

    async fn hand_over(mut self, auth: &Auth) -> Result<Value, AuthError> {
        let sent = match (self.message.take(), auth.texts()) {
            (Some(message), Some(texts)) => in_time(auth.settings().http_timeout, texts.send(message)).await,
            _ => Err("there is no provider".to_owned()),
        };
        match sent {
            Ok(id) if id.is_empty() => Ok(json!({})),
            Ok(id) => Ok(json!({"message_id": id})),
            Err(detail) => {
                if let Err(error) = self.take_back(auth).await {
                    // The code lives on, and nobody knows it
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

    async fn take_back(&self, auth: &Auth) -> Result<(), AuthError> {
        if self.is_new {
            let tx = Tx::begin(auth.database()).await?;
            match texts::delete_unreached(&tx, self.user, &self.hash).await {
                Ok(_) => return tx.commit().await,
                // Something of the application's refers to the account: it stays, without a code
                Err(error) => tracing::warn!(%error, "An account whose number was not reached could not be removed"),
            }
        }
        let tx = Tx::begin(auth.database()).await?;
        texts::forget(&tx, self.user, self.kind, &self.hash, self.sent_before).await?;
        tx.commit().await
    }
}
