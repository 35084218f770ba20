//! Text messages with a code: reserved in a transaction, handed over after it, undone when the
//! gateway does not take them.
//!
//! A gateway may take seconds to respond. So the code and the time of sending are committed first,
//! and no connection or lock waits for the gateway. When it rejects the message, the code is
//! deleted and the next message need not wait; an account that was made for the message is deleted
//! with it.

use portico_base::inherit_request;
use portico_mail::Template;
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::Auth;
use crate::error::{AuthError, ContractError, SqlResultExt as _};
use crate::hooks::{self, HookCall};
use crate::messages::text_transport::{TextMessage, within};
use crate::model::User;
use crate::model::ids::{PhoneNumber, UserId};
use crate::one_time::token::{OneTimeToken, TokenKind};
use crate::operation::AccountOperation;
use crate::settings::HookPoint;
use crate::sql::{Tx, one_time_tokens, users};

/// Checks that messages can be sent over a channel. Empty is `sms`.
///
/// # Errors
/// 400 `validation_failed`.
pub(crate) fn check_channel(auth: &Auth, channel: &str) -> Result<(), AuthError> {
    let works = match channel {
        "" | "sms" => true,
        // The hook knows its channels
        "whatsapp" if auth.hooks().has(HookPoint::SendSms) => true,
        "whatsapp" => auth.text_transport().is_some_and(|texts| texts.speaks_whatsapp()),
        _ => false,
    };
    if works { Ok(()) } else { Err(ContractError::InvalidChannel.into()) }
}

/// A text message whose code is stored. It must be delivered when the transaction is committed.
#[must_use = "the code is sent by `deliver` only"]
pub(crate) struct ReservedText {
    user: UserId,
    kind: TokenKind,
    hash: String,
    /// The time of the message before it, which counts again if this one is not sent.
    sent_before: Option<OffsetDateTime>,
    /// The account was made for the message.
    is_new: bool,
    /// `None` for a test number, which gets no messages.
    message: Option<TextMessage>,
    /// The hook that sends the message in place of the gateway.
    hook: Option<HookCall>,
}

/// Makes a code of a kind, stores it, and counts the message.
///
/// # Errors
/// 429 `over_sms_send_rate_limit`, 400 for a channel that does not work, 500 without a gateway.
pub(crate) async fn reserve(
    op: AccountOperation<'_>,
    user: &User,
    kind: TokenKind,
    phone: &PhoneNumber,
    channel: &str,
) -> Result<ReservedText, AuthError> {
    let AccountOperation { auth, tx, .. } = op;
    let settings = &auth.settings().sms;
    if let Some(wait) = kind.wait(user, settings.max_frequency, auth.now()) {
        return Err(AuthError::too_soon(wait, |seconds| ContractError::TextTooSoon { seconds }));
    }
    check_channel(auth, channel)?;
    let token = OneTimeToken::generate(phone.as_str(), settings.otp_length, false);
    let is_test = settings.test_code(phone.as_str(), op.now()).is_some();
    let has_hook = auth.hooks().has(HookPoint::SendSms);
    if !is_test && !has_hook && auth.text_transport().is_none() {
        return Err(AuthError::failed(ContractError::TextProviderMissing, anyhow::anyhow!("no SMS provider")));
    }
    if !is_test && !settings.autoconfirm {
        auth.limits().take_text()?;
    }
    match kind {
        TokenKind::PhoneChange => users::set_phone_change(tx, user.id, phone, &token.hash, op.now()).await,
        TokenKind::Reauthentication => users::set_reauthentication(tx, user.id, &token.hash, op.now()).await,
        _ => users::set_confirmation(tx, user.id, &token.hash, op.now()).await,
    }
    .context(ContractError::UpdatingUserFailed)?;
    one_time_tokens::put(tx, user.id, kind.as_str(), &token.hash, phone.as_str(), op.now()).await?;
    let hook = match is_test {
        true => None,
        false => {
            let user = hooks::complete_user(op, user, HookPoint::SendSms).await?;
            hooks::text_message_call(auth, op.request, &user, (phone.as_str(), &token.code), None)
        }
    };
    let message = (!is_test).then(|| {
        let body = Template::parse(&settings.template)
            .and_then(|template| template.render(&json!({"Code": token.code})))
            .unwrap_or_else(|_| format!("Your code is {}", token.code));
        let channel = if channel.is_empty() { "sms" } else { channel };
        TextMessage { to: phone.to_string(), body, code: token.code, channel: channel.to_owned() }
    });
    let sent_before = kind.sent_at(user);
    Ok(ReservedText { user: user.id, kind, hash: token.hash, sent_before, is_new: false, message, hook })
}

impl ReservedText {
    /// Marks the account as made for the message: it is deleted when the message cannot be sent.
    pub(crate) fn of_new_account(self) -> Self {
        Self { is_new: true, ..self }
    }

    /// Hands the message to the gateway, also when the client disconnects. Returns the body of the
    /// response.
    ///
    /// # Errors
    /// 422 `sms_send_failed`; the message is then undone.
    pub(crate) async fn deliver(self, auth: &Auth) -> Result<Value, AuthError> {
        if self.message.is_none() {
            return Ok(json!({"message_id": "test-otp"}));
        }
        let auth = auth.clone();
        let delivery = tokio::spawn(inherit_request(async move { self.send_or_undo(&auth).await }));
        delivery.await.map_err(AuthError::internal)?
    }

    async fn send_or_undo(mut self, auth: &Auth) -> Result<Value, AuthError> {
        if let Some(call) = &self.hook {
            let sent = auth.hooks().call(call).await;
            if sent.is_err() {
                self.undo_or_log(auth).await;
            }
            return sent.map(|_| json!({}));
        }
        let sent = match (self.message.take(), auth.text_transport()) {
            (Some(message), Some(texts)) => within(auth.settings().http_timeout, texts.send(message)).await,
            _ => Err("there is no provider".to_owned()),
        };
        match sent {
            Ok(id) if id.is_empty() => Ok(json!({})),
            Ok(id) => Ok(json!({"message_id": id})),
            Err(detail) => {
                self.undo_or_log(auth).await;
                let purpose = match self.kind {
                    TokenKind::PhoneChange => "phone_change",
                    TokenKind::Reauthentication => "reauthentication",
                    _ => "confirmation",
                };
                Err(ContractError::TextNotSent { purpose, detail }.into())
            }
        }
    }

    async fn undo_or_log(&self, auth: &Auth) {
        if let Err(error) = self.undo(auth).await {
            // The code stays stored, and is in no message
            error.log();
        }
    }

    async fn undo(&self, auth: &Auth) -> Result<(), AuthError> {
        if self.is_new {
            let tx = Tx::begin(auth.database()).await?;
            match users::delete_unreached(&tx, self.user, &self.hash).await {
                Ok(_) => return tx.commit().await,
                // A row of the application refers to the account: it stays, without a code
                Err(error) => tracing::warn!(error = %error, "the account of an unreached number could not be deleted"),
            }
        }
        let tx = Tx::begin(auth.database()).await?;
        users::undo_message(&tx, self.user, self.kind, &self.hash, self.sent_before).await?;
        tx.commit().await
    }
}
