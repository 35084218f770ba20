//! `GET` and `POST /verify` (auth-core 6.5, 6.6): a code or a link proves that a message was received.
//!
//! The user's row is locked before the token is compared, so a token works once even when it is sent twice at the same time.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use crate::Auth;
use crate::account::redeem::{Outcome, redeem};
use crate::error::{AuthError, ContractError};
use crate::http::extract::{Json, Query, RequestInfo};
use crate::http::landing::{self, Fields, error_fields};
use crate::model::User;
use crate::model::ids::{EmailAddress, PhoneNumber};
use crate::one_time::token::{self, Kind};
use crate::one_time::{pending_phone_change, text_code};
use crate::protection::attempts;
use crate::protection::audit::{self, FailedLogin};
use crate::protection::limits::Limiter;
use crate::session::{self, Method, TokenResponse};
use crate::sql::flow_state::{self, method};
use crate::sql::{Tx, one_time_tokens, users};

const FIRST_OF_TWO: &str = "Confirmation link accepted. Please proceed to confirm link sent to the other email";

/// What a request wants to verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VerifyType {
    SignUp,
    Invite,
    MagicLink,
    Recovery,
    EmailChange,
    /// Whatever waits: a confirmation, or a sign-in or recovery link.
    Email,
    Sms,
    PhoneChange,
}

impl VerifyType {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "signup" => Self::SignUp,
            "invite" => Self::Invite,
            "magiclink" => Self::MagicLink,
            "recovery" => Self::Recovery,
            "email_change" => Self::EmailChange,
            "email" => Self::Email,
            "sms" => Self::Sms,
            "phone_change" => Self::PhoneChange,
            _ => return None,
        })
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::SignUp => "signup",
            Self::Invite => "invite",
            Self::MagicLink => "magiclink",
            Self::Recovery => "recovery",
            Self::EmailChange => "email_change",
            Self::Email => "email",
            Self::Sms => "sms",
            Self::PhoneChange => "phone_change",
        }
    }

    fn is_by_phone(self) -> bool {
        matches!(self, Self::Sms | Self::PhoneChange)
    }

    /// The pools that a token of this type may come from, in the order in which they are tried.
    fn kinds(self) -> &'static [Kind] {
        match self {
            Self::SignUp => &[Kind::Confirmation, Kind::EmailChangeNew],
            Self::Invite | Self::Sms => &[Kind::Confirmation],
            Self::MagicLink | Self::Recovery => &[Kind::Recovery],
            Self::EmailChange => &[Kind::EmailChangeNew, Kind::EmailChangeCurrent],
            Self::Email => &[Kind::Confirmation, Kind::Recovery, Kind::EmailChangeNew],
            Self::PhoneChange => &[Kind::PhoneChange],
        }
    }

    /// Returns whether a token of `kind` may be used under this type for `user`. A pending address is
    /// confirmed as a sign-up where the account has none: it came from a provider.
    fn admits(self, kind: Kind, user: &User) -> bool {
        self == Self::EmailChange || kind != Kind::EmailChangeNew || user.email.is_empty()
    }
}

/// The body of `POST /verify`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Verify {
    r#type: String,
    token: String,
    token_hash: String,
    email: String,
    phone: String,
    redirect_to: String,
}

/// A token that was found, with the locked user.
pub(crate) struct Found {
    pub(crate) user: User,
    pub(crate) kind: Kind,
}

/// `POST /verify`
pub async fn post(
    State(auth): State<Auth>,
    request: RequestInfo,
    Json(body): Json<Verify>,
) -> Result<Response, AuthError> {
    auth.limits().check(Limiter::Verify, &request)?;
    if body.r#type.is_empty() {
        return Err(ContractError::VerifyTypeMissing.into());
    }
    if body.token.is_empty() == body.token_hash.is_empty() {
        return Err(ContractError::VerifyNeedsOneToken.into());
    }
    let verify_type = VerifyType::parse(&body.r#type);
    if !body.token.is_empty() {
        return verify_typed(&auth, verify_type, &body, &request).await;
    }
    if !(body.email.is_empty() && body.phone.is_empty() && body.redirect_to.is_empty()) {
        return Err(ContractError::VerifyHashStandsAlone.into());
    }
    let verify_type =
        verify_type.filter(|verify_type| !verify_type.is_by_phone()).ok_or(ContractError::VerifyTypeInvalid)?;
    let tx = Tx::begin(auth.database()).await?;
    let found = find_by_hash(&auth, &tx, verify_type, &body.token_hash, &request).await?;
    complete(&auth, tx, found, verify_type, &request).await
}

