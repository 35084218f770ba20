//! `aws-chunked`: a body in chunks, each with a signature if the body is signed, and with checksums
//! behind the last one, which may have a signature too. Nothing but the head of a chunk is held in
//! memory.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use aws_lc_rs::digest::{self, SHA256};
use aws_lc_rs::hmac;
use bytes::{Buf, Bytes, BytesMut};
use futures_util::Stream;
use memchr::memmem;
use portico_base::hash;

use super::signature::{RequestSignature, is_signed_with};
use crate::error::{Result, S3Error, StorageError};
use crate::sigv4::ALGORITHM;

/// The largest signed chunk, in bytes. Its bytes are not verified before its end.
const MAX_SIGNED_CHUNK: u64 = 8 * 1024 * 1024;
/// The longest head of a chunk, in bytes.
const MAX_HEAD: usize = 256;
/// The longest line behind the last chunk, in bytes.
const MAX_TRAILER: usize = 1024;
/// The name of the line with the signature of the lines before it.
const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature";
/// The most lines behind the last chunk.
const MAX_TRAILERS: usize = 16;

/// The signatures of the chunks of a body, each of which covers the one before.
pub(super) struct ChunkSignatures {
    key: hmac::Key,
    /// Time and scope, which each string to sign has behind its algorithm.
    scope: String,
    previous: String,
    digest: digest::Context,
    /// The lines behind the last chunk are signed.
    covers_trailers: bool,
}

impl ChunkSignatures {
    /// Returns the signatures that follow that of a request.
    pub fn new(key: hmac::Key, request: &RequestSignature) -> Self {
        Self {
            key,
            scope: format!("{}\n{}", request.time.text, request.scope.signing().text()),
            previous: request.signature.clone(),
            digest: digest::Context::new(&SHA256),
            covers_trailers: request.payload().ends_with("-TRAILER"),
        }
    }

    /// Verifies the signature of the chunk whose bytes were digested.
    fn verify(&mut self, signature: String) -> Result<()> {
        let content = std::mem::replace(&mut self.digest, digest::Context::new(&SHA256)).finish();
        let empty = digest::digest(&SHA256, b"");
        let (scope, previous) = (&self.scope, &self.previous);
        let text = format!(
            "{ALGORITHM}-PAYLOAD\n{scope}\n{previous}\n{}\n{}",
            hex::encode(empty),
            hex::encode(content.as_ref())
        );
        if !is_signed_with(&self.key, text.as_bytes(), &signature) {
            return Err(S3Error::WRONG_SIGNATURE.into());
        }
        self.previous = signature;
        Ok(())
    }

    /// Verifies the lines behind the last chunk. The last line is their signature.
    fn verify_trailers(&self, trailers: &[(String, String)]) -> Result<()> {
        if !self.covers_trailers {
            return Ok(());
        }
        let (signature, signed) = match trailers.split_last() {
            Some(((name, signature), signed)) if name == TRAILER_SIGNATURE => (signature, signed),
            _ => return Err(S3Error::WRONG_SIGNATURE.into()),
        };
        let lines: String = signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let (scope, previous) = (&self.scope, &self.previous);
        let text = format!("{ALGORITHM}-TRAILER\n{scope}\n{previous}\n{}", hash::sha256_hex(lines.as_bytes()));
        let is_valid = is_signed_with(&self.key, text.as_bytes(), signature);
        if is_valid { Ok(()) } else { Err(S3Error::WRONG_SIGNATURE.into()) }
    }
}

/// The position in a body.
#[derive(Debug)]
enum ChunkPosition {
    Head,
    /// In a chunk: the bytes that are left, and the signature.
    Data(u64, Option<String>),
    /// Before the line break behind a chunk.
    DataEnd,
    Trailers,
    End,
}

/// Decodes a body.
pub(super) struct S3ChunkedBody<S> {
    body: S,
    buffer: BytesMut,
    position: ChunkPosition,
    signatures: Option<ChunkSignatures>,
    /// The bytes of the content that have not arrived.
    left: u64,
    trailers: Vec<(String, String)>,
}

impl<S: Stream<Item = Result<Bytes>> + Unpin> S3ChunkedBody<S> {
    /// Decodes a body whose content has `length` bytes. `signatures`: its chunks are signed.
    pub fn new(body: S, length: u64, signatures: Option<ChunkSignatures>) -> Self {
        Self {
            body,
            buffer: BytesMut::new(),
            position: ChunkPosition::Head,
            signatures,
            left: length,
            trailers: Vec::new(),
        }
    }

