//! The token in an `Authorization` header.

/// Returns the token of an `Authorization` header if its scheme is `Bearer`, in any case.
pub fn bearer(authorization: &[u8]) -> Option<&str> {
    let (scheme, rest) = authorization.split_at_checked("bearer".len())?;
    if !scheme.eq_ignore_ascii_case(b"bearer") || !rest.first().is_some_and(u8::is_ascii_whitespace) {
        return None;
    }
    // Bytes that are not text give a token that does not verify
    let token = std::str::from_utf8(rest).unwrap_or("?").trim();
    (!token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_scheme_of_a_bearer_token_is_case_insensitive() {
        for (value, token) in [
            ("Bearer x", Some("x")),
            ("bearer x", Some("x")),
            ("BEARER  x ", Some("x")),
            ("Bearer\tx", Some("x")),
            ("Bearer", None),
            ("Bearer ", None),
            ("Bearerx", None),
            ("Basic x", None),
            ("", None),
        ] {
            assert_eq!(bearer(value.as_bytes()), token, "{value:?}");
        }
        assert_eq!(bearer(b"Bearer \xff\xfe"), Some("?"));
    }

    proptest! {
        #[test]
        fn any_header_is_a_token_or_none(value in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = bearer(&value);
        }
    }
}