/// Redeems a token that was found, and signs the person in.
async fn complete(
    auth: &Auth,
    tx: Tx,
    found: Found,
    verify_type: VerifyType,
    request: &RequestInfo,
) -> Result<Response, AuthError> {
    match redeem(auth, &tx, found, verify_type, request).await? {
        Outcome::Verified(user) => {
            let tokens = session::issue(auth, &tx, &user, Method::Otp, request).await?;
            tx.commit().await?;
            Ok(tokens.into_response())
        }
        Outcome::FirstOfTwo => {
            tx.commit().await?;
            Ok(axum::Json(json!({"code": "200", "msg": FIRST_OF_TWO})).into_response())
        }
    }
}

/// Verifies a code that was typed for an address or number. Counted: unlike a link's token it can be guessed.
async fn verify_typed(
    auth: &Auth,
    verify_type: Option<VerifyType>,
    body: &Verify,
    request: &RequestInfo,
) -> Result<Response, AuthError> {
    if body.email.is_empty() == body.phone.is_empty() {
        return Err(ContractError::VerifyNeedsOneContact.into());
    }
    // Wire contract: an unknown type with an address is an expired code (auth-core 27, 25)
    if body.phone.is_empty() {
        let email =
            EmailAddress::parse(&body.email).map_err(|_| AuthError::from(ContractError::VerifyEmailMalformed))?;
        let verify_type = verify_type.filter(|kind| !kind.is_by_phone()).ok_or(ContractError::CodeExpired)?;
        let attempt = async {
            let tx = Tx::begin(auth.database()).await?;
            let found = find_by_code(auth, &tx, verify_type, &email, &body.token, request).await?;
            complete(auth, tx, found, verify_type, request).await
        };
        let verified = attempts::code(auth, email.as_str(), request, attempt).await;
        if let Err(error) = &verified {
            record_failure(auth, Contact::Email(&email), error, request).await;
        }
        verified
    } else {
        let phone = PhoneNumber::parse(&body.phone)?;
        let verify_type = verify_type.filter(|kind| kind.is_by_phone()).ok_or(ContractError::CodeExpired)?;
        let attempt = async {
            // Before the transaction that redeems the code: the gateway may be slow
            let verdict = ask_gateway(auth, verify_type, &phone, &body.token, request).await?;
            let tx = Tx::begin(auth.database()).await?;
            let (user, kind) = lock_by_phone(auth, &tx, verify_type, &phone, &body.token, request).await?;
            // Read now: the gateway may have taken long
            let (code, now) = (&body.token, auth.now());
            if !text_code::is_right_code(auth, &user, kind, &phone, code, verdict.as_ref(), now) {
                return Err(ContractError::CodeExpired.into());
            }
            not_banned(&user, request)?;
            complete(auth, tx, Found { user, kind }, verify_type, request).await
        };
        let verified = attempts::code(auth, phone.as_str(), request, attempt).await;
        if let Err(error) = &verified {
            record_failure(auth, Contact::Phone(&phone), error, request).await;
        }
        verified
    }
}

