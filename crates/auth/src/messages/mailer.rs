//! The mailer: renders emails, enqueues them in the outbox, and delivers them.
//!
//! An email is enqueued in the transaction that makes it necessary. A task of the service delivers
//! it after the commit, with retries. So a response takes as long for a known address as for an
//! unknown one, no acknowledged email is lost when the mail server or this program is down, and a
//! rollback sends nothing.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use portico_database::RolePool;
use portico_mail::{
    Address, Email, HeaderLine, MailKind, RenderedMail, SendError, Sender, Templates, Transport, Variables,
};
use serde_json::{Value, json};
use tokio::sync::Notify;
use url::Url;

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::http::extract::RequestInfo;
use crate::messages::template_source::FetchedBodies;
use crate::model::User;
use crate::settings::{AuthSettings, EmailSettings, SettingsError};
use crate::sql::Tx;
use crate::sql::outbox::{self, QueuedMail};

/// Interval of the search for emails that another server claimed before it crashed.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// Longest time between two attempts.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(600);
/// First delay after an attempt failed, because the mail server or the database does not respond.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Renders and delivers emails.
pub(crate) struct Mailer {
    templates: Templates,
    bodies: FetchedBodies,
    sender: Sender,
    transport: Arc<dyn Transport>,
    database: RolePool,
    settings: EmailSettings,
    wake: Arc<Notify>,
}

impl Mailer {
    pub(crate) fn new(
        settings: &AuthSettings,
        transport: Arc<dyn Transport>,
        database: RolePool,
    ) -> Result<Arc<Self>, SettingsError> {
        let mut templates = settings.email.brand_accent.map_or_else(Templates::default, Templates::with_accent);
        let mut fetched = Vec::new();
        for (kind, own) in &settings.email.templates {
            let failed = |error: portico_mail::TemplateError| SettingsError::Template {
                kind: kind.key(),
                reason: error.to_string(),
            };
            if let Some(subject) = &own.subject {
                templates.set_subject(*kind, subject).map_err(failed)?;
            }
            if let Some(body) = &own.body {
                templates.set_body(*kind, body).map_err(failed)?;
            }
            if let Some(file) = &own.body_file {
                templates.set_body_file(*kind, file).map_err(failed)?;
            }
            if let Some(url) = settings.template_url(*kind)? {
                templates.expect_body(*kind);
                fetched.push((*kind, url));
            }
        }
        let address = Address::parse(&settings.email.sender_address)
            .map_err(|error| SettingsError::Value { name: "email.sender_address", reason: error.to_string() })?;
        let sender = Sender::new(&settings.email.sender_name, address);
        let bodies = FetchedBodies::new(settings, templates.clone(), fetched);
        let settings = settings.email.clone();
        Ok(Arc::new(Self { templates, bodies, sender, transport, database, settings, wake: Arc::default() }))
    }

