//! Mails: what they say, and that they arrive (auth-core 15).
//!
//! A mail is written into the outbox in the transaction that makes it necessary, and delivered afterwards by a task of the
//! service, with retries. So an answer takes as long for a known address as for an unknown one, nothing that was
//! acknowledged is lost when the mail server or this program is down, and nothing is sent for what was rolled back.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use portico_database::Database;
use portico_mail::{Address, Email, HeaderLine, MailKind, SendError, Sender, Templates, Transport, Variables};
use serde_json::{Value, json};
use tokio::sync::Notify;
use url::Url;

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::http::extract::RequestInfo;
use crate::messages::template_source::FetchedBodies;
use crate::model::User;
use crate::model::ids::EmailAddress;
use crate::settings::{AuthSettings, SettingsError};
use crate::sql::Tx;
use crate::sql::outbox::{self, Waiting};

/// Another server may have died with mails that it had taken; look after them this often.
const LOOK_AFTER: Duration = Duration::from_secs(30);
/// The longest wait between two attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// The mail server or the database does not answer.
const PAUSE: Duration = Duration::from_secs(5);

/// Writes mails and delivers them.
pub(crate) struct Mailer {
    templates: Templates,
    bodies: FetchedBodies,
    sender: Sender,
    transport: Arc<dyn Transport>,
    database: Database,
    wake: Arc<Notify>,
}

impl Mailer {
    pub(crate) fn new(
        settings: &AuthSettings,
        transport: Arc<dyn Transport>,
        database: Database,
    ) -> Result<Arc<Self>, SettingsError> {
        let mut templates = Templates::default();
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
        Ok(Arc::new(Self { templates, bodies, sender, transport, database, wake: Arc::default() }))
    }

    /// Starts the task that delivers and those that read templates; they end with the service. Without a runtime mails wait
    /// for the next start.
    pub(crate) fn start(self: &Arc<Self>) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(deliver_for_ever(Arc::downgrade(self), self.wake.clone()));
            self.bodies.start(&runtime);
        }
    }

    /// Sends what is due. Returns how long there is nothing to do.
    async fn deliver(&self) -> Result<Duration, AuthError> {
        let client = self.database.auth().await?;
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
                        let wait = wait_after(mail.attempts);
                        tracing::warn!(mail.id, mail.kind, mail.attempts, %error, "Mail not sent yet, will retry");
                        outbox::postpone(&client, mail.id, wait, &error.to_string()).await?;
                    }
                    Err(error) => {
                        tracing::error!(mail.id, mail.kind, mail.attempts, %error, "Mail given up");
                        outbox::delete(&client, mail.id).await?;
                    }
                }
            }
        }
        Ok(outbox::next(&client).await?.unwrap_or(LOOK_AFTER).min(LOOK_AFTER))
    }

    async fn send(&self, mail: &Waiting) -> Result<(), SendError> {
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
}