/// An address or number that a code was typed for.
enum Contact<'a> {
    Email(&'a EmailAddress),
    Phone(&'a PhoneNumber),
}

/// Writes down that a code was refused. The account is looked up again: the transaction that refused the code is gone.
async fn record_failure(auth: &Auth, contact: Contact<'_>, error: &AuthError, request: &RequestInfo) {
    // Where a limit refused it, nothing was compared
    if !error.status().is_client_error() || error.status() == StatusCode::TOO_MANY_REQUESTS {
        return;
    }
    let provider = if matches!(contact, Contact::Email(_)) { "email" } else { "phone" };
    let user = async {
        let client = auth.database().auth().await?;
        let user = match contact {
            Contact::Email(email) => users::by_email(&client, email, &request.aud).await?,
            Contact::Phone(phone) => users::by_phone(&client, phone, &request.aud).await?,
        };
        Ok::<_, AuthError>(user)
    };
    // Where it cannot be looked up, the entry does not name it
    let user = user.await.unwrap_or_default();
    audit::record_failed_login(auth, &FailedLogin { user: user.as_ref(), provider, error }, request).await;
}

/// `GET /verify`: the link of a mail. Everything but a missing parameter ends in a redirect.
pub async fn get(State(auth): State<Auth>, request: RequestInfo, query: Query) -> Result<Response, AuthError> {
    auth.limits().check(Limiter::Verify, &request)?;
    let type_text = query.get("type").ok_or(ContractError::VerifyTypeMissing)?;
    let hash = query.get("token").or_else(|| query.get("token_hash")).ok_or(ContractError::VerifyLinkNeedsToken)?;
    let is_pkce = token::is_pkce(hash);
    let target = &request.redirect_to;
    let location = match follow_link(&auth, &request, type_text, hash, is_pkce).await {
        Ok(Landing::SignedIn(tokens, link_type)) => {
            let mut fields = tokens.fragment();
            fields.push(("type", link_type.to_owned()));
            landing::with_fragment(target, fields)
        }
        Ok(Landing::Code(code)) => landing::with_query(target, &vec![("code", code)]),
        Ok(Landing::FirstOfTwo) => {
            let message = || ("message", FIRST_OF_TWO.to_owned());
            let base = if is_pkce { landing::with_query(target, &vec![message()]) } else { target.clone() };
            landing::with_fragment(&base, vec![message(), ("sb", String::new())])
        }
        Err(error) => {
            if error.status().is_server_error() {
                tracing::error!(error = format!("{:#}", anyhow::Error::new(error)), "A link could not be followed");
                let general = AuthError::internal(anyhow::anyhow!("logged above"));
                return Ok(landing::redirect(StatusCode::SEE_OTHER, &error_location(target, is_pkce, &general)));
            }
            error_location(target, is_pkce, &error)
        }
    };
    Ok(landing::redirect(StatusCode::SEE_OTHER, &location))
}

/// Implicit: in the fragment. With a proof key: in query and fragment.
fn error_location(target: &str, is_pkce: bool, error: &AuthError) -> String {
    let fields = error_fields(error);
    let base = if is_pkce { landing::with_query(target, &fields) } else { target.to_owned() };
    let mut fragment: Fields = fields;
    fragment.push(("sb", String::new()));
    landing::with_fragment(&base, fragment)
}

/// Where a link leads.
enum Landing {
    SignedIn(Box<TokenResponse>, &'static str),
    Code(String),
    FirstOfTwo,
}

async fn follow_link(
    auth: &Auth,
    request: &RequestInfo,
    type_text: &str,
    hash: &str,
    is_pkce: bool,
) -> Result<Landing, AuthError> {
    let verify_type =
        VerifyType::parse(type_text).filter(|kind| !kind.is_by_phone()).ok_or(ContractError::VerifyTypeInvalid)?;
    let tx = Tx::begin(auth.database()).await?;
    let found = find_by_hash(auth, &tx, verify_type, hash, request).await?;
    let kind = found.kind;
    let user = match redeem(auth, &tx, found, verify_type, request).await? {
        Outcome::Verified(user) => user,
        Outcome::FirstOfTwo => {
            tx.commit().await?;
            return Ok(Landing::FirstOfTwo);
        }
    };
    if !is_pkce {
        let tokens = session::issue(auth, &tx, &user, Method::Otp, request).await?;
        tx.commit().await?;
        let link_type = match (verify_type, kind) {
            (VerifyType::Email, Kind::Confirmation | Kind::EmailChangeNew) => "signup",
            (VerifyType::Email, _) => "magiclink",
            _ => verify_type.as_str(),
        };
        return Ok(Landing::SignedIn(Box::new(tokens), link_type));
    }
    let code = issue_code(&tx, &user, verify_type, kind, request).await?;
    tx.commit().await?;
    Ok(Landing::Code(code))
}

/// The code that the app exchanges: of the newest flow that the user began this way.
async fn issue_code(
    tx: &Tx,
    user: &User,
    verify_type: VerifyType,
    kind: Kind,
    request: &RequestInfo,
) -> Result<String, AuthError> {
    // A recovery token may have been sent to sign in, and the link's type may be that of a template of the project's own
    let methods: &[&str] = match (verify_type, kind) {
        (VerifyType::Invite, _) => &[method::INVITE],
        (VerifyType::Recovery, _) => &[method::RECOVERY, method::MAGIC_LINK],
        (_, Kind::Recovery) => &[method::MAGIC_LINK, method::RECOVERY],
        (_, Kind::EmailChangeNew | Kind::EmailChangeCurrent) => &[method::EMAIL_CHANGE],
        _ => &[method::EMAIL_SIGNUP],
    };
    for method in methods {
        if let Some(flow) = flow_state::lock_newest(tx, user.id, method).await?
            && let Some(code) = flow.auth_code
        {
            flow_state::issue_code(tx, flow.id, request.now).await?;
            return Ok(code);
        }
    }
    Err(ContractError::FlowOfLinkNotFound.into())
}

async fn find_by_hash(
    auth: &Auth,
    tx: &Tx,
    verify_type: VerifyType,
    hash: &str,
    request: &RequestInfo,
) -> Result<Found, AuthError> {
    let kinds = verify_type.kinds();
    let labels: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
    let user = users::lock_by_token(tx, hash, &labels).await?.ok_or(ContractError::LinkExpired)?;
    let kind = kinds
        .iter()
        .copied()
        .find(|kind| token::hash_matches(kind.stored(&user), hash))
        .filter(|kind| verify_type.admits(*kind, &user))
        .filter(|kind| kind.is_fresh(&user, auth.settings().email.otp_expiry, auth.now()))
        .ok_or(ContractError::LinkExpired)?;
    not_banned(&user, request)?;
    Ok(Found { user, kind })
}

async fn find_by_code(
    auth: &Auth,
    tx: &Tx,
    verify_type: VerifyType,
    email: &EmailAddress,
    code: &str,
    request: &RequestInfo,
) -> Result<Found, AuthError> {
    let fitting = |user: &User| {
        let life = auth.settings().email.otp_expiry;
        let mut kinds = verify_type.kinds().iter().copied();
        kinds.find(|kind| {
            token::code_matches(kind.stored(user), email.as_str(), code)
                && verify_type.admits(*kind, user)
                && kind.is_fresh(user, life, auth.now())
        })
    };
    let mut found = users::lock_by_email(tx, email, &request.aud).await?.map(|user| (fitting(&user), user));
    if verify_type.kinds().contains(&Kind::EmailChangeNew) && !matches!(found, Some((Some(_), _))) {
        // Several people may want an address, even one that another one has: each has a code of their own
        let wanting = lock_by_sent_code(tx, Kind::EmailChangeNew, email.as_str(), code, request).await?;
        found = wanting.map(|user| (fitting(&user), user));
    }
    let Some((Some(kind), user)) = found else {
        return Err(ContractError::CodeExpired.into());
    };
    not_banned(&user, request)?;
    Ok(Found { user, kind })
}

/// The user for whom this code was sent to this address or number; locked.
async fn lock_by_sent_code(
    tx: &Tx,
    kind: Kind,
    address: &str,
    code: &str,
    request: &RequestInfo,
) -> Result<Option<User>, AuthError> {
    let sent = one_time_tokens::sent_to(tx, address, kind.as_str()).await?;
    let Some(hash) = sent.iter().find(|hash| token::code_matches(hash, address, code)) else {
        return Ok(None);
    };
    let user = users::lock_by_token(tx, hash, &[kind.as_str()]).await?;
    Ok(user.filter(|user| user.aud == request.aud && !user.is_sso_user))
}

/// What the gateway says about a code, where it makes the codes itself.
async fn ask_gateway(
    auth: &Auth,
    verify_type: VerifyType,
    phone: &PhoneNumber,
    code: &str,
    request: &RequestInfo,
) -> Result<Option<text_code::Verdict>, AuthError> {
    if !text_code::is_made_by_gateway(auth, phone, code, request.now) {
        return Ok(None);
    }
    let tx = Tx::begin(auth.database()).await?;
    let (user, kind) = lock_by_phone(auth, &tx, verify_type, phone, code, request).await?;
    tx.rollback().await;
    text_code::ask_gateway(auth, kind.stored(&user), phone, code, request.now).await
}

/// The account that may prove this number, locked, and the kind of token it does so by.
async fn lock_by_phone(
    auth: &Auth,
    tx: &Tx,
    verify_type: VerifyType,
    phone: &PhoneNumber,
    code: &str,
    request: &RequestInfo,
) -> Result<(User, Kind), AuthError> {
    let (user, kind) = match verify_type {
        VerifyType::PhoneChange => {
            (pending_phone_change::lock_account(auth, tx, phone, code, request).await?, Kind::PhoneChange)
        }
        _ => (users::lock_by_phone(tx, phone, &request.aud).await?, Kind::Confirmation),
    };
    Ok((user.ok_or(ContractError::CodeExpired)?, kind))
}

fn not_banned(user: &User, request: &RequestInfo) -> Result<(), AuthError> {
    if user.is_banned(request.now) { Err(ContractError::Banned.into()) } else { Ok(()) }
}
