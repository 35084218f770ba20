//! The parameters of an authorization request that only this server sets.

/// Their names, which are compared without regard to case.
const RESERVED: [&str; 8] = [
    "client_id",
    "client_secret",
    "redirect_uri",
    "response_type",
    "state",
    "code_challenge",
    "code_challenge_method",
    "code_verifier",
];

/// Returns true if neither a caller nor a custom provider may set the parameter.
pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_parameters_are_found_in_any_case_of_letters() {
        for name in ["State", "REDIRECT_URI", "client_secret"] {
            assert!(is_reserved(name));
        }
        assert!(!is_reserved("prompt"));
    }
}
