//! Whose account a person from a provider gets (auth-core 10.3 to 10.5).
//!
//! The rule behind the rules: an address counts only when somebody vouched for it. Whoever proves an address takes over an
//! account that merely claims it, and nothing that was put there before stays.

use std::collections::BTreeSet;

use portico_database::sqlstate;
use portico_mail::{MailKind, Variables};

use crate::Auth;
use crate::account::unconfirmed_email;
use crate::error::{AuthError, ContractError, SqlResultExt as _};
use crate::http::extract::RequestInfo;
use crate::messages::mailer;
use crate::model::ids::{EmailAddress, UserId};
use crate::model::{Identity, JsonObject, User};
use crate::oauth::provider::profile::{Profile, ProviderEmail};
use crate::one_time::token::Kind;
use crate::protection::audit::{self, Action, Traits};
use crate::sql::accounts::LinkingDomain;
use crate::sql::users::NewUser;
use crate::sql::{Tx, accounts, identities, sessions, users};

/// The domain that most providers share.
const DEFAULT_DOMAIN: &str = "default";

/// A person as a provider vouches for them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim<'a> {
    /// Name of the provider.
    pub(crate) provider: &'a str,
    /// What it said.
    pub(crate) profile: &'a Profile,
    /// An account without e-mail address is fine.
    pub(crate) email_optional: bool,
    /// Hash of the invitation that this accepts.
    pub(crate) invite: Option<&'a str>,
}

/// What a sign-in at a provider led to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The person may have a session. The user has identities and factors.
    SignedIn(Box<User>),
    /// They may not, but what was written is to be kept: an account that waits for a confirmation.
    Kept(AuthError),
}

/// How often a decision is made again when somebody else made the same account at the same moment: the next time it is
/// there, and the rules find it.
pub(crate) const ATTEMPTS: usize = 4;

/// Whether an error says that somebody else was faster.
pub(crate) fn is_race(error: &AuthError) -> bool {
    matches!(error, AuthError::Sql { source, .. } if source.code() == Some(&sqlstate::UNIQUE_VIOLATION))
}

/// Asks name servers about the address that may get a mail because nobody vouches for it. Before the transaction that decides:
/// the mail is refused there if the domain takes none.
pub(crate) async fn look_up_domain(auth: &Auth, profile: &Profile) {
    let Some(email) = profile.candidate().filter(|email| !email.verified) else { return };
    if let Ok(address) = EmailAddress::parse(&email.address) {
        mailer::look_up_domain(auth, &address).await;
    }
}

/// Finds or makes the account. Part of the caller's transaction.
///
/// # Errors
/// As auth-core 10.5; then nothing is to be kept.
pub(crate) async fn sign_in(
    auth: &Auth,
    tx: &Tx,
    request: &RequestInfo,
    claim: &Claim<'_>,
) -> Result<Outcome, AuthError> {
    if claim.profile.emails.is_empty() && !claim.email_optional {
        return Err(AuthError::failed(
            ContractError::ProviderEmailMissing,
            anyhow::anyhow!("{} gave no usable address", claim.provider),
        ));
    }
    if let Some(hash) = claim.invite {
        return accept_invitation(auth, tx, request, claim, hash).await;
    }
    let data = claim.profile.identity_data();
    let now = request.now;
    let (user, identity) = match known(tx, claim).await? {
        Some((user, identity)) => {
            identities::set_data(tx, identity.id, &data, now).await?;
            merge_metadata(tx, &user, &data, request).await?;
            (user, identity)
        }
        None => match owner(auth, tx, request, claim).await? {
            Some(owner) => {
                let user = locked(tx, owner).await?;
                let identity =
                    identities::insert(tx, owner, claim.provider, &claim.profile.subject, &data, now).await?;
                merge_metadata(tx, &user, &data, request).await?;
                record_link(auth, tx, &user, &identity, request).await?;
                (user, identity)
            }
            None => create(auth, tx, request, claim, &data).await?,
        },
    };
    admit(auth, tx, request, claim, user, &identity, &data).await
}

