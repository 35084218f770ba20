//! Pages of lists, and the headers that lead to the other pages.

use axum::extract::FromRequestParts;
use axum::response::{IntoResponseParts, ResponseParts};
use http::header::LINK;
use http::request::Parts;
use http::{HeaderName, HeaderValue};

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::http::extract::Query;

const TOTAL_COUNT: HeaderName = HeaderName::from_static("x-total-count");
const DEFAULT_SIZE: u64 = 50;

/// The page of a list that a request asks for.
#[derive(Debug, Clone)]
pub(crate) struct ListPage {
    number: u64,
    size: u64,
    path: String,
    query: Query,
}

impl ListPage {
    /// Parses the query of a request.
    ///
    /// # Errors
    /// 400 `validation_failed` for a value that is no number.
    fn parse(path: &str, query: Query) -> Result<Self, AuthError> {
        let number = |name: &str, default: u64| match query.get(name) {
            None => Ok(default),
            Some(text) => parse_number(text).map(|number| if number == 0 { default } else { number }),
        };
        Ok(Self { number: number("page", 1)?, size: number("per_page", DEFAULT_SIZE)?, path: path.to_owned(), query })
    }

    /// Returns the greatest number of rows.
    pub(crate) fn limit(&self) -> i64 {
        i64::try_from(self.size).unwrap_or(i64::MAX)
    }

    /// Returns the number of rows before the page.
    pub(crate) fn offset(&self) -> i64 {
        i64::try_from((self.number - 1).saturating_mul(self.size)).unwrap_or(i64::MAX)
    }

    /// Returns the headers of a list with `total` rows.
    pub(crate) fn headers(&self, total: i64) -> PageHeaders {
        let total = u64::try_from(total).unwrap_or_default();
        let last = total.div_ceil(self.size);
        let mut links = Vec::new();
        if last > self.number {
            links.push(format!("<{}>; rel=\"next\"", self.link(self.number + 1)));
        }
        links.push(format!("<{}>; rel=\"last\"", self.link(last)));
        PageHeaders { link: links.join(", "), total }
    }

    /// Returns the address of a page, with sorted query parameters: clients read the number behind
    /// the first equals sign.
    fn link(&self, number: u64) -> String {
        link_to(&self.path, &self.query, "page", &number.to_string())
    }
}

/// Returns the address of the same list with another value of one query parameter, with sorted
/// parameters.
pub(crate) fn link_to(path: &str, query: &Query, name: &str, value: &str) -> String {
    let others = query.pairs().iter().filter(|(other, _)| other != name);
    let mut pairs: Vec<(&str, &str)> = others.map(|(name, value)| (&**name, &**value)).collect();
    pairs.push((name, value));
    pairs.sort_by_key(|(name, _)| *name);
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    format!("{path}?{query}")
}

/// Parses a number. The error is that of Go.
pub(crate) fn parse_number(text: &str) -> Result<u64, AuthError> {
    let shown: String = text.chars().take(32).collect();
    let detail = if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("strconv.ParseUint: parsing {shown:?}: invalid syntax")
    } else {
        match text.parse() {
            Ok(number) => return Ok(number),
            Err(_) => format!("strconv.ParseUint: parsing {shown:?}: value out of range"),
        }
    };
    Err(ContractError::BadPagination { detail }.into())
}

impl FromRequestParts<Auth> for ListPage {
    type Rejection = AuthError;

    async fn from_request_parts(parts: &mut Parts, auth: &Auth) -> Result<Self, AuthError> {
        let query = Query::from_request_parts(parts, auth).await?;
        Self::parse(parts.uri.path(), query)
    }
}

/// The headers of a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PageHeaders {
    link: String,
    total: u64,
}

impl IntoResponseParts for PageHeaders {
    type Error = std::convert::Infallible;

    fn into_response_parts(self, mut response: ResponseParts) -> Result<ResponseParts, Self::Error> {
        // The parameters are percent-encoded, so that the value fits into a header
        if let Ok(link) = HeaderValue::from_str(&self.link) {
            response.headers_mut().insert(LINK, link);
        }
        response.headers_mut().insert(TOTAL_COUNT, HeaderValue::from(self.total));
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(query: &str) -> Result<ListPage, AuthError> {
        ListPage::parse("/admin/users", Query::parse(query))
    }

    #[test]
    fn links_lead_to_the_next_and_the_last_page() {
        for (query, total, link) in [
            (
                "page=1&per_page=2",
                5,
                r#"</admin/users?page=2&per_page=2>; rel="next", </admin/users?page=3&per_page=2>; rel="last""#,
            ),
            ("per_page=2&page=3", 5, r#"</admin/users?page=3&per_page=2>; rel="last""#),
            ("page=&per_page=", 5, r#"</admin/users?page=1&per_page=>; rel="last""#),
            ("", 0, r#"</admin/users?page=0>; rel="last""#),
            ("sort=created_at+asc&page=9", 5, r#"</admin/users?page=1&sort=created_at+asc>; rel="last""#),
        ] {
            let headers = page(query).unwrap().headers(total);
            assert_eq!(headers, PageHeaders { link: link.to_owned(), total: total.unsigned_abs() }, "{query}");
        }
    }

    #[test]
    fn numbers_have_defaults_and_limits() {
        let sizes = |query: &str| page(query).map(|page| (page.offset(), page.limit()));
        assert_eq!(sizes("").unwrap(), (0, 50));
        assert_eq!(sizes("page=0&per_page=0").unwrap(), (0, 50));
        assert_eq!(sizes("page=3&per_page=10").unwrap(), (20, 10));
        let most = u64::MAX.to_string();
        assert_eq!(sizes(&format!("page={most}&per_page={most}")).unwrap(), (i64::MAX, i64::MAX));
        for (query, text) in [
            ("page=x", r#"Bad Pagination Parameters: strconv.ParseUint: parsing "x": invalid syntax"#),
            ("per_page=-1", r#"Bad Pagination Parameters: strconv.ParseUint: parsing "-1": invalid syntax"#),
            (
                "page=99999999999999999999",
                r#"Bad Pagination Parameters: strconv.ParseUint: parsing "99999999999999999999": value out of range"#,
            ),
        ] {
            assert_eq!(sizes(query).unwrap_err().to_string(), text);
        }
    }
}
