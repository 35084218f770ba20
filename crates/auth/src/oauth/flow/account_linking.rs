//! Account linking: decides which account a person from a provider is signed in to.
//!
//! An address counts only when it is verified. A person who proves an address takes over an account
//! that has it unverified, and nothing that was stored there before is kept.

use std::collections::BTreeSet;

use portico_database::sqlstate;
use portico_mail::{MailKind, Variables};

use crate::Auth;
use crate::account::unconfirmed_email;
use crate::error::{AuthError, ContractError, SqlResultExt as _};
use crate::hooks;
use crate::messages::mailer;
use crate::model::ids::{EmailAddress, UserId};
use crate::model::{Identity, JsonObject, User};
use crate::oauth::provider::profile::{Profile, ProviderEmail};
use crate::one_time::message;
use crate::one_time::token::TokenKind;
use crate::operation::AccountOperation;
use crate::protection::audit::{self, Action, Traits};
use crate::settings::AuthSettings;
use crate::sql::users::LinkingDomain;
use crate::sql::users::NewUser;
use crate::sql::{Tx, identities, users};

/// The linking domain of providers that are not configured otherwise.
const DEFAULT_DOMAIN: &str = "default";

/// An identity at a provider, and the conditions of the sign-in with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExternalIdentity<'a> {
    /// The name of the provider.
    pub(crate) provider: &'a str,
    /// The profile there.
    pub(crate) profile: &'a Profile,
    /// An account without an email address may be created.
    pub(crate) email_optional: bool,
    /// The hash of the invitation that the sign-in accepts.
    pub(crate) invite: Option<&'a str>,
}

/// The outcome of a sign-in at a provider.
#[derive(Debug)]
pub(crate) enum SignInOutcome {
    /// A session may be issued. The user has identities and factors.
    SignedIn(Box<User>),
    /// The sign-in is rejected, but the transaction is to be committed: the account awaits the
    /// confirmation of an address.
    AwaitsConfirmation {
        /// The rejection, as the caller sees it.
        error: AuthError,
        /// The address that the confirmation was sent to.
        email: String,
    },
}

/// The number of attempts of a sign-in when another request creates the same account at the same
/// moment: the next attempt finds it.
pub(crate) const MAX_RACE_ATTEMPTS: usize = 4;

/// Returns true if another request created the same row first.
pub(crate) fn is_lost_race(error: &AuthError) -> bool {
    match error {
        // The application's own violation, which another attempt would repeat
        AuthError::Sql { error: ContractError::HookFunctionFailed { .. }, .. } => false,
        AuthError::Sql { source, .. } => source.code() == Some(&sqlstate::UNIQUE_VIOLATION),
        _ => false,
    }
}

/// Looks up the mail domain of an unverified address, which may be sent an email. To be called
/// before the transaction, in which the email is rejected if the domain accepts none.
pub(crate) async fn look_up_domain(auth: &Auth, profile: &Profile) {
    let Some(email) = profile.primary_email().filter(|email| !email.verified) else { return };
    if let Ok(address) = EmailAddress::parse(&email.address) {
        auth.recipients().look_up_domain(&address).await;
    }
}

/// Finds or creates the account, in the caller's transaction.
///
/// # Errors
/// When the sign-in is not permitted; the transaction must then be rolled back.
pub(crate) async fn sign_in(
    op: AccountOperation<'_>,
    external: &ExternalIdentity<'_>,
) -> Result<SignInOutcome, AuthError> {
    if external.profile.emails.is_empty() && !external.email_optional {
        return Err(AuthError::failed(
            ContractError::ProviderEmailMissing,
            anyhow::anyhow!("{} gave no usable address", external.provider),
        ));
    }
    if let Some(hash) = external.invite {
        return accept_invitation(op, external, hash).await;
    }
    let data = external.profile.identity_data();
    let now = op.now();
    let (user, identity) = match find_identity(op.tx, external).await? {
        Some((user, identity)) => {
            identities::set_data(op.tx, identity.id, &data, now).await?;
            merge_metadata(op, &user, &data).await?;
            (user, identity)
        }
        None => match find_owner(op, external).await? {
            Some(owner) => {
                let user = lock_user(op.tx, owner).await?;
                let subject = &external.profile.subject;
                let identity = op.insert_identity(owner, external.provider, subject, &data).await?;
                merge_metadata(op, &user, &data).await?;
                record_link(op, &user, &identity).await?;
                (user, identity)
            }
            None => create(op, external, &data).await?,
        },
    };
    confirm_and_admit(op, external, user, &identity).await
}

