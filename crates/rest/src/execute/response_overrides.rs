//! The headers and the status that SQL sets for a response (`response.headers`, `response.status`).

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Map, Value};

use crate::error::RestError;

/// The values of `response.headers` and `response.status`; `None` where they are not set.
#[derive(Debug, Default)]
pub(crate) struct ResponseOverrides {
    pub headers: Option<String>,
    pub status: Option<String>,
}

impl ResponseOverrides {
    /// Replaces status and headers of a response by those that SQL has set.
    ///
    /// # Errors
    /// PGRST111 and 112: the settings cannot be read.
    pub fn apply(&self, status: &mut StatusCode, headers: &mut HeaderMap) -> Result<(), RestError> {
        if let Some(text) = &self.headers {
            let replacing = parse_headers(text).ok_or(RestError::ResponseHeaders)?;
            for (name, _) in &replacing {
                headers.remove(name);
            }
            for (name, value) in replacing.into_iter().filter(|(name, _)| !is_framing(name)) {
                headers.append(name, value);
            }
        }
        if let Some(text) = &self.status {
            let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let number = text.get(..digits).and_then(|number| number.parse().ok());
            *status = number.and_then(final_status).ok_or(RestError::ResponseStatus)?;
        }
        Ok(())
    }
}

/// Returns the status with this number, if a response can end with it: another one has to follow
/// after 1xx.
pub(crate) fn final_status(number: u16) -> Option<StatusCode> {
    StatusCode::from_u16(number).ok().filter(|status| !status.is_informational())
}

/// Returns true for headers that delimit the body or control the connection. Only the server sets
/// them; a wrong one breaks the connection.
pub(crate) fn is_framing(name: &HeaderName) -> bool {
    [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION, header::UPGRADE, header::TRAILER]
        .contains(name)
        || name == "keep-alive"
}

fn parse_headers(text: &str) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let list: Vec<Map<String, Value>> = serde_json::from_str(text).ok()?;
    list.into_iter()
        .map(|object| {
            let mut pairs = object.into_iter();
            let (name, value) = pairs.next()?;
            let value = HeaderValue::from_str(value.as_str()?).ok()?;
            pairs.next().is_none().then_some((name.parse().ok()?, value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sql_can_replace_and_repeat_headers_and_set_the_status() {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        let mut status = StatusCode::OK;
        let overrides = ResponseOverrides {
            headers: Some(r#"[{"Content-Type":"image/png"},{"Set-Cookie":"a=1"},{"Set-Cookie":"b=2"}]"#.into()),
            status: Some("418 teapot".into()),
        };
        overrides.apply(&mut status, &mut headers).unwrap();
        assert_eq!(status.as_u16(), 418);
        assert_eq!(headers.get_all("set-cookie").iter().count(), 2);
        assert_eq!(headers.get_all("content-type").iter().collect::<Vec<_>>(), ["image/png"]);
        for (text, wrong) in [("{}", true), (r#"[{"a":"b","c":"d"}]"#, true), (r#"[{"a":1}]"#, true), ("[]", false)] {
            let overrides = ResponseOverrides { headers: Some(text.into()), ..ResponseOverrides::default() };
            assert_eq!(overrides.apply(&mut status, &mut headers).is_err(), wrong, "{text}");
        }
        for text in ["x", "99", "1000", "101"] {
            let overrides = ResponseOverrides { status: Some(text.into()), ..ResponseOverrides::default() };
            assert_eq!(overrides.apply(&mut status, &mut headers), Err(RestError::ResponseStatus), "{text}");
        }
    }

    #[test]
    fn sql_cannot_set_headers_that_frame_the_body() {
        let (mut status, mut headers) = (StatusCode::OK, HeaderMap::new());
        let text = r#"[{"Content-Length":"3"},{"Transfer-Encoding":"chunked"},{"Connection":"upgrade"},{"X-A":"b"}]"#;
        let overrides = ResponseOverrides { headers: Some(text.into()), ..ResponseOverrides::default() };
        overrides.apply(&mut status, &mut headers).unwrap();
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-a"]);
    }
}