    /// Returns the value behind the last chunk, once that was read.
    pub fn trailer(&self, name: &str) -> Option<&str> {
        self.trailers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the next line without its break; `None` if the body ends before it.
    fn poll_line(
        &mut self,
        context: &mut Context<'_>,
        longest: usize,
        what: &'static str,
    ) -> Poll<Result<Option<Bytes>>> {
        loop {
            let end = memmem::find(&self.buffer, b"\r\n");
            // The first half of the break may have arrived
            if end.unwrap_or(self.buffer.len().saturating_sub(1)) > longest {
                return Poll::Ready(Err(StorageError::TooLarge(what)));
            }
            if let Some(end) = end {
                let line = self.buffer.split_to(end).freeze();
                self.buffer.advance(2);
                return Poll::Ready(Ok(Some(line)));
            }
            match ready!(Pin::new(&mut self.body).poll_next(context)).transpose()? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None if self.buffer.is_empty() => return Poll::Ready(Ok(None)),
                None => return Poll::Ready(Err(S3Error::INCOMPLETE_BODY.into())),
            }
        }
    }

    /// Reads the head of a chunk: the size in hexadecimal digits, and the signature.
    fn read_head(&mut self, head: &[u8]) -> Result<ChunkPosition> {
        let malformed = || StorageError::from(S3Error::MALFORMED_CHUNK);
        let head = std::str::from_utf8(head).map_err(|_| malformed())?;
        let (size, extension) = head.split_once(';').map_or((head, None), |(size, rest)| (size, Some(rest)));
        let is_number = (1..=16).contains(&size.len()) && size.bytes().all(|byte| byte.is_ascii_hexdigit());
        let size = u64::from_str_radix(size, 16).ok().filter(|_| is_number).ok_or_else(malformed)?;
        let signature = extension.and_then(|rest| rest.trim().strip_prefix("chunk-signature="));
        if self.signatures.is_some() {
            if size > MAX_SIGNED_CHUNK {
                return Err(StorageError::TooLarge("chunk"));
            }
            if signature.is_none() {
                return Err(S3Error::WRONG_SIGNATURE.into());
            }
        }
        self.left = self.left.checked_sub(size).ok_or(S3Error::INCOMPLETE_BODY)?;
        Ok(ChunkPosition::Data(size, signature.map(str::to_owned)))
    }

    fn poll_content(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        loop {
            match &mut self.position {
                ChunkPosition::Head => {
                    let head = ready!(self.poll_line(context, MAX_HEAD, "chunk header"))?;
                    let head = head.ok_or(S3Error::INCOMPLETE_BODY)?;
                    self.position = self.read_head(&head)?;
                    // The last chunk is empty
                    if let ChunkPosition::Data(0, signature) = &mut self.position {
                        let signature = signature.take();
                        self.end_chunk(signature)?;
                        if self.left > 0 {
                            return Poll::Ready(Err(S3Error::INCOMPLETE_BODY.into()));
                        }
                        self.position = ChunkPosition::Trailers;
                    }
                }
                ChunkPosition::Data(0, signature) => {
                    let signature = signature.take();
                    self.end_chunk(signature)?;
                    self.position = ChunkPosition::DataEnd;
                }
                ChunkPosition::Data(left, _) => {
                    if self.buffer.is_empty() {
                        match ready!(Pin::new(&mut self.body).poll_next(context)).transpose()? {
                            Some(chunk) => self.buffer.extend_from_slice(&chunk),
                            None => return Poll::Ready(Err(S3Error::INCOMPLETE_BODY.into())),
                        }
                        continue;
                    }
                    let length = usize::try_from(*left).unwrap_or(usize::MAX).min(self.buffer.len());
                    *left -= length as u64;
                    let data = self.buffer.split_to(length).freeze();
                    if let Some(signatures) = &mut self.signatures {
                        signatures.digest.update(&data);
                    }
                    return Poll::Ready(Ok(Some(data)));
                }
                ChunkPosition::DataEnd => match ready!(self.poll_line(context, 0, "chunk")) {
                    Ok(Some(_)) => self.position = ChunkPosition::Head,
                    Ok(None) => return Poll::Ready(Err(S3Error::INCOMPLETE_BODY.into())),
                    Err(StorageError::TooLarge(_)) => return Poll::Ready(Err(S3Error::MALFORMED_CHUNK.into())),
                    Err(error) => return Poll::Ready(Err(error)),
                },
                ChunkPosition::Trailers => {
                    let line = ready!(self.poll_line(context, MAX_TRAILER, "chunk trailer"))?;
                    match line.filter(|line| !line.is_empty()) {
                        None => {
                            if let Some(signatures) = &self.signatures {
                                signatures.verify_trailers(&self.trailers)?;
                            }
                            self.position = ChunkPosition::End;
                        }
                        Some(_) if self.trailers.len() == MAX_TRAILERS => {
                            return Poll::Ready(Err(StorageError::TooLarge("chunk trailer")));
                        }
                        Some(line) => {
                            let line = String::from_utf8_lossy(&line);
                            let (name, value) = line.split_once(':').ok_or(S3Error::MALFORMED_CHUNK)?;
                            self.trailers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
                        }
                    }
                }
                ChunkPosition::End => {
                    if !self.buffer.is_empty() {
                        return Poll::Ready(Err(S3Error::MALFORMED_CHUNK.into()));
                    }
                    match ready!(Pin::new(&mut self.body).poll_next(context)).transpose()? {
                        Some(chunk) => self.buffer.extend_from_slice(&chunk),
                        None => return Poll::Ready(Ok(None)),
                    }
                }
            }
        }
    }