/// Finds the identity and locks its user.
async fn find_identity(tx: &Tx, external: &ExternalIdentity<'_>) -> Result<Option<(User, Identity)>, AuthError> {
    for _ in 0..MAX_RACE_ATTEMPTS {
        let Some(found) = identities::by_subject(tx, external.provider, &external.profile.subject).await? else {
            return Ok(None);
        };
        // It may have been unlinked, or the account deleted, while this waited for the lock
        let user = users::lock_complete(tx, found.user_id).await?;
        if let Some(user) = user
            && let Some(identity) = user.identities.iter().find(|identity| identity.id == found.id).cloned()
        {
            return Ok(Some((user, identity)));
        }
    }
    Ok(None)
}

async fn lock_user(tx: &Tx, id: UserId) -> Result<User, AuthError> {
    users::lock_complete(tx, id).await?.ok_or_else(|| AuthError::from(ContractError::UserUnknown))
}

async fn merge_metadata(op: AccountOperation<'_>, user: &User, data: &JsonObject) -> Result<(), AuthError> {
    let mut merged = user.user_metadata.clone();
    merged.extend(data.clone());
    if merged != user.user_metadata {
        users::set_user_metadata(op.tx, user.id, &merged, op.now()).await?;
    }
    Ok(())
}

pub(crate) async fn record_link(op: AccountOperation<'_>, user: &User, identity: &Identity) -> Result<(), AuthError> {
    let traits = identity_traits(identity);
    op.record_with_ip(user, Action::IdentityLinked, traits).await?;
    notify(op, user, MailKind::IdentityLinked, identity).await
}

/// Notifies the account's owner of a linked or unlinked identity, if such emails are enabled.
pub(crate) async fn notify(
    op: AccountOperation<'_>,
    user: &User,
    kind: MailKind,
    identity: &Identity,
) -> Result<(), AuthError> {
    let variables = Variables { provider: Some(identity.provider.clone()), ..mailer::variables(op.auth, user) };
    message::notify(op, user, kind, &variables).await
}

pub(crate) fn identity_traits(identity: &Identity) -> Traits {
    Traits::from_iter([
        ("identity_id".to_owned(), identity.id.to_string().into()),
        ("provider".to_owned(), identity.provider.as_str().into()),
        ("provider_id".to_owned(), identity.provider_id.as_str().into()),
    ])
}

/// Returns the linking domain of a provider.
fn domain_name<'a>(settings: &'a AuthSettings, provider: &'a str) -> &'a str {
    if provider.starts_with("sso:") {
        return provider;
    }
    settings.linking_domains.get(provider).map_or(DEFAULT_DOMAIN, String::as_str)
}

fn domain(settings: &AuthSettings, provider: &str) -> LinkingDomain {
    let name = domain_name(settings, provider);
    let mapped = &settings.linking_domains;
    if name == DEFAULT_DOMAIN {
        let except = mapped.iter().filter(|(_, domain)| *domain != DEFAULT_DOMAIN).map(|(name, _)| name.clone());
        return LinkingDomain::Default { except: except.collect() };
    }
    let mut providers: BTreeSet<String> =
        mapped.iter().filter(|(_, domain)| *domain == name).map(|(provider, _)| provider.clone()).collect();
    providers.insert(provider.to_owned());
    LinkingDomain::Named { providers: providers.into_iter().collect() }
}

/// Finds the only user who has a verified address of the profile.
async fn find_owner(op: AccountOperation<'_>, external: &ExternalIdentity<'_>) -> Result<Option<UserId>, AuthError> {
    let verified = external.profile.verified_emails();
    if verified.is_empty() {
        return Ok(None);
    }
    let domain = domain(op.auth.settings(), external.provider);
    let mut owners = users::owners_by_identity(op.tx, &verified, &op.request.aud, &domain).await?;
    if owners.is_empty() && matches!(domain, LinkingDomain::Default { .. }) {
        owners = users::owners_by_address(op.tx, &verified, &op.request.aud).await?;
    }
    match owners.as_slice() {
        [] => Ok(None),
        [owner] => Ok(Some(*owner)),
        _ => {
            let name = domain_name(op.auth.settings(), external.provider);
            Err(AuthError::failed(
                ContractError::AmbiguousAccount { linking_domain: name.to_owned() },
                anyhow::anyhow!("a person from {} matches several accounts", external.provider),
            ))
        }
    }
}

