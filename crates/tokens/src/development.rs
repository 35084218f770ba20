//! The published development keys. They are public: `.env` files, scripts and test suites contain
//! them literally. A server that accepts them must not be reachable from other machines.

/// The HS256 secret.
pub const JWT_SECRET: &str = "super-secret-jwt-token-with-at-least-32-characters-long";

/// The legacy anon key.
pub const ANON_KEY: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJzdXBhYmFzZS1kZW1vIiwicm9sZSI6ImFub24iLCJleHAiOjE5ODM4MTI5OTZ9.CRXP1A7WOeoJeXxjNni43kdQwgnWNReilDMblYTn_I0";

/// The legacy service_role key.
pub const SERVICE_ROLE_KEY: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJzdXBhYmFzZS1kZW1vIiwicm9sZSI6InNlcnZpY2Vfcm9sZSIsImV4cCI6MTk4MzgxMjk5Nn0.EGIM96RAZx35lJzdJsyH-qQwv8Hdp7fsn3W0YpN81IU";

/// The publishable key.
pub const PUBLISHABLE_KEY: &str = "sb_publishable_ACJWlzQHlZjBrEguHvfOxg_3BJgxAaH";

/// The secret key.
pub const SECRET_KEY: &str = "sb_secret_N7UND0UgjKTVK-Uodkm0Hg_xSvEMPvz";

/// `iss` of the legacy keys.
pub const KEY_ISSUER: &str = "supabase-demo";

/// `exp` of the legacy keys, in seconds since 1970.
pub const KEYS_EXPIRE_AT: i64 = 1_983_812_996;

/// The private ES256 key that user tokens are signed with, as a JWK.
pub const SIGNING_KEY: &str = r#"{"kty":"EC","kid":"b81269f1-21d8-4f2e-b719-c2240a840d90","use":"sig","key_ops":["sign","verify"],"alg":"ES256","ext":true,"crv":"P-256","x":"M5Sjqn5zwC9Kl1zVfUUGvv9boQjCGd45G8sdopBExB4","y":"P6IXMvA2WYXSHSOMTBH2jsw_9rrzGy89FjPf6oOsIxQ","d":"dIhR8wywJlqlua4y_yMq2SLhlFXDZJBCvFrY1DCHyVU"}"#;

/// Access key id of the S3 endpoint.
pub const S3_ACCESS_KEY_ID: &str = "625729a08b95bf1b7ff351a663f3a23c";

/// Secret access key of the S3 endpoint.
pub const S3_SECRET_ACCESS_KEY: &str = "850181e4652dd023b7a98c58ae0d2d34bd487ee0cc3254aed6eda37307425907";

/// Region of the S3 endpoint.
pub const S3_REGION: &str = "local";

/// Password of every login role of the database.
pub const DATABASE_PASSWORD: &str = "postgres";
