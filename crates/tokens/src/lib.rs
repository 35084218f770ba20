//! JWTs, signing keys, JWKS, API keys and the Caller
