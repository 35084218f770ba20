//! Errors of the protocol, each text once.

use std::fmt;

/// A reason to reject a connection or a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenRejection {
    /// Not a JWT.
    NotAJwt,
    /// `exp` has passed, this many seconds ago.
    Expired { seconds: i64 },
    /// `role` or `exp` is absent.
    MissingClaims,
    /// The signature does not match.
    BadSignature,
    /// There is no key for the token's algorithm, or none with its `kid`.
    NoSigner { kid: Option<String> },
    /// The token has more rights than the page that the connection came from may use.
    OtherPage,
}

impl TokenRejection {
    /// Returns the text without the time of the expiry, for a handshake.
    pub fn at_handshake(&self) -> String {
        match self {
            Self::Expired { .. } => "Token has expired".to_owned(),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for TokenRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SETUP: &str = "check your JWT secret or JWKS configuration";
        match self {
            Self::NotAJwt => f.write_str("The token provided is not a valid JWT"),
            Self::Expired { seconds } => write!(f, "Token has expired {seconds} seconds ago"),
            Self::MissingClaims => f.write_str("Fields `role` and `exp` are required in JWT"),
            Self::BadSignature => f.write_str("Failed to validate JWT signature"),
            Self::NoSigner { kid: None } => write!(f, "Failed to generate JWT signer, {SETUP}"),
            Self::NoSigner { kid: Some(kid) } => {
                write!(f, "Failed to generate JWT signer for key ID (kid) \"{kid}\", {SETUP}")
            }
            Self::OtherPage => f.write_str("This page may not use a secret key"),
        }
    }
}

/// A reason to reject a join. The text is `reason` of the reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JoinError {
    TopicNameRequired,
    Restarting,
    PrivateOnly,
    TooManySockets,
    TooManyJoins,
    TooManyChannels,
    Token(TokenRejection),
    /// No policy lets the role read from this topic.
    Unauthorized {
        topic: String,
    },
    /// The connections for policy checks are all in use.
    NoConnection,
    /// The database does not accept connections.
    DatabaseUnreachable,
    /// The policies could not be checked.
    PoliciesNotChecked,
    /// A policy check took too long; PostgreSQL's text.
    QueryCanceled(String),
    MissingPartition,
    ReplayOfPublicChannel,
    ReplayParameters,
    ReplayFailed,
    /// Too many entries of `postgres_changes`.
    TooManyBindings {
        max: usize,
    },
    /// The payload of the join is too large.
    TooLarge {
        max: usize,
    },
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TopicNameRequired => f.write_str("TopicNameRequired: You must provide a topic name"),
            Self::Restarting => f.write_str("RealtimeRestarting: Realtime is restarting, please standby"),
            Self::PrivateOnly => f.write_str("PrivateOnly: This project only allows private channels"),
            Self::TooManySockets => f.write_str("ConnectionRateLimitReached: Too many connected users"),
            Self::TooManyJoins => f.write_str("ClientJoinRateLimitReached: Too many joins per second"),
            Self::TooManyChannels => f.write_str("ChannelRateLimitReached: Too many channels"),
            Self::Token(rejection) => {
                let code = match rejection {
                    TokenRejection::NotAJwt => "MalformedJWT",
                    TokenRejection::Expired { .. } | TokenRejection::MissingClaims => "InvalidJWTToken",
                    TokenRejection::BadSignature => "JwtSignatureError",
                    TokenRejection::NoSigner { .. } => "JwtSignerError",
                    TokenRejection::OtherPage => "Unauthorized",
                };
                write!(f, "{code}: {rejection}")
            }
            Self::Unauthorized { topic } => write!(f, "Unauthorized: {}", NoReadPermission { topic }),
            Self::NoConnection => f.write_str("IncreaseConnectionPool: Please increase your connection pool size"),
            Self::DatabaseUnreachable => write!(f, "UnableToConnectToProject: {UNREACHABLE}"),
            Self::PoliciesNotChecked => f.write_str(UNREACHABLE),
            Self::QueryCanceled(text) => write!(f, "QueryCanceled: {text}"),
            Self::MissingPartition => {
                f.write_str("MissingPartition: Realtime was unable to find the expected messages partition")
            }
            Self::ReplayOfPublicChannel => {
                f.write_str("UnableToReplayMessages: Replay is not allowed for public channels")
            }
            Self::ReplayParameters => f.write_str("UnableToReplayMessages: Replay params are not valid"),
            Self::TooManyBindings { max } => {
                write!(f, "UnknownErrorOnChannel: A channel has at most {max} postgres_changes")
            }
            Self::TooLarge { max } => {
                write!(f, "UnknownErrorOnChannel: The payload of a join has at most {max} bytes")
            }
            Self::ReplayFailed => f.write_str("UnableToReplayMessages: Realtime was unable to replay messages"),
        }
    }
}

const UNREACHABLE: &str = "Realtime was unable to connect to the project database";

/// The text for a role without a read policy.
struct NoReadPermission<'a> {
    topic: &'a str,
}

impl fmt::Display for NoReadPermission<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "You do not have permissions to read from this Channel topic: {}", self.topic)
    }
}

/// A reason to end a channel. The text is the message of the `system` error before `phx_close`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shutdown {
    TooManyMessages,
    TooManyPresenceMessages,
    TooManyPresenceCalls,
    TrackTooLarge,
    Token(TokenRejection),
    /// No policy lets the role read from this topic.
    NoReadPermission {
        topic: String,
    },
    /// A permission that was there is gone.
    ReadPermissionLost {
        topic: String,
    },
    ReplicationNotReady,
    DatabaseUnreachable,
    QueryCanceled,
}

impl fmt::Display for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyMessages => f.write_str("Too many messages per second"),
            Self::TooManyPresenceMessages => f.write_str("Too many presence messages per second"),
            Self::TooManyPresenceCalls => f.write_str("Client presence rate limit exceeded"),
            Self::TrackTooLarge => f.write_str("Track message size exceeded"),
            Self::Token(rejection) => rejection.fmt(f),
            Self::NoReadPermission { topic } => NoReadPermission { topic }.fmt(f),
            Self::ReadPermissionLost { topic } => {
                write!(f, "You no longer have permission to read from this Channel topic: {topic}")
            }
            Self::ReplicationNotReady => f.write_str("Replication connection was not established in time"),
            Self::DatabaseUnreachable => f.write_str(UNREACHABLE),
            Self::QueryCanceled => f.write_str("Query was cancelled, please try again"),
        }
    }
}
