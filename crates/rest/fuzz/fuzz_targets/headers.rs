//! Any `Accept`, `Content-Type`, `Prefer` and `Range` is parsed, and the written form parses again.

#![no_main]

use http::{HeaderMap, HeaderValue, Method, header};
use libfuzzer_sys::fuzz_target;
use portico_rest::query::RequestQuery;
use portico_rest::request::media::{MediaType, accepted, content_type};
use portico_rest::request::preferences::{HonouredPreferences, Preferences};
use portico_rest::request::row_window::RowWindow;

fuzz_target!(|bytes: &[u8]| {
    let mut headers = HeaderMap::new();
    for line in bytes.split(|&byte| byte == b'\n') {
        let Ok(value) = HeaderValue::from_bytes(line) else { continue };
        for name in ["accept", "content-type", "prefer", "range"] {
            headers.append(name, value.clone());
        }
    }

    let types = accepted(&headers);
    assert!(!types.is_empty());
    for media_type in types.iter().chain([&content_type(&headers)]) {
        assert_eq!(MediaType::parse(&media_type.text()), *media_type);
        assert!(HeaderValue::from_str(&media_type.content_type()).is_ok() || !media_type.text().is_ascii());
    }

    let preferences = Preferences::parse(&headers, |name| name == "UTC");
    let all =
        HonouredPreferences { resolution: true, missing: true, returned: true, transaction: true, max_affected: true };
    if let Some(applied) = preferences.applied(all) {
        let mut again = HeaderMap::new();
        again.insert("prefer", applied.clone());
        let again = Preferences::parse(&again, |name| name == "UTC");
        assert_eq!(again.applied(all), Some(applied));
        assert!(again.unknown.is_empty());
    }

    let range = HeaderMap::from_iter(headers.get(header::RANGE).map(|value| (header::RANGE, value.clone())));
    if let Ok(window) = RowWindow::of(&RequestQuery::default(), &Method::GET, &range) {
        assert!(i64::try_from(window.offset).is_ok());
        assert!(window.limit.is_none_or(|limit| i64::try_from(limit).is_ok()));
    }
});