    /// Starts the tasks that deliver emails and read templates. They end with the service. Without
    /// a runtime emails stay in the outbox until the next start.
    pub(crate) fn start(self: &Arc<Self>) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(deliver_forever(Arc::downgrade(self), self.wake.clone()));
            self.bodies.start(&runtime);
        }
    }

    /// Sends the emails that are due. Returns the time until the next one.
    async fn deliver(&self) -> Result<Duration, AuthError> {
        let client = self.database.client().await?;
        loop {
            let due = outbox::claim(&client).await?;
            if due.is_empty() {
                break;
            }
            let outcomes = join_all(due.into_iter().map(async |mail| (self.send(&mail).await, mail))).await;
            for (outcome, mail) in outcomes {
                match outcome {
                    Ok(()) => outbox::delete(&client, mail.id).await?,
                    Err(error) if error.is_temporary() && !mail.is_stale => {
                        let wait = retry_delay(mail.attempts);
                        tracing::warn!(mail.id, mail.kind, mail.attempts, error = %error, "an email could not be sent and will be retried");
                        outbox::postpone(&client, mail.id, wait, &error.to_string()).await?;
                    }
                    Err(error) => {
                        tracing::error!(mail.id, mail.kind, mail.attempts, error = %error, "an email could not be sent and is discarded");
                        outbox::delete(&client, mail.id).await?;
                    }
                }
            }
        }
        Ok(outbox::next(&client).await?.unwrap_or(POLL_INTERVAL).min(POLL_INTERVAL))
    }

    async fn send(&self, mail: &QueuedMail) -> Result<(), SendError> {
        let permanent = |what: &dyn std::fmt::Display| SendError::Permanent(what.to_string());
        let to = Address::parse(&mail.recipient).map_err(|error| permanent(&error))?;
        let mut email = Email::new(self.sender.clone(), to, HeaderLine::flatten(&mail.subject), mail.html.as_str())
            .with_id(&format!("{}-{}", mail.promised_at, mail.id));
        for header in mail.headers.as_array().into_iter().flatten() {
            if let (Some(name), Some(value)) = (header[0].as_str(), header[1].as_str()) {
                email = email.with_header(name, value).map_err(|error| permanent(&error))?;
            }
        }
        self.transport.send(email).await
    }

    /// Enqueues an email in the transaction that makes it necessary. It is sent after the commit.
    ///
    /// # Errors
    /// 500 when it cannot be rendered or stored.
    pub(crate) async fn enqueue(
        &self,
        tx: &Tx,
        kind: MailKind,
        to: &str,
        variables: &Variables,
    ) -> Result<(), AuthError> {
        let rendered = self.render(kind, variables)?;
        let headers: Vec<Value> =
            self.settings.headers.iter().map(|(name, value)| json!([name, kind.in_header(value)])).collect();
        outbox::insert(tx, kind.key(), to, rendered.subject.as_str(), &rendered.html, &Value::Array(headers)).await?;
        tx.notify_after_commit(&self.wake);
        Ok(())
    }

    /// Enqueues a decoy and removes it, so that the transaction takes as long as one with an email.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) async fn enqueue_decoy(&self, tx: &Tx, kind: MailKind, variables: &Variables) -> Result<(), AuthError> {
        let rendered = self.render(kind, variables)?;
        Ok(outbox::insert_decoy(tx, kind.key(), rendered.subject.as_str(), &rendered.html).await?)
    }

    /// Enqueues a notification of a changed sign-in method, if it is enabled. Never fails the
    /// request: a template that cannot be rendered is logged. An account without an address gets
    /// none.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) async fn notify(
        &self,
        tx: &Tx,
        kind: MailKind,
        to: &str,
        variables: &Variables,
    ) -> Result<(), AuthError> {
        if !self.settings.notifications.contains(&kind) || Address::parse(to).is_err() {
            return Ok(());
        }
        // After a changed password the reader may be unable to sign in
        let is_password = kind == MailKind::PasswordChanged;
        let page = if is_password { &self.settings.recovery_page } else { &self.settings.security_page };
        let variables = Variables { security_url: page.clone(), ..variables.clone() };
        match self.enqueue(tx, kind, to, &variables).await {
            Err(AuthError::Internal { source, .. }) => {
                let error = format!("{source:#}");
                tracing::error!(error = %error, mail.kind = kind.key(), "a notification could not be written");
                Ok(())
            }
            other => other,
        }
    }

    fn render(&self, kind: MailKind, variables: &Variables) -> Result<RenderedMail, AuthError> {
        let failed = |error| AuthError::failed(failure(kind), anyhow::anyhow!("{error}"));
        self.templates.render(kind, variables).map_err(failed)
    }
}

