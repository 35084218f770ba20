//! `GET /verify`: the link of an email. Everything but a missing parameter ends in a redirect.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;

use super::redeem::{RedeemedToken, redeem};
use super::verify_type::VerifyType;
use super::{FIRST_OF_TWO, lookup};
use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::hooks;
use crate::http::extract::{Query, RequestInfo};
use crate::http::link_redirect::{self, RedirectFields, error_fields};
use crate::model::User;
use crate::model::contact::ContactKind;
use crate::one_time::token::{self, TokenKind};
use crate::operation::AccountOperation;
use crate::protection::limits::Limiter;
use crate::session::{self, AuthenticationMethod, TokenResponse};
use crate::sql::Tx;
use crate::sql::flow_state::{self, method};

/// `GET /verify`
pub async fn follow(State(auth): State<Auth>, request: RequestInfo, query: Query) -> Result<Response, AuthError> {
    auth.limits().check(Limiter::Verify, &request)?;
    let type_text = query.get("type").ok_or(ContractError::VerifyTypeMissing)?;
    let hash = query.get("token").or_else(|| query.get("token_hash")).ok_or(ContractError::VerifyLinkNeedsToken)?;
    let is_pkce = token::is_pkce(hash);
    let target = &request.redirect_to;
    let location = match hooks::complete(auth.hooks(), &request, || redeem_link(&auth, &request, type_text, hash)).await
    {
        Ok(FollowedLink::SignedIn(tokens, link_type)) => {
            let mut fields = tokens.fragment();
            fields.push(("type", link_type.to_owned()));
            link_redirect::with_fragment(target, fields)
        }
        Ok(FollowedLink::Code(code)) => link_redirect::with_query(target, &vec![("code", code)]),
        Ok(FollowedLink::FirstOfTwo) => {
            let message = || ("message", FIRST_OF_TWO.to_owned());
            let base = if is_pkce { link_redirect::with_query(target, &vec![message()]) } else { target.clone() };
            link_redirect::with_fragment(&base, vec![message(), ("sb", String::new())])
        }
        Err(error) if error.status().is_server_error() => {
            let error = format!("{:#}", anyhow::Error::new(error));
            tracing::error!(error = %error, "a link could not be followed");
            let general = AuthError::internal(anyhow::anyhow!("logged above"));
            error_location(target, is_pkce, &general)
        }
        Err(error) => error_location(target, is_pkce, &error),
    };
    Ok(link_redirect::redirect(StatusCode::SEE_OTHER, &location))
}

/// Returns the target with the fields of an error: in the fragment, and with a proof key also in
/// the query.
fn error_location(target: &str, is_pkce: bool, error: &AuthError) -> String {
    let fields = error_fields(error);
    let base = if is_pkce { link_redirect::with_query(target, &fields) } else { target.to_owned() };
    let mut fragment: RedirectFields = fields;
    fragment.push(("sb", String::new()));
    link_redirect::with_fragment(&base, fragment)
}

/// The result of a link.
enum FollowedLink {
    /// The session, and the type of the link as apps see it.
    SignedIn(Box<TokenResponse>, &'static str),
    /// The code that the app exchanges.
    Code(String),
    /// The first of two confirmations.
    FirstOfTwo,
}

async fn redeem_link(
    auth: &Auth,
    request: &RequestInfo,
    type_text: &str,
    hash: &str,
) -> Result<FollowedLink, AuthError> {
    let verify_type = VerifyType::parse(type_text)
        .filter(|verify_type| verify_type.contact() == ContactKind::Email)
        .ok_or(ContractError::VerifyTypeInvalid)?;
    let tx = Tx::begin(auth.database()).await?;
    let op = AccountOperation::new(auth, request, &tx);
    let found = lookup::by_hash(op, verify_type, hash).await?;
    let kind = found.kind;
    let followed = match redeem(op, found, verify_type).await? {
        RedeemedToken::FirstOfTwo => FollowedLink::FirstOfTwo,
        RedeemedToken::Verified(user) if token::is_pkce(hash) => {
            FollowedLink::Code(issue_code(op, &user, verify_type, kind).await?)
        }
        RedeemedToken::Verified(user) => {
            let tokens = session::issue(op, &user, AuthenticationMethod::Otp).await?;
            let link_type = match (verify_type, kind) {
                (VerifyType::Email, TokenKind::Confirmation | TokenKind::EmailChangeNew) => "signup",
                (VerifyType::Email, _) => "magiclink",
                _ => verify_type.as_str(),
            };
            FollowedLink::SignedIn(Box::new(tokens), link_type)
        }
    };
    tx.commit().await?;
    Ok(followed)
}

/// Issues the code that the app exchanges: that of the newest flow that the user began in this way.
async fn issue_code(
    op: AccountOperation<'_>,
    user: &User,
    verify_type: VerifyType,
    kind: TokenKind,
) -> Result<String, AuthError> {
    // A recovery token may have been sent to sign in, and the link's type may be that of a custom
    // template
    let methods: &[&str] = match (verify_type, kind) {
        (VerifyType::Invite, _) => &[method::INVITE],
        (VerifyType::Recovery, _) => &[method::RECOVERY, method::MAGIC_LINK],
        (_, TokenKind::Recovery) => &[method::MAGIC_LINK, method::RECOVERY],
        (_, TokenKind::EmailChangeNew | TokenKind::EmailChangeCurrent) => &[method::EMAIL_CHANGE],
        _ => &[method::EMAIL_SIGNUP],
    };
    for method in methods {
        if let Some(flow) = flow_state::lock_newest(op.tx, user.id, method).await?
            && let Some(code) = flow.auth_code
        {
            flow_state::issue_code(op.tx, flow.id, op.now()).await?;
            return Ok(code);
        }
    }
    Err(ContractError::FlowOfLinkNotFound.into())
}