impl Drop for Mailer {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

async fn deliver_for_ever(mailer: Weak<Mailer>, wake: Arc<Notify>) {
    loop {
        let rest = {
            let Some(mailer) = mailer.upgrade() else { return };
            match mailer.deliver().await {
                Ok(rest) => rest,
                Err(error) => {
                    if !mailer.database.is_being_recreated() {
                        tracing::warn!(error = error.to_string(), "Mails can not be delivered at the moment");
                    }
                    PAUSE
                }
            }
        };
        let _ = tokio::time::timeout(rest.max(Duration::from_millis(10)), wake.notified()).await;
    }
}

/// 5 s, 10 s, 20 s, ... up to ten minutes.
fn wait_after(attempts: i32) -> Duration {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(0).min(10);
    (PAUSE * 2u32.pow(doublings)).min(LONGEST_WAIT)
}

/// The variables that every mail about a user has.
pub(crate) fn variables(auth: &Auth, user: &User) -> Variables {
    Variables {
        site_url: auth.settings().site_url.clone(),
        email: user.email.clone(),
        data: Value::Object(user.user_metadata.clone()),
        ..Variables::default()
    }
}

/// The link of a mail (auth-core 15.4).
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

/// Counts a mail of the whole service, unless addresses count as confirmed anyway (auth-core 18.2).
///
/// # Errors
/// 429 `over_email_send_rate_limit`.
pub(crate) fn count_mail(auth: &Auth) -> Result<(), AuthError> {
    if auth.settings().email.autoconfirm && !auth.limits().blocks_all_email() {
        return Ok(());
    }
    auth.limits().take_email()
}

/// As [`count_mail`], for a mail that is only pretended.
///
/// # Errors
/// 429 `over_email_send_rate_limit`.
pub(crate) fn check_mail_budget(auth: &Auth) -> Result<(), AuthError> {
    if auth.settings().email.autoconfirm && !auth.limits().blocks_all_email() {
        return Ok(());
    }
    auth.limits().check_email()
}

/// Whether this address may get mail at all.
///
/// # Errors
/// 400 `email_address_not_authorized`, `email_address_invalid`, or `validation_failed` for one that no mail server takes.
pub(crate) fn check_recipient(auth: &Auth, to: &EmailAddress) -> Result<(), AuthError> {
    let settings = &auth.settings().email;
    if Address::parse(to.as_str()).is_err() {
        return Err(ContractError::EmailMalformed.into());
    }
    if settings.extended_validation && (is_invented(to) || auth.mail_domains().is_known_to_reject(to.domain())) {
        return Err(invalid_address(to));
    }
    let authorized = &settings.authorized_addresses;
    if !authorized.is_empty() {
        let plain = without_label(to.as_str());
        if !authorized.iter().any(|known| without_label(&known.trim().to_lowercase()) == plain) {
            return Err(ContractError::EmailNotAuthorized { address: to.to_string() }.into());
        }
    }
    Ok(())
}

/// Whether the domain of an address takes mail, where that is asked for. Before a transaction begins: name servers may be slow.
/// [`check_recipient`] remembers what was found out.
///
/// # Errors
/// 400 `email_address_invalid`.
pub(crate) async fn check_domain(auth: &Auth, to: &EmailAddress) -> Result<(), AuthError> {
    // What [`check_recipient`] refuses needs no look-up
    if !auth.settings().email.extended_validation
        || is_invented(to)
        || auth.mail_domains().accepts_mail(to.domain()).await
    {
        return Ok(());
    }
    Err(invalid_address(to))
}

/// As [`check_domain`], for an address that may get no mail at all: [`check_recipient`] decides when one is due.
pub(crate) async fn look_up_domain(auth: &Auth, to: &EmailAddress) {
    let _ = check_domain(auth, to).await;
}

fn invalid_address(to: &EmailAddress) -> AuthError {
    ContractError::EmailInvalid { address: to.to_string() }.into()
}

/// `ada+list@example.com` is `ada@example.com`.
fn without_label(address: &str) -> String {
    match address.rsplit_once('@') {
        Some((local, domain)) => format!("{}@{domain}", local.split('+').next().unwrap_or_default()),
        None => address.to_owned(),
    }
}

/// Domains that can not receive mail, and addresses that are known fakes.
fn is_invented(address: &EmailAddress) -> bool {
    let domain = address.domain();
    let reserved = ["test", "example", "invalid", "local", "localhost"];
    let known = ["example.com", "example.net", "example.org", "test.com", "test.net", "test.org"];
    let last = domain.rsplit('.').next().unwrap_or_default();
    let name = address.as_str().split('@').next().unwrap_or_default();
    !domain.contains('.')
        || reserved.contains(&last)
        || known.iter().any(|known| domain == *known || domain.ends_with(&format!(".{known}")))
        || (domain == "gmail.com" && name.split('+').next().unwrap_or_default().len() < 6)
}

/// Promises a mail in the transaction that makes it necessary; it leaves after the commit.
///
/// # Errors
/// 500 with the contract's text when it can not be written.
pub(crate) async fn enqueue(
    auth: &Auth,
    tx: &Tx,
    kind: MailKind,
    to: &str,
    variables: &Variables,
) -> Result<(), AuthError> {
    let mailer = auth.mailer();
    let rendered = mailer
        .templates
        .render(kind, variables)
        .map_err(|error| AuthError::failed(failure(kind), anyhow::anyhow!("{error}")))?;
    let headers: Vec<Value> =
        auth.settings().email.headers.iter().map(|(name, value)| json!([name, kind.in_header(value)])).collect();
    outbox::insert(tx, kind.key(), to, rendered.subject.as_str(), &rendered.html, &Value::Array(headers)).await?;
    tx.notify_after_commit(&mailer.wake);
    Ok(())
}

/// Writes a mail that nobody gets, and takes it back; the transaction commits as long as a real one would.
///
/// # Errors
/// Only what the database says.
pub(crate) async fn enqueue_decoy(
    auth: &Auth,
    tx: &Tx,
    kind: MailKind,
    variables: &Variables,
) -> Result<(), AuthError> {
    let rendered = auth
        .mailer()
        .templates
        .render(kind, variables)
        .map_err(|error| AuthError::failed(failure(kind), anyhow::anyhow!("{error}")))?;
    Ok(outbox::insert_decoy(tx, kind.key(), rendered.subject.as_str(), &rendered.html).await?)
}

/// Promises a notification, if it is wanted. Never fails the request: a template that can not be rendered is logged.
///
/// # Errors
/// Only what the database says.
pub(crate) async fn notify(
    auth: &Auth,
    tx: &Tx,
    kind: MailKind,
    to: &str,
    variables: &Variables,
) -> Result<(), AuthError> {
    if !auth.settings().notifies(kind) || Address::parse(to).is_err() {
        return Ok(());
    }
    match enqueue(auth, tx, kind, to, variables).await {
        Err(AuthError::Internal { source, .. }) => {
            tracing::error!(error = format!("{source:#}"), kind = kind.key(), "Notification not written");
            Ok(())
        }
        other => other,
    }
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
    fn waits_grow_and_end() {
        assert_eq!(wait_after(1), Duration::from_secs(5));
        assert_eq!(wait_after(2), Duration::from_secs(10));
        assert_eq!(wait_after(i32::MAX), LONGEST_WAIT);
        assert_eq!(wait_after(i32::MIN), Duration::from_secs(5));
    }

    #[test]
    fn labels_do_not_make_another_address() {
        assert_eq!(without_label("ada+x+y@example.com"), "ada@example.com");
        assert_eq!(without_label("ada@example.com"), "ada@example.com");
    }

    #[test]
    fn invented_addresses() {
        for (address, invented) in [
            ("ada@example.com", true),
            ("ada@mail.example.org", true),
            ("ada@host", true),
            ("ada@x.test", true),
            ("abc@gmail.com", true),
            ("ada.lovelace@gmail.com", false),
            ("ada@portico.dev", false),
        ] {
            assert_eq!(is_invented(&EmailAddress::parse(address).unwrap()), invented, "{address}");
        }
    }
}