/// Whose identity this is already. The user is locked, and the identity is still theirs.
async fn known(tx: &Tx, claim: &Claim<'_>) -> Result<Option<(User, Identity)>, AuthError> {
    for _ in 0..ATTEMPTS {
        let Some(found) = accounts::identity(tx, claim.provider, &claim.profile.subject).await? else {
            return Ok(None);
        };
        // It may have been unlinked, or the whole account removed, while the lock was waited for
        let user = users::lock_complete(tx, found.user_id).await?;
        if let Some(user) = user
            && let Some(identity) = user.identities.iter().find(|identity| identity.id == found.id).cloned()
        {
            return Ok(Some((user, identity)));
        }
    }
    Ok(None)
}

async fn locked(tx: &Tx, id: UserId) -> Result<User, AuthError> {
    users::lock_complete(tx, id).await?.ok_or_else(|| AuthError::from(ContractError::UserUnknown))
}

async fn merge_metadata(tx: &Tx, user: &User, data: &JsonObject, request: &RequestInfo) -> Result<(), AuthError> {
    let mut merged = user.user_metadata.clone();
    merged.extend(data.clone());
    if merged != user.user_metadata {
        users::set_user_metadata(tx, user.id, &merged, request.now).await?;
    }
    Ok(())
}

pub(crate) async fn record_link(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    identity: &Identity,
    request: &RequestInfo,
) -> Result<(), AuthError> {
    let traits = identity_traits(identity);
    audit::record(auth, tx, user, Action::IdentityLinked, traits, request.ip, request.now).await?;
    notify(auth, tx, user, MailKind::IdentityLinked, identity).await
}

/// Tells the owner of the account that its ways in changed, if such mails are wanted.
pub(crate) async fn notify(
    auth: &Auth,
    tx: &Tx,
    user: &User,
    kind: MailKind,
    identity: &Identity,
) -> Result<(), AuthError> {
    let variables = Variables { provider: Some(identity.provider.clone()), ..mailer::variables(auth, user) };
    mailer::notify(auth, tx, kind, &user.email, &variables).await
}

pub(crate) fn identity_traits(identity: &Identity) -> Traits {
    Traits::from_iter([
        ("identity_id".to_owned(), identity.id.to_string().into()),
        ("provider".to_owned(), identity.provider.as_str().into()),
        ("provider_id".to_owned(), identity.provider_id.as_str().into()),
    ])
}

/// The linking domain of a provider.
fn domain_name<'a>(auth: &'a Auth, provider: &'a str) -> &'a str {
    if provider.starts_with("sso:") {
        return provider;
    }
    auth.settings().linking_domains.get(provider).map_or(DEFAULT_DOMAIN, String::as_str)
}

fn domain(auth: &Auth, provider: &str) -> LinkingDomain {
    let name = domain_name(auth, provider);
    let mapped = &auth.settings().linking_domains;
    if name == DEFAULT_DOMAIN {
        let except = mapped.iter().filter(|(_, domain)| *domain != DEFAULT_DOMAIN).map(|(name, _)| name.clone());
        return LinkingDomain::Default { except: except.collect() };
    }
    let mut providers: BTreeSet<String> =
        mapped.iter().filter(|(_, domain)| *domain == name).map(|(provider, _)| provider.clone()).collect();
    providers.insert(provider.to_owned());
    LinkingDomain::Named { providers: providers.into_iter().collect() }
}

/// The one user who has a verified address of the profile. `None`: nobody.
async fn owner(auth: &Auth, tx: &Tx, request: &RequestInfo, claim: &Claim<'_>) -> Result<Option<UserId>, AuthError> {
    let verified = claim.profile.verified();
    if verified.is_empty() {
        return Ok(None);
    }
    let domain = domain(auth, claim.provider);
    let mut owners = accounts::owners_by_identity(tx, &verified, &request.aud, &domain).await?;
    if owners.is_empty() && matches!(domain, LinkingDomain::Default { .. }) {
        owners = accounts::owners_by_address(tx, &verified, &request.aud).await?;
    }
    match owners.as_slice() {
        [] => Ok(None),
        [owner] => Ok(Some(*owner)),
        _ => {
            let name = domain_name(auth, claim.provider);
            Err(AuthError::failed(
                ContractError::AmbiguousAccount { linking_domain: name.to_owned() },
                anyhow::anyhow!("a person from {} matches several accounts", claim.provider),
            ))
        }
    }
}

