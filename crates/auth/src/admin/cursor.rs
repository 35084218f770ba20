//! Pages of the list of accounts that begin behind a cursor: the last account of the page before.
//!
//! A page by number skips all rows before it and counts the whole list; a page behind a cursor does
//! neither. In this mode the order is total, so that an account that is added or deleted between
//! two requests moves no other account from one page to the next.

use axum::extract::FromRequestParts;
use axum::response::{IntoResponseParts, ResponseParts};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use http::header::LINK;
use http::request::Parts;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::Auth;
use crate::admin::page::{ListPage, link_to, parse_number};
use crate::error::{AuthError, ContractError};
use crate::http::extract::Query;
use crate::model::User;
use crate::model::ids::UserId;
use crate::sql::users::ListPosition;

const DEFAULT_LIMIT: u64 = 50;
const MAX_LIMIT: u64 = 1000;
/// The largest cursor that is decoded, in bytes; those of this server are about half as long.
const MAX_CURSOR_BYTES: usize = 256;

/// The page of the list of accounts that a request asks for.
#[derive(Debug)]
pub(crate) enum UserPage {
    /// By its number.
    Numbered(ListPage),
    /// Behind a cursor.
    Cursor(CursorPage),
}

/// A page behind a cursor.
#[derive(Debug)]
pub(crate) struct CursorPage {
    limit: u64,
    after: Option<ListPosition>,
    path: String,
    query: Query,
}

/// The content of a cursor.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UserCursor {
    #[serde(with = "time::serde::rfc3339::option")]
    created_at: Option<OffsetDateTime>,
    id: UserId,
}

impl CursorPage {
    /// Parses the query of a request.
    ///
    /// # Errors
    /// 400 `validation_failed` for a limit that is no positive number, or a cursor that this server
    /// did not make.
    fn parse(path: &str, query: Query) -> Result<Self, AuthError> {
        let limit = match query.get("limit").map(parse_number).transpose()? {
            None => DEFAULT_LIMIT,
            Some(0) => return Err(bad("limit must be greater than 0")),
            Some(limit) => limit.min(MAX_LIMIT),
        };
        let after = query.get("cursor").map(decode).transpose()?;
        Ok(Self { limit, after, path: path.to_owned(), query })
    }

    /// Returns the number of rows to read: one more than the page has, to know if there are more.
    pub(crate) fn rows(&self) -> i64 {
        i64::try_from(self.limit + 1).unwrap_or(i64::MAX)
    }

    /// Returns the position behind which the page begins. `None`: the list's begin.
    pub(crate) fn after(&self) -> Option<ListPosition> {
        self.after
    }

    /// Shortens the rows to the page, and returns the way to the next one.
    pub(crate) fn cut(&self, users: &mut Vec<User>) -> NextPage {
        let size = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let has_more = users.len() > size;
        users.truncate(size);
        let Some(last) = users.last().filter(|_| has_more) else { return NextPage { cursor: None, link: None } };
        let cursor = encode(ListPosition { created_at: last.created_at, id: last.id });
        let link = format!("<{}>; rel=\"next\"", link_to(&self.path, &self.query, "cursor", &cursor));
        NextPage { cursor: Some(cursor), link: Some(link) }
    }
}

fn bad(detail: &str) -> AuthError {
    ContractError::BadPagination { detail: detail.to_owned() }.into()
}

fn encode(ListPosition { created_at, id }: ListPosition) -> String {
    let cursor = UserCursor { created_at, id };
    // Neither a time nor a UUID fails to become JSON
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&cursor).unwrap_or_default())
}

fn decode(text: &str) -> Result<ListPosition, AuthError> {
    let read = || {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?;
        let cursor: UserCursor = serde_json::from_slice(&bytes).ok()?;
        Some(ListPosition { created_at: cursor.created_at, id: cursor.id })
    };
    Some(text).filter(|text| text.len() <= MAX_CURSOR_BYTES).and_then(|_| read()).ok_or_else(|| bad("invalid cursor"))
}