impl Drop for Mailer {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

async fn deliver_forever(mailer: Weak<Mailer>, wake: Arc<Notify>) {
    loop {
        let pause = {
            let Some(mailer) = mailer.upgrade() else { return };
            match mailer.deliver().await {
                Ok(pause) => pause,
                Err(error) => {
                    if !mailer.database.is_being_recreated() {
                        tracing::warn!(error = %error, "emails cannot be delivered at the moment");
                    }
                    RETRY_DELAY
                }
            }
        };
        let _ = tokio::time::timeout(pause.max(Duration::from_millis(10)), wake.notified()).await;
    }
}

/// Returns the delay before the next attempt: 5 s, 10 s, 20 s, ... up to ten minutes.
fn retry_delay(attempts: i32) -> Duration {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(0).min(10);
    (RETRY_DELAY * 2u32.pow(doublings)).min(MAX_RETRY_DELAY)
}

/// Returns the variables of every email about a user.
pub(crate) fn variables(auth: &Auth, user: &User) -> Variables {
    Variables {
        site_url: auth.settings().site_url.clone(),
        brand_name: auth.settings().email.brand_name.clone(),
        email: user.email.clone(),
        data: Value::Object(user.user_metadata.clone()),
        ..Variables::default()
    }
}

/// Returns the link of an email.
pub(crate) fn confirmation_url(auth: &Auth, kind: MailKind, hash: &str, request: &RequestInfo) -> String {
    let paths = &auth.settings().email.url_paths;
    let path = match kind {
        MailKind::Invite => &paths.invite,
        MailKind::Recovery | MailKind::MagicLink => &paths.recovery,
        MailKind::EmailChange => &paths.email_change,
        _ => &paths.confirmation,
    };
    let base = if path.is_empty() {
        format!("{}/verify", request.external_url)
    } else {
        let joined = Url::parse(&request.external_url).and_then(|base| base.join(path));
        joined.map_or_else(|_| path.clone(), |url| url.to_string())
    };
    let redirect_to = &request.redirect_to;
    let redirect_to = if redirect_to.contains(['&', '=', '#']) {
        form_urlencoded::byte_serialize(redirect_to.as_bytes()).collect()
    } else {
        redirect_to.clone()
    };
    let separator = if base.contains('?') { '&' } else { '?' };
    let link_type = kind.link_type().unwrap_or_default();
    format!("{base}{separator}token={hash}&type={link_type}&redirect_to={redirect_to}")
}

/// Counts an email of the whole service, unless new addresses need no confirmation.
///
/// # Errors
/// 429 `over_email_send_rate_limit`.
pub(crate) fn count_mail(auth: &Auth) -> Result<(), AuthError> {
    if auth.settings().email.autoconfirm && !auth.limits().blocks_all_email() {
        return Ok(());
    }
    auth.limits().take_email()
}

/// Like [`count_mail`], but for a decoy.
///
/// # Errors
/// 429 `over_email_send_rate_limit`.
pub(crate) fn check_mail_budget(auth: &Auth) -> Result<(), AuthError> {
    if auth.settings().email.autoconfirm && !auth.limits().blocks_all_email() {
        return Ok(());
    }
    auth.limits().check_email()
}

fn failure(kind: MailKind) -> ContractError {
    match kind {
        MailKind::Recovery => ContractError::RecoveryEmailFailed,
        MailKind::MagicLink => ContractError::MagicLinkEmailFailed,
        MailKind::EmailChange => ContractError::EmailChangeEmailFailed,
        MailKind::Reauthentication => ContractError::ReauthenticationEmailFailed,
        MailKind::Invite => ContractError::InviteEmailFailed,
        _ => ContractError::ConfirmationEmailFailed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_delays_grow_up_to_a_limit() {
        assert_eq!(retry_delay(1), Duration::from_secs(5));
        assert_eq!(retry_delay(2), Duration::from_secs(10));
        assert_eq!(retry_delay(i32::MAX), MAX_RETRY_DELAY);
        assert_eq!(retry_delay(i32::MIN), Duration::from_secs(5));
    }
}
