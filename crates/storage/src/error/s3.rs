//! The errors that only the S3 protocol has.

use std::borrow::Cow;

/// An error that only the S3 protocol has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct S3Error {
    pub status: u16,
    pub code: &'static str,
    pub message: Cow<'static, str>,
}

impl S3Error {
    pub const MISSING_SIGNATURE: Self = Self::new(403, "AccessDenied", "Missing signature");
    pub const INVALID_ACCESS_KEY: Self = Self::new(403, "AccessDenied", "Invalid Access Key");
    pub const INVALID_REGION: Self = Self::new(403, "AccessDenied", "Invalid Region");
    pub const INVALID_SERVICE: Self = Self::new(403, "AccessDenied", "Invalid Service");
    pub const FOREIGN_PAGE: Self =
        Self::new(403, "AccessDenied", "Access keys of the service are not accepted from other websites");
    pub const UNSIGNED_HEADERS: Self =
        Self::new(403, "AccessDenied", "There were headers present in the request which were not signed");
    pub const NOT_YET_VALID: Self = Self::new(403, "AccessDenied", "Request is not valid yet");
    pub const WRONG_SIGNATURE: Self = Self::new(
        403,
        "SignatureDoesNotMatch",
        "The request signature we calculated does not match the signature you provided. Check your key and signing method.",
    );
    pub const WRONG_SESSION_TOKEN: Self = Self::new(
        403,
        "SignatureDoesNotMatch",
        "The request signature we calculated does not match the signature you provided, Check your credentials. \
         The session token should be a valid JWT token",
    );
    pub const EXPIRED: Self = Self::new(400, "ExpiredToken", "The provided token has expired.");
    pub const SKEWED: Self = Self::new(
        403,
        "RequestTimeTooSkewed",
        "The difference between the request time and the current time is too large.",
    );
    pub const MISSING_CONTENT_LENGTH: Self =
        Self::new(400, "MissingContentLength", "You must provide the Content-Length HTTP header.");
    pub const INCOMPLETE_BODY: Self = Self::new(
        400,
        "IncompleteBody",
        "You did not provide the number of bytes specified by the Content-Length HTTP header",
    );
    pub const WRONG_PAYLOAD_HASH: Self = Self::new(
        400,
        "XAmzContentSHA256Mismatch",
        "The provided 'x-amz-content-sha256' header does not match what was computed.",
    );
    pub const BAD_DIGEST: Self =
        Self::new(400, "BadDigest", "The checksum you specified did not match what we received.");
    pub const MALFORMED_CHUNK: Self = Self::new(400, "InvalidRequest", "The chunked encoding of the body is malformed");
    pub const NO_SUCH_UPLOAD: Self = Self::new(404, "NoSuchUpload", "Upload not found");
    pub const INVALID_PART_NUMBER: Self =
        Self::new(416, "InvalidPartNumber", "The requested partnumber is not satisfiable");
    pub const INVALID_PART_ORDER: Self = Self::new(
        400,
        "InvalidPartOrder",
        "The list of parts was not in ascending order. Parts must be ordered by part number.",
    );
    pub const CONFLICT: Self = Self::new(
        409,
        "OperationAborted",
        "A conflicting conditional operation is currently in progress against this resource. Try again.",
    );
    pub const PRECONDITION_FAILED: Self =
        Self::new(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold");
    pub const NOT_IMPLEMENTED: Self = Self::new(
        501,
        "NotImplemented",
        "A header or query you provided implies functionality that is not implemented",
    );
    pub const METHOD_NOT_ALLOWED: Self =
        Self::new(405, "MethodNotAllowed", "The specified method is not allowed against this resource.");
    pub const KEY_TOO_LONG: Self = Self::new(400, "KeyTooLongError", "Your key is too long");
    pub const TOO_SMALL: Self =
        Self::new(400, "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size");

    const fn new(status: u16, code: &'static str, message: &'static str) -> Self {
        Self { status, code, message: Cow::Borrowed(message) }
    }

    /// Returns the error of a request that is malformed.
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self { status: 400, code: "InvalidRequest", message: message.into() }
    }

    /// Returns the error of a header or parameter with a value that is not possible.
    pub fn invalid_argument(name: &str) -> Self {
        Self { status: 400, code: "InvalidArgument", message: format!("Invalid Argument {name}").into() }
    }

    /// Returns the error of the query of a presigned URL.
    pub fn invalid_query(message: &'static str) -> Self {
        Self::new(400, "AuthorizationQueryParametersError", message)
    }

    /// Returns the error of a body that is not the XML of its operation.
    pub fn malformed_xml(reason: &str) -> Self {
        Self { status: 400, code: "MalformedXML", message: format!("Invalid XML payload: {reason}").into() }
    }

    /// Returns the error of a form whose policy does not allow it.
    pub fn policy(reason: impl std::fmt::Display) -> Self {
        Self { status: 403, code: "AccessDenied", message: format!("Invalid according to Policy: {reason}").into() }
    }

    /// Returns the error of a part that was not uploaded.
    pub fn missing_part(number: u16, upload: &str) -> Self {
        let message = format!("Part {number} is missing for upload id {upload}");
        Self { status: 400, code: "MissingPart", message: message.into() }
    }

    /// Returns the error of a part whose ETag is another one.
    pub fn wrong_part(number: u16) -> Self {
        Self { status: 400, code: "InvalidChecksum", message: format!("Invalid ETag for part {number}").into() }
    }
}