async fn create(
    op: AccountOperation<'_>,
    external: &ExternalIdentity<'_>,
    data: &JsonObject,
) -> Result<(User, Identity), AuthError> {
    if op.auth.settings().disable_signup {
        return Err(ContractError::SignUpsDisabled.into());
    }
    let now = op.now();
    let is_sso_user = domain_name(op.auth.settings(), external.provider) != DEFAULT_DOMAIN;
    let id = UserId(op.request.hooks.uuid("user"));
    let email = usable_address(op, external, id, is_sso_user).await?.unwrap_or_default();
    let app_metadata = JsonObject::from_iter([
        ("provider".to_owned(), external.provider.into()),
        ("providers".to_owned(), vec![external.provider].into()),
    ]);
    let new = NewUser {
        id,
        aud: &op.request.aud,
        email: &email,
        phone: "",
        encrypted_password: "",
        app_metadata,
        user_metadata: data.clone(),
        is_sso_user,
        is_anonymous: false,
    };
    Box::pin(hooks::before_user_created(op, &new)).await?;
    const SAVING: ContractError = ContractError::SavingUserFailed;
    users::insert(op.tx, &new, now).await.context(SAVING)?;
    users::set_role(op.tx, id, &op.auth.settings().jwt.default_role, now).await.context(SAVING)?;
    let inserted = op.insert_identity(id, external.provider, &external.profile.subject, data).await;
    let identity = inserted.context(SAVING)?;
    Ok((lock_user(op.tx, id).await?, identity))
}

/// Returns the profile's address if the account may have it now: it is verified, or addresses need
/// no confirmation, and no other account has it.
async fn usable_address(
    op: AccountOperation<'_>,
    external: &ExternalIdentity<'_>,
    user: UserId,
    is_sso_user: bool,
) -> Result<Option<String>, AuthError> {
    let counts = |email: &ProviderEmail| email.verified || op.auth.settings().email.autoconfirm;
    let Some(email) = external.profile.primary_email().filter(counts) else { return Ok(None) };
    if is_sso_user {
        return Ok(Some(email.address));
    }
    if email.verified {
        unconfirmed_email::withdraw_from_others(op.tx, &email.address, &op.request.aud, Some(user), op.now()).await?;
    }
    let is_taken = users::is_address_taken(op.tx, &email.address, &op.request.aud, Some(user)).await?;
    Ok(Some(email.address).filter(|_| !is_taken))
}

/// Checks that the user may sign in, and confirms an account that was not confirmed before.
async fn confirm_and_admit(
    op: AccountOperation<'_>,
    external: &ExternalIdentity<'_>,
    mut user: User,
    identity: &Identity,
) -> Result<SignInOutcome, AuthError> {
    let now = op.now();
    if user.is_banned(now) {
        return Err(ContractError::Banned.into());
    }
    let provider = audit::provider_trait(external.provider);
    let candidate = external.profile.primary_email();
    let without_email = external.email_optional && candidate.is_none();
    let mut awaited = None;
    if user.is_email_confirmed() || without_email {
        op.record(&user, Action::Login, provider).await?;
    } else {
        // Without confirmations, an unverified address of the profile is enough
        let has_email =
            |address: &str| external.profile.emails.iter().any(|email| email.address.to_lowercase() == address);
        let mut proves = match op.auth.settings().email.autoconfirm {
            true => has_email(&user.email),
            false => external.profile.verified_emails().contains(&user.email),
        };
        if !user.email.is_empty() {
            if !user.is_phone_confirmed() {
                // The person who signed up has not proved the address
                identities::keep_only(op.tx, user.id, identity.id).await?;
                users::start_over(op.tx, user.id, &external.profile.identity_data(), now).await?;
                unconfirmed_email::remove_sessions_and_factors(op.tx, user.id).await?;
            }
            if !proves {
                unconfirmed_email::withdraw(op.tx, &user, now).await?;
                user.email.clear();
            }
        }
        if user.email.is_empty()
            && let Some(address) = usable_address(op, external, user.id, user.is_sso_user).await?
        {
            users::adopt_email(op.tx, user.id, &address, now).await?;
            user.email = address;
            proves = true;
        }
        if proves {
            users::confirm_email(op.tx, user.id, now).await?;
            op.record(&user, Action::UserSignedUp, provider).await?;
        } else if !external.profile.verified_emails().is_empty() {
            // Another account has the address; the identity is valid all the same
            op.record(&user, Action::Login, provider).await?;
        } else {
            awaited = handle_unverified_email(op, external, &user).await?;
        }
    }
    users::refresh_providers(op.tx, user.id, now).await?;
    match awaited {
        Some(email) => {
            let error =
                ContractError::ProviderEmailAwaitsConfirmation { provider: external.provider.to_owned() }.into();
            Ok(SignInOutcome::AwaitsConfirmation { error, email })
        }
        None => Ok(SignInOutcome::SignedIn(Box::new(lock_user(op.tx, user.id).await?))),
    }
}

