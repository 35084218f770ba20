//! The body of a signed request: decoded, and compared with its hashes while it passes. The last
//! item of a body that is not what its sender has signed is an error, so nothing of it is kept.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::HeaderMap;

use super::chunked::{ChunkSignatures, S3ChunkedBody};
use super::signature::RequestSignature;
use crate::checksum::Checksum;
use crate::error::{Result, S3Error, StorageError};

/// The coding and the hash of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PayloadForm<'a> {
    Unsigned,
    /// The SHA-256 of the body, in hexadecimal digits.
    Hashed(&'a str),
    SignedChunks,
    UnsignedChunks,
}

impl<'a> PayloadForm<'a> {
    fn parse(text: &'a str) -> Result<Self> {
        let is_hash = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match text {
            "UNSIGNED-PAYLOAD" => Ok(Self::Unsigned),
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" | "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => {
                Ok(Self::SignedChunks)
            }
            "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Ok(Self::UnsignedChunks),
            hash if is_hash => Ok(Self::Hashed(hash)),
            _ => Err(S3Error::invalid_argument("x-amz-content-sha256").into()),
        }
    }
}

/// The value that a checksum must have.
enum ExpectedValue {
    Bytes(Vec<u8>),
    /// Behind the last chunk: the name of the line.
    Trailer(String),
}

/// A checksum, its value, and the error where they differ.
struct PayloadCheck {
    checksum: Checksum,
    expected: ExpectedValue,
    error: S3Error,
}

enum PayloadSource<S> {
    Plain(S),
    Chunked(Box<S3ChunkedBody<S>>),
}

/// The body of a signed request.
pub(super) struct PayloadBody<S> {
    source: PayloadSource<S>,
    checks: Vec<PayloadCheck>,
    has_ended: bool,
}

/// Returns the length of the content of a request; `None` if it declares none.
///
/// # Errors
/// When it is not a number.
pub(super) fn content_length(headers: &HeaderMap, signature: &RequestSignature) -> Result<Option<u64>> {
    let name = match PayloadForm::parse(signature.payload())? {
        PayloadForm::SignedChunks | PayloadForm::UnsignedChunks => "x-amz-decoded-content-length",
        _ => "content-length",
    };
    let Some(value) = headers.get(name) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|value| value.parse().ok());
    length.map(Some).ok_or_else(|| S3Error::invalid_argument(name).into())
}

impl<S: Stream<Item = Result<Bytes>> + Unpin> PayloadBody<S> {
    /// Returns the content of a body whose request is verified. `key` is the signing key.
    ///
    /// # Errors
    /// When the headers about the body are malformed.
    pub fn new(body: S, headers: &HeaderMap, signature: &RequestSignature, key: hmac::Key) -> Result<Self> {
        let form = PayloadForm::parse(signature.payload())?;
        let mut checks = Vec::new();
        if let PayloadForm::Hashed(hash) = form {
            let expected = ExpectedValue::Bytes(hex::decode(hash).unwrap_or_default());
            let checksum = Checksum::sha256();
            checks.push(PayloadCheck { checksum, expected, error: S3Error::WRONG_PAYLOAD_HASH });
        }
        for (name, value) in headers {
            let Some(checksum) = Checksum::of_header(name.as_str()) else { continue };
            let expected = STANDARD.decode(value.as_bytes());
            let expected = expected.map_err(|_| S3Error::invalid_argument(name.as_str()))?;
            checks.push(PayloadCheck {
                checksum,
                expected: ExpectedValue::Bytes(expected),
                error: S3Error::BAD_DIGEST,
            });
        }
        let signatures = match form {
            PayloadForm::Unsigned | PayloadForm::Hashed(_) => {
                return Ok(Self { source: PayloadSource::Plain(body), checks, has_ended: false });
            }
            PayloadForm::SignedChunks => Some(ChunkSignatures::new(key, signature)),
            PayloadForm::UnsignedChunks => None,
        };
        let trailer = headers.get("x-amz-trailer").and_then(|value| value.to_str().ok()).unwrap_or_default();
        for name in trailer.split(',').map(|name| name.trim().to_ascii_lowercase()) {
            let Some(checksum) = Checksum::of_header(&name) else { continue };
            checks.push(PayloadCheck { checksum, expected: ExpectedValue::Trailer(name), error: S3Error::BAD_DIGEST });
        }
        let length = content_length(headers, signature)?.ok_or(S3Error::MISSING_CONTENT_LENGTH)?;
        let source = PayloadSource::Chunked(Box::new(S3ChunkedBody::new(body, length, signatures)));
        Ok(Self { source, checks, has_ended: false })
    }

    /// Reads the whole body into memory.
    ///
    /// # Errors
    /// When it is longer than `limit`, and those of the body.
    pub async fn collect(mut self, limit: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.next().await {
            let chunk = chunk?;
            if bytes.len() + chunk.len() > limit {
                return Err(StorageError::TooLarge("request body"));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    fn verify(&mut self) -> Result<()> {
        for PayloadCheck { checksum, expected, error } in self.checks.drain(..) {
            let expected = match (expected, &self.source) {
                (ExpectedValue::Bytes(bytes), _) => Some(bytes),
                (ExpectedValue::Trailer(name), PayloadSource::Chunked(body)) => {
                    body.trailer(&name).and_then(|value| STANDARD.decode(value).ok())
                }
                (ExpectedValue::Trailer(_), PayloadSource::Plain(_)) => None,
            };
            if expected != Some(checksum.finish()) {
                return Err(error.into());
            }
        }
        Ok(())
    }
}

impl<S: Stream<Item = Result<Bytes>> + Unpin> Stream for PayloadBody<S> {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.has_ended {
            return Poll::Ready(None);
        }
        let next = match &mut this.source {
            PayloadSource::Plain(body) => Pin::new(body).poll_next(context),
            PayloadSource::Chunked(body) => Pin::new(&mut **body).poll_next(context),
        };
        Poll::Ready(match ready!(next) {
            Some(Ok(bytes)) => {
                for check in &mut this.checks {
                    check.checksum.update(&bytes);
                }
                Some(Ok(bytes))
            }
            Some(Err(error)) => {
                this.has_ended = true;
                Some(Err(error))
            }
            None => {
                this.has_ended = true;
                this.verify().err().map(Err)
            }
        })
    }
}