async fn create(
    auth: &Auth,
    tx: &Tx,
    request: &RequestInfo,
    claim: &Claim<'_>,
    data: &JsonObject,
) -> Result<(User, Identity), AuthError> {
    if auth.settings().disable_signup {
        return Err(ContractError::SignUpsDisabled.into());
    }
    let now = request.now;
    let is_sso_user = domain_name(auth, claim.provider) != DEFAULT_DOMAIN;
    let id = UserId::random();
    let email = usable_address(auth, tx, request, claim, id, is_sso_user).await?.unwrap_or_default();
    let app_metadata = JsonObject::from_iter([
        ("provider".to_owned(), claim.provider.into()),
        ("providers".to_owned(), vec![claim.provider].into()),
    ]);
    let new = NewUser {
        id,
        aud: &request.aud,
        email: &email,
        phone: "",
        encrypted_password: "",
        app_metadata,
        user_metadata: data.clone(),
        is_sso_user,
        is_anonymous: false,
    };
    const SAVING: ContractError = ContractError::SavingUserFailed;
    users::insert(tx, &new, now).await.context(SAVING)?;
    users::set_role(tx, id, &auth.settings().jwt.default_role, now).await.context(SAVING)?;
    let identity =
        identities::insert(tx, id, claim.provider, &claim.profile.subject, data, now).await.context(SAVING)?;
    Ok((locked(tx, id).await?, identity))
}

/// Returns the profile's address if it may be the account's own now: the provider vouches for it, or
/// addresses need no confirmation, and no other account has it.
async fn usable_address(
    auth: &Auth,
    tx: &Tx,
    request: &RequestInfo,
    claim: &Claim<'_>,
    user: UserId,
    is_sso_user: bool,
) -> Result<Option<String>, AuthError> {
    let counts = |email: &ProviderEmail| email.verified || auth.settings().email.autoconfirm;
    let Some(email) = claim.profile.candidate().filter(counts) else { return Ok(None) };
    if is_sso_user {
        return Ok(Some(email.address));
    }
    if email.verified {
        unconfirmed_email::withdraw_from_others(tx, &email.address, &request.aud, Some(user), request.now).await?;
    }
    let is_taken = accounts::is_address_taken(tx, &email.address, &request.aud, Some(user)).await?;
    Ok(Some(email.address).filter(|_| !is_taken))
}

/// The checks that everybody passes, and what happens to accounts that nobody confirmed yet.
async fn admit(
    auth: &Auth,
    tx: &Tx,
    request: &RequestInfo,
    claim: &Claim<'_>,
    mut user: User,
    identity: &Identity,
    data: &JsonObject,
) -> Result<Outcome, AuthError> {
    let now = request.now;
    if user.is_banned(now) {
        return Err(ContractError::Banned.into());
    }
    let provider = audit::provider_trait(claim.provider);
    let candidate = claim.profile.candidate();
    let without_email = claim.email_optional && candidate.is_none();
    let mut kept = None;
    if user.is_email_confirmed() || without_email {
        audit::record(auth, tx, &user, Action::Login, provider, None, now).await?;
    } else {
        // With confirmations off, the word of a person about their own account is enough
        let is_named = |address: &str| claim.profile.emails.iter().any(|email| email.address.to_lowercase() == address);
        let mut proves = match auth.settings().email.autoconfirm {
            true => is_named(&user.email),
            false => claim.profile.verified().contains(&user.email),
        };
        if !user.email.is_empty() {
            if !user.is_phone_confirmed() {
                // The person who registered before has not proved the address
                accounts::keep_only_identity(tx, user.id, identity.id).await?;
                accounts::start_over(tx, user.id, data, now).await?;
                sessions::delete_all(tx, user.id).await?;
            }
            if !proves {
                unconfirmed_email::withdraw(tx, &user, now).await?;
                user.email.clear();
            }
        }
        if user.email.is_empty()
            && let Some(address) = usable_address(auth, tx, request, claim, user.id, user.is_sso_user).await?
        {
            accounts::adopt_email(tx, user.id, &address, now).await?;
            user.email = address;
            proves = true;
        }
        if proves {
            users::confirm_email(tx, user.id, now).await?;
            audit::record(auth, tx, &user, Action::UserSignedUp, provider, None, now).await?;
        } else if !claim.profile.verified().is_empty() {
            // Somebody else has the address; the identity is this person's all the same
            audit::record(auth, tx, &user, Action::Login, provider, None, now).await?;
        } else {
            kept = unverified(auth, tx, request, claim, &user).await?;
        }
    }
    users::refresh_providers(tx, user.id, now).await?;
    match kept {
        Some(error) => Ok(Outcome::Kept(error)),
        None => Ok(Outcome::SignedIn(Box::new(locked(tx, user.id).await?))),
    }
}