impl FromRequestParts<Auth> for UserPage {
    type Rejection = AuthError;

    async fn from_request_parts(parts: &mut Parts, auth: &Auth) -> Result<Self, AuthError> {
        let query = Query::from_request_parts(parts, auth).await?;
        let is_numbered = query.get("page").is_some() || query.get("per_page").is_some();
        if is_numbered || !auth.settings().cursor_pagination {
            return ListPage::from_request_parts(parts, auth).await.map(Self::Numbered);
        }
        CursorPage::parse(parts.uri.path(), query).map(Self::Cursor)
    }
}

/// The way from a page to the next one: `pagination` of the body, and a header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NextPage {
    cursor: Option<String>,
    link: Option<String>,
}

impl NextPage {
    /// Returns `pagination` of the response.
    pub(crate) fn json(&self) -> serde_json::Value {
        match &self.cursor {
            Some(cursor) => serde_json::json!({ "next_cursor": cursor, "has_more": true }),
            None => serde_json::json!({ "has_more": false }),
        }
    }
}

impl IntoResponseParts for NextPage {
    type Error = std::convert::Infallible;

    fn into_response_parts(self, mut response: ResponseParts) -> Result<ResponseParts, Self::Error> {
        // The parameters are percent-encoded, so that the value fits into a header
        if let Some(link) = self.link.and_then(|link| HeaderValue::from_str(&link).ok()) {
            response.headers_mut().insert(LINK, link);
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    fn page(query: &str) -> Result<CursorPage, AuthError> {
        CursorPage::parse("/admin/users", Query::parse(query))
    }

    #[test]
    fn a_cursor_keeps_the_position_to_the_microsecond() {
        for created_at in [Some(datetime!(2026-01-02 03:04:05.678901 UTC)), None] {
            let position = ListPosition { created_at, id: UserId::random() };
            let cursor = encode(position);
            assert!(cursor.len() <= MAX_CURSOR_BYTES && cursor.bytes().all(|b| b != b'=' && b != b'+' && b != b'/'));
            assert_eq!(page(&format!("cursor={cursor}")).unwrap().after(), Some(position));
            assert_eq!(page(&format!("cursor={cursor}%3D%3D")).unwrap().after(), Some(position));
        }
        assert_eq!(page("cursor=").unwrap().after(), None);
    }

    #[test]
    fn a_limit_has_a_default_and_a_maximum() {
        let rows = |query: &str| page(query).map(|page| page.rows());
        assert_eq!((rows("").unwrap(), rows("limit=&cursor=").unwrap()), (51, 51));
        assert_eq!(
            (rows("limit=1").unwrap(), rows("limit=1000").unwrap(), rows("limit=1001").unwrap()),
            (2, 1001, 1001)
        );
        for (query, text) in [
            ("limit=0", "Bad Pagination Parameters: limit must be greater than 0"),
            ("limit=-1", r#"Bad Pagination Parameters: strconv.ParseUint: parsing "-1": invalid syntax"#),
            ("cursor=x", "Bad Pagination Parameters: invalid cursor"),
        ] {
            assert_eq!(rows(query).unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn a_cursor_of_another_form_is_rejected() {
        let id = "6a6f6f88-1d3b-4b1c-9f3a-6b1f4c2f0001";
        let encoded = |json: &str| URL_SAFE_NO_PAD.encode(json);
        for cursor in [
            encoded("{}"),
            encoded("[]"),
            encoded(&format!("{{\"created_at\":\"yesterday\",\"id\":\"{id}\"}}")),
            encoded("{\"created_at\":null,\"id\":\"1\"}"),
            encoded(&format!("{{\"created_at\":null,\"id\":\"{id}\",\"x\":1}}")),
            encoded(&format!("{}{{\"created_at\":null,\"id\":\"{id}\"}}", " ".repeat(300))),
            "%".to_owned(),
        ] {
            let error = decode(&cursor).unwrap_err();
            assert_eq!(error.to_string(), "Bad Pagination Parameters: invalid cursor", "{cursor}");
        }
    }
}