/// Stores an address that the provider has not verified as a pending change. `Ok(Some)`: the
/// sign-in is rejected, and the account awaits the confirmation of this address.
async fn handle_unverified_email(
    op: AccountOperation<'_>,
    external: &ExternalIdentity<'_>,
    user: &User,
) -> Result<Option<String>, AuthError> {
    let settings = &op.auth.settings().email;
    let address = match external.profile.primary_email() {
        // Without confirmations, another account has this address
        Some(email) if !settings.autoconfirm => {
            let (address, aud) = (email.address, &op.request.aud);
            let is_proved = !user.is_sso_user
                && unconfirmed_email::is_proved_elsewhere(op.auth, op.tx, &address, aud, Some(user.id)).await?;
            Some(address).filter(|_| !is_proved)
        }
        _ => None,
    };
    let Some(address) = address else {
        if settings.allow_unverified_sign_ins {
            return Ok(None);
        }
        // Such an account could never be confirmed, so nothing of it is kept
        return Err(ContractError::ProviderEmailUnverified { provider: external.provider.to_owned() }.into());
    };
    // A person who may sign in may be changing to an address of their own choice
    let waits_for_another = !user.email_change.is_empty() && user.email_change != address;
    if !(settings.allow_unverified_sign_ins && waits_for_another) {
        let fresh = lock_user(op.tx, user.id).await?;
        match unconfirmed_email::await_proof(op, &fresh, &address).await {
            Ok(()) => {}
            // A confirmation has been sent already
            Err(AuthError::TooMany { .. })
                if fresh.email_change == address && TokenKind::EmailChangeNew.sent_at(&fresh).is_some() => {}
            Err(error) => return Err(error),
        }
    }
    if settings.allow_unverified_sign_ins {
        return Ok(None);
    }
    Ok(Some(address))
}

async fn accept_invitation(
    op: AccountOperation<'_>,
    external: &ExternalIdentity<'_>,
    hash: &str,
) -> Result<SignInOutcome, AuthError> {
    let now = op.now();
    let not_found = || AuthError::from(ContractError::InvitationUnknown);
    let invited = users::lock_by_token(op.tx, hash, &[TokenKind::Confirmation.as_str()])
        .await?
        .filter(|user| crate::one_time::token::hash_matches(&user.confirmation_token, hash))
        .ok_or_else(not_found)?;
    let is_invited = external.profile.emails.iter().any(|email| email.address.to_lowercase() == invited.email);
    if !is_invited {
        return Err(ContractError::InvitationOfAnotherEmail.into());
    }
    if invited.is_banned(now) {
        return Err(ContractError::Banned.into());
    }
    let data = external.profile.identity_data();
    let identity = match identities::by_subject(op.tx, external.provider, &external.profile.subject).await? {
        Some(identity) if identity.user_id == invited.id => identity,
        Some(_) => {
            return Err(ContractError::IdentityLinkedElsewhere.into());
        }
        None => op.insert_identity(invited.id, external.provider, &external.profile.subject, &data).await?,
    };
    identities::keep_only(op.tx, invited.id, identity.id).await?;
    users::start_over(op.tx, invited.id, &data, now).await?;
    users::confirm_email(op.tx, invited.id, now).await?;
    users::refresh_providers(op.tx, invited.id, now).await?;
    let provider = audit::provider_trait(external.provider);
    op.record(&invited, Action::InviteAccepted, provider).await?;
    Ok(SignInOutcome::SignedIn(Box::new(lock_user(op.tx, invited.id).await?)))
}