/// The provider does not vouch for the address, which waits as a pending change. `Ok(Some)`: refused,
/// and the account waits for the confirmation.
async fn unverified(
    auth: &Auth,
    tx: &Tx,
    request: &RequestInfo,
    claim: &Claim<'_>,
    user: &User,
) -> Result<Option<AuthError>, AuthError> {
    let settings = &auth.settings().email;
    let address = match claim.profile.candidate() {
        // Where addresses need no confirmation, this one is another account's
        Some(email) if !settings.autoconfirm => {
            let (address, aud) = (email.address, &request.aud);
            let is_proved = !user.is_sso_user
                && unconfirmed_email::is_proved_elsewhere(auth, tx, &address, aud, Some(user.id)).await?;
            Some(address).filter(|_| !is_proved)
        }
        _ => None,
    };
    let Some(address) = address else {
        if settings.allow_unverified_sign_ins {
            return Ok(None);
        }
        // Nothing would ever confirm such an account, so nothing of it stays
        return Err(ContractError::ProviderEmailUnverified { provider: claim.provider.to_owned() }.into());
    };
    // A person who is let in may be waiting for an address that they chose themselves
    let waits_for_another = !user.email_change.is_empty() && user.email_change != address;
    if !(settings.allow_unverified_sign_ins && waits_for_another) {
        let fresh = locked(tx, user.id).await?;
        match unconfirmed_email::await_proof(auth, tx, &fresh, &address, request).await {
            Ok(()) => {}
            // A confirmation is on its way already
            Err(AuthError::TooMany { .. })
                if fresh.email_change == address && Kind::EmailChangeNew.sent_at(&fresh).is_some() => {}
            Err(error) => return Err(error),
        }
    }
    if settings.allow_unverified_sign_ins {
        return Ok(None);
    }
    Ok(Some(ContractError::ProviderEmailAwaitsConfirmation { provider: claim.provider.to_owned() }.into()))
}

async fn accept_invitation(
    auth: &Auth,
    tx: &Tx,
    request: &RequestInfo,
    claim: &Claim<'_>,
    hash: &str,
) -> Result<Outcome, AuthError> {
    let now = request.now;
    let not_found = || AuthError::from(ContractError::InvitationUnknown);
    let invited = users::lock_by_token(tx, hash, &[Kind::Confirmation.as_str()])
        .await?
        .filter(|user| crate::one_time::token::hash_matches(&user.confirmation_token, hash))
        .ok_or_else(not_found)?;
    let is_invited = claim.profile.emails.iter().any(|email| email.address.to_lowercase() == invited.email);
    if !is_invited {
        return Err(ContractError::InvitationOfAnotherEmail.into());
    }
    if invited.is_banned(now) {
        return Err(ContractError::Banned.into());
    }
    let data = claim.profile.identity_data();
    let identity = match accounts::identity(tx, claim.provider, &claim.profile.subject).await? {
        Some(identity) if identity.user_id == invited.id => identity,
        Some(_) => {
            return Err(ContractError::IdentityLinkedElsewhere.into());
        }
        None => identities::insert(tx, invited.id, claim.provider, &claim.profile.subject, &data, now).await?,
    };
    accounts::keep_only_identity(tx, invited.id, identity.id).await?;
    accounts::start_over(tx, invited.id, &data, now).await?;
    users::confirm_email(tx, invited.id, now).await?;
    users::refresh_providers(tx, invited.id, now).await?;
    let provider = audit::provider_trait(claim.provider);
    audit::record(auth, tx, &invited, Action::InviteAccepted, provider, None, now).await?;
    Ok(Outcome::SignedIn(Box::new(locked(tx, invited.id).await?)))
}