    fn end_chunk(&mut self, signature: Option<String>) -> Result<()> {
        match &mut self.signatures {
            Some(signatures) => signatures.verify(signature.unwrap_or_default()),
            None => Ok(()),
        }
    }
}

impl<S: Stream<Item = Result<Bytes>> + Unpin> Stream for S3ChunkedBody<S> {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_content(context).map(Result::transpose)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt, stream};
    use http::{HeaderMap, HeaderValue};
    use portico_base::Secret;
    use proptest::prelude::*;

    use super::super::query::S3Query;
    use super::*;

    /// Decodes a body that arrives in pieces. Returns the content and the checksum behind it.
    fn decode(body: &[u8], length: u64, piece: usize) -> Result<(Vec<u8>, Option<String>)> {
        let chunks: Vec<Result<Bytes>> =
            body.chunks(piece.max(1)).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
        let mut decoder = S3ChunkedBody::new(stream::iter(chunks), length, None);
        let mut content = Vec::new();
        while let Some(chunk) = decoder.next().now_or_never().unwrap() {
            content.extend_from_slice(&chunk?);
        }
        let checksum = decoder.trailer("x-amz-checksum-crc32").map(str::to_owned);
        Ok((content, checksum))
    }

    #[test]
    fn a_body_is_decoded_in_pieces_of_every_size() {
        let body = b"5\r\nhello\r\nA\r\n, \r\nworld!\r\n0\r\nX-Amz-Checksum-CRC32:AAAA\r\n\r\n";
        for piece in 1..body.len() {
            let decoded = decode(body, 15, piece).unwrap();
            assert_eq!(decoded, (b"hello, \r\nworld!".to_vec(), Some("AAAA".into())), "{piece}");
        }
        // The last line break may be missing
        assert_eq!(decode(b"1;chunk-signature=x\r\na\r\n0;chunk-signature=y\r\n", 1, 4).unwrap().0, b"a");
    }

    #[test]
    fn a_body_that_is_malformed_or_has_another_length_is_rejected() {
        for (body, length) in [
            ("", 0),
            ("5\r\nhello\r\n0\r\n\r\n", 6),
            ("5\r\nhello\r\n0\r\n\r\n", 4),
            ("5\r\nhello\r\n", 5),
            ("5\r\nhell", 5),
            ("5\r\nhelloX\r\n0\r\n\r\n", 5),
            ("x\r\n\r\n", 0),
            ("-1\r\n\r\n", 0),
            ("+5\r\nhello\r\n0\r\n\r\n", 5),
            ("\r\n", 0),
            ("ffffffffffffffff\r\n", 5),
            ("0\r\nno trailer\r\n\r\n", 0),
            ("0\r\n\r\nmore", 0),
        ] {
            let error = decode(body.as_bytes(), length, 3).unwrap_err();
            assert_eq!(error.status_and_code().0, 400, "{body:?}");
        }
        for body in ["1".repeat(300), format!("0\r\n{}", "x".repeat(1100)), format!("0\r\n{}", "a:b\r\n".repeat(20))] {
            assert_eq!(decode(body.as_bytes(), 0, 100).unwrap_err().status_and_code(), (413, "EntityTooLarge"));
        }
    }

    /// The signatures of the published example of a signed body, and of one with signed trailers:
    /// of the request, of the chunks.
    const PLAIN: [&str; 4] = [
        "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
        "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
        "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
        "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
    ];
    const WITH_TRAILER: [&str; 4] = [
        "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
        "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
        "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
        "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
    ];

    /// Decodes a published example whose request has this payload and this signature.
    fn decode_signed(payload: &str, seed: &str, body: &[u8], piece: usize) -> Result<usize> {
        let mut headers = HeaderMap::new();
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature={seed}"
        );
        headers.insert("authorization", HeaderValue::from_str(&authorization).unwrap());
        headers.insert("x-amz-date", HeaderValue::from_static("20130524T000000Z"));
        headers.insert("host", HeaderValue::from_static("s3.amazonaws.com"));
        headers.insert("x-amz-content-sha256", HeaderValue::from_str(payload).unwrap());
        let request = RequestSignature::read(&headers, &S3Query::default()).unwrap();
        let key = request.scope.signing().signing_key(&Secret::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"));
        let chunks: Vec<Result<Bytes>> = body.chunks(piece).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
        let signatures = Some(ChunkSignatures::new(key, &request));
        let mut decoder = S3ChunkedBody::new(stream::iter(chunks), 66_560, signatures);
        let mut size = 0;
        while let Some(chunk) = decoder.next().now_or_never().unwrap() {
            size += chunk?.len();
        }
        Ok(size)
    }

    /// Returns the body of a published example, whose first byte is `first`.
    fn signed_body(signatures: [&str; 4], first: u8, trailers: &str) -> Vec<u8> {
        let mut body = Vec::new();
        for (size, signature) in [65_536, 1024, 0].into_iter().zip(&signatures[1..]) {
            body.extend_from_slice(format!("{size:x};chunk-signature={signature}\r\n").as_bytes());
            body.extend(std::iter::repeat_n(b'a', size));
            body.extend_from_slice(if size > 0 { b"\r\n" } else { b"" });
        }
        body.extend_from_slice(trailers.as_bytes());
        body.extend_from_slice(b"\r\n");
        let at = memmem::find(&body, b"\r\n").unwrap() + 2;
        body[at] = first;
        body
    }

    #[test]
    fn the_published_example_of_a_signed_body_is_verified() {
        let decode = |body: &[u8], piece| decode_signed("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", PLAIN[0], body, piece);
        let body = |first: u8| signed_body(PLAIN, first, "");
        assert_eq!(decode(&body(b'a'), 1000), Ok(66_560));
        assert_eq!(decode(&body(b'b'), 1000), Err(S3Error::WRONG_SIGNATURE.into()));
        let unsigned = String::from_utf8(body(b'a')).unwrap().replacen(";chunk-signature", ";x", 1);
        assert_eq!(decode(unsigned.as_bytes(), 1000), Err(S3Error::WRONG_SIGNATURE.into()));
        let large = b"800001;chunk-signature=0\r\n";
        assert_eq!(decode(large, 9), Err(StorageError::TooLarge("chunk")));
    }

    #[test]
    fn the_published_example_of_signed_trailers_is_verified() {
        let payload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
        let checksum = "x-amz-checksum-crc32c:sOO8/Q==\r\n";
        let signature = "x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n";
        for (trailers, outcome) in [
            (format!("{checksum}{signature}"), Ok(66_560)),
            (checksum.to_owned(), Err(())),
            (signature.to_owned(), Err(())),
            (String::new(), Err(())),
            (format!("{signature}{checksum}"), Err(())),
            (format!("x-amz-checksum-crc32c:sOO8/A==\r\n{signature}"), Err(())),
        ] {
            let body = signed_body(WITH_TRAILER, b'a', &trailers);
            let outcome = outcome.map_err(|()| S3Error::WRONG_SIGNATURE.into());
            assert_eq!(decode_signed(payload, WITH_TRAILER[0], &body, 1000), outcome, "{trailers}");
        }
    }

    proptest! {
        #[test]
        fn every_content_is_decoded_as_it_was_encoded(chunks in prop::collection::vec(prop::collection::vec(prop::sample::select(b"\r\n0;a".to_vec()), 1..20), 0..5), piece in 1..30_usize) {
            let mut body = Vec::new();
            for chunk in &chunks {
                body.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                body.extend_from_slice(chunk);
                body.extend_from_slice(b"\r\n");
            }
            body.extend_from_slice(b"0\r\n\r\n");
            let content = chunks.concat();
            prop_assert_eq!(decode(&body, content.len() as u64, piece).unwrap().0, content);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(body in "[0-9a-f;:\\r\\n -]{0,60}", raw: Vec<u8>, length in 0..20_u64, piece in 1..9_usize) {
            let _ = decode(body.as_bytes(), length, piece);
            let _ = decode(&raw, length, piece);
        }
    }
}
