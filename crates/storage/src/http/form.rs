//! `multipart/form-data` (RFC 7578) as a stream: nothing but the fields that are read is held in
//! memory.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use futures_util::Stream;
use memchr::memmem;

use crate::error::{Result, StorageError};

/// The longest headers of a part, in bytes.
const MAX_HEADERS: usize = 16 * 1024;
/// The most blanks between a delimiter and its line break.
const MAX_BLANKS: usize = 1024;
/// The longest boundary (RFC 2046), with room for unusual clients.
const MAX_BOUNDARY: usize = 200;

/// Reads the parts of a form.
pub(crate) struct FormReader<S> {
    body: S,
    buffer: BytesMut,
    /// `\r\n--` and the boundary.
    delimiter: Vec<u8>,
    position: FormPosition,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FormPosition {
    /// Before the end of a part, or before the first one.
    InPart,
    /// Behind a delimiter.
    BehindDelimiter,
    /// Behind the last delimiter.
    End,
}

/// The headers of a part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PartHead {
    /// The name of the field, which may be empty.
    pub name: String,
    pub is_file: bool,
    pub file_name: Option<String>,
    pub content_type: Option<String>,
}

fn invalid(text: &str) -> StorageError {
    StorageError::InvalidRequest(text.to_owned())
}

impl<S: Stream<Item = Result<Bytes>> + Unpin> FormReader<S> {
    /// Reads a body of this content type.
    ///
    /// # Errors
    /// When the content type has no boundary.
    pub fn new(body: S, content_type: &str) -> Result<Self> {
        let boundary = parameter(content_type, "boundary").filter(|boundary| !boundary.is_empty());
        let boundary = boundary.ok_or_else(|| invalid("Multipart: Boundary not found"))?;
        if boundary.len() > MAX_BOUNDARY {
            return Err(invalid("Multipart: Boundary not found"));
        }
        let delimiter = [b"\r\n--", boundary.as_bytes()].concat();
        // The first delimiter needs no line break before it
        let buffer = BytesMut::from(&b"\r\n"[..]);
        Ok(Self { body, buffer, delimiter, position: FormPosition::InPart })
    }

    /// Returns the headers of the next part; `None` at the end. What is left of the part before is
    /// skipped.
    ///
    /// # Errors
    /// When the form is malformed or does not arrive.
    pub async fn next_part(&mut self) -> Result<Option<PartHead>> {
        std::future::poll_fn(|context| self.poll_part(context)).await
    }

    /// Reads the rest of the part into memory.
    ///
    /// # Errors
    /// When it has more than `limit` bytes; `name` is in the text.
    pub async fn field(&mut self, name: &'static str, limit: usize) -> Result<String> {
        let mut field = Vec::new();
        while let Some(chunk) = std::future::poll_fn(|context| self.poll_chunk(context)).await? {
            if field.len() + chunk.len() > limit {
                return Err(StorageError::TooLarge(name));
            }
            field.extend_from_slice(&chunk);
        }
        Ok(String::from_utf8_lossy(&field).into_owned())
    }

    /// Returns the content of the part.
    pub fn content(&mut self) -> PartContent<'_, S> {
        PartContent { form: self }
    }

    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<PartHead>>> {
        loop {
            match self.position {
                FormPosition::End => return Poll::Ready(Ok(None)),
                FormPosition::InPart => while ready!(self.poll_chunk(context))?.is_some() {},
                FormPosition::BehindDelimiter => {
                    if self.buffer.starts_with(b"--") {
                        self.position = FormPosition::End;
                        return Poll::Ready(Ok(None));
                    }
                    let end = memmem::find(&self.buffer, b"\r\n\r\n");
                    let Some(end) = end else {
                        if self.buffer.len() > MAX_HEADERS {
                            return Poll::Ready(Err(invalid("Multipart: part headers are too long")));
                        }
                        ready!(self.poll_fill(context))?;
                        continue;
                    };
                    if end > MAX_HEADERS {
                        return Poll::Ready(Err(invalid("Multipart: part headers are too long")));
                    }
                    let head = self.buffer.split_to(end);
                    self.buffer.advance(4);
                    // An empty part: its delimiter's line break is the end of the headers
                    self.position = FormPosition::InPart;
                    return Poll::Ready(read_head(&head).map(Some));
                }
            }
        }
    }

    /// Returns a piece of the part; `None` at its end.
    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        loop {
            if self.position != FormPosition::InPart {
                return Poll::Ready(Ok(None));
            }
            match memmem::find(&self.buffer, &self.delimiter) {
                Some(0) => match delimiter_end(&self.buffer[self.delimiter.len()..]) {
                    DelimiterEnd::Is => {
                        self.buffer.advance(self.delimiter.len());
                        self.position = FormPosition::BehindDelimiter;
                        return Poll::Ready(Ok(None));
                    }
                    // A longer boundary, which is content
                    DelimiterEnd::IsNot => {
                        return Poll::Ready(Ok(Some(self.buffer.split_to(self.delimiter.len()).freeze())));
                    }
                    DelimiterEnd::Unknown => {
                        ready!(self.poll_fill(context))?;
                        continue;
                    }
                },
                Some(end) => return Poll::Ready(Ok(Some(self.buffer.split_to(end).freeze()))),
                None => {}
            }
            // The end of the buffer may be the begin of the delimiter
            let certain = self.buffer.len().saturating_sub(self.delimiter.len() - 1);
            if certain > 0 {
                return Poll::Ready(Ok(Some(self.buffer.split_to(certain).freeze())));
            }
            ready!(self.poll_fill(context))?;
        }
    }

    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        match ready!(Pin::new(&mut self.body).poll_next(context)) {
            Some(Ok(chunk)) => {
                self.buffer.extend_from_slice(&chunk);
                Poll::Ready(Ok(()))
            }
            Some(Err(error)) => Poll::Ready(Err(error)),
            None => Poll::Ready(Err(invalid("Unexpected end of form"))),
        }
    }
}

/// The kind of what follows the text of a delimiter.
enum DelimiterEnd {
    /// `--`, or blanks and a line break.
    Is,
    IsNot,
    /// More has to arrive.
    Unknown,
}

fn delimiter_end(behind: &[u8]) -> DelimiterEnd {
    if behind.starts_with(b"--") {
        return DelimiterEnd::Is;
    }
    let blanks = behind.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    match &behind[blanks..] {
        _ if blanks > MAX_BLANKS => DelimiterEnd::IsNot,
        [b'\r', b'\n', ..] => DelimiterEnd::Is,
        [] | [b'\r'] => DelimiterEnd::Unknown,
        [b'-'] if blanks == 0 => DelimiterEnd::Unknown,
        _ => DelimiterEnd::IsNot,
    }
}

/// The content of a part as a stream.
pub(crate) struct PartContent<'a, S> {
    form: &'a mut FormReader<S>,
}

impl<S: Stream<Item = Result<Bytes>> + Unpin> Stream for PartContent<'_, S> {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.form.poll_chunk(context).map(Result::transpose)
    }
}

fn read_head(head: &[u8]) -> Result<PartHead> {
    let text = String::from_utf8_lossy(head);
    let mut part = PartHead::default();
    let mut has_disposition = false;
    for line in text.split("\r\n") {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match name.trim().to_ascii_lowercase().as_str() {
            "content-disposition" => {
                has_disposition = true;
                part.name = parameter(value, "name").unwrap_or_default();
                part.file_name = parameter(value, "filename");
                part.is_file = part.file_name.is_some() || parameter(value, "filename*").is_some();
            }
            "content-type" => part.content_type = Some(value.to_owned()),
            _ => {}
        }
    }
    if !has_disposition {
        return Err(invalid("Multipart: part without Content-Disposition"));
    }
    part.is_file |= part.content_type.as_deref() == Some("application/octet-stream");
    Ok(part)
}

/// Returns a parameter of a header value: `x; name=value; other="quoted \" value"`.
fn parameter(value: &str, wanted: &str) -> Option<String> {
    let mut rest = value.split_once(';')?.1;
    loop {
        let (name, behind) = rest.split_once('=')?;
        // Parameters without a value before it
        let name = name.rsplit(';').next().unwrap_or_default().trim();
        let (value, next) = match behind.trim_start().strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let (value, next) = behind.split_once(';').unwrap_or((behind, ""));
                (value.trim().to_owned(), next)
            }
        };
        if name.eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = next;
    }
}

/// Reads a quoted text behind its first quotation mark. Returns it and what follows.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt, stream};
    use proptest::prelude::*;

    use super::*;

    type Part = (PartHead, Vec<u8>);

    async fn read(body: &[u8], piece: usize, content_type: &str) -> Result<Vec<Part>> {
        let chunks: Vec<_> = body.chunks(piece.max(1)).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
        let mut form = FormReader::new(stream::iter(chunks), content_type)?;
        let mut parts = Vec::new();
        while let Some(head) = form.next_part().await? {
            let mut content = Vec::new();
            let mut stream = form.content();
            while let Some(chunk) = stream.next().await {
                content.extend_from_slice(&chunk?);
            }
            parts.push((head, content));
        }
        Ok(parts)
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    const FORM: &str = "multipart/form-data; boundary=XX";

    #[test]
    fn a_form_of_the_official_client_is_read_in_pieces_of_every_size() {
        let body = b"--XX\r\nContent-Disposition: form-data; name=\"cacheControl\"\r\n\r\n3600\r\n--XX\r\nContent-Disposition: form-data; name=\"\"; filename=\"a;\\\"b.png\"\r\nContent-Type: image/png\r\n\r\n\r\n--X\r\n\r\n--XX--\r\n";
        for piece in 1..=body.len() {
            let parts = run(read(body, piece, FORM)).unwrap();
            let field = PartHead { name: "cacheControl".into(), ..PartHead::default() };
            let file = PartHead {
                name: String::new(),
                is_file: true,
                file_name: Some("a;\"b.png".into()),
                content_type: Some("image/png".into()),
            };
            assert_eq!(parts, [(field, b"3600".to_vec()), (file, b"\r\n--X\r\n".to_vec())], "{piece}");
        }
    }

    #[test]
    fn a_text_that_begins_like_the_delimiter_is_content() {
        for content in ["a\r\n--XXY", "a\r\n--XX-", "\r\n--XX x", "\r\n--XX\n", "\r\n--XX\r", "--XXX"] {
            let body = format!(
                "--XX \t\r\nContent-Disposition: form-data; name=f\r\n\r\n{content}\r\n--XX  \r\nContent-Disposition: form-data; name=g\r\n\r\n\r\n--XX--"
            );
            for piece in [1, 2, 3, 5, 1000] {
                let parts = run(read(body.as_bytes(), piece, FORM)).unwrap();
                let contents: Vec<&[u8]> = parts.iter().map(|(_, content)| content.as_slice()).collect();
                assert_eq!(contents, [content.as_bytes(), b""], "{content:?} {piece}");
            }
        }
    }

    #[test]
    fn a_malformed_form_is_rejected() {
        for body in [
            "",
            "--XX",
            "--XX\r\n",
            "--XX\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx",
            "--XX\r\nX: y\r\n\r\nx\r\n--XX--",
            "nothing",
        ] {
            assert!(run(read(body.as_bytes(), 3, FORM)).is_err(), "{body:?}");
        }
        assert!(run(read(b"--XX--", 9, FORM)).unwrap().is_empty());
        assert!(run(read(b"", 1, "multipart/form-data")).is_err());
        assert!(run(read(b"", 1, "multipart/form-data; boundary=\"\"")).is_err());
        let endless = format!("--XX\r\nX: {}", "y".repeat(40_000));
        assert!(run(read(endless.as_bytes(), 1000, FORM)).is_err());
    }

    #[test]
    fn a_field_is_read_up_to_its_limit_and_a_skipped_one_has_none() {
        let body = format!(
            "--XX\r\nContent-Disposition: form-data; name=a\r\n\r\n{}\r\n--XX\r\nContent-Disposition: form-data; name=b\r\n\r\nfive5\r\n--XX--",
            "y".repeat(100_000)
        );
        for (limit, read) in [(5, Ok("five5".to_owned())), (4, Err(StorageError::TooLarge("field")))] {
            let chunks: Vec<_> = body.as_bytes().chunks(3).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
            let mut form = FormReader::new(stream::iter(chunks), FORM).unwrap();
            run(async {
                assert_eq!(form.next_part().await.unwrap().unwrap().name, "a");
                assert_eq!(form.next_part().await.unwrap().unwrap().name, "b");
                assert_eq!(form.field("field", limit).await, read);
            });
        }
    }

    proptest! {
        #[test]
        fn every_content_is_read_as_it_was_written(contents in prop::collection::vec(prop::collection::vec(prop::sample::select(b"\r\n-Xab".to_vec()), 0..60), 0..4), piece in 1..40_usize) {
            let mut body = Vec::new();
            for content in &contents {
                prop_assume!(memmem::find(&[b"\r\n", &content[..]].concat(), b"\r\n--XX").is_none());
                body.extend_from_slice(b"--XX\r\nContent-Disposition: form-data; name=f\r\n\r\n");
                body.extend_from_slice(content);
                body.extend_from_slice(b"\r\n");
            }
            body.extend_from_slice(b"--XX--");
            let parts = run(read(&body, piece, FORM)).unwrap();
            prop_assert_eq!(parts.into_iter().map(|(_, content)| content).collect::<Vec<_>>(), contents);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(body: Vec<u8>, content_type in "\\PC{0,40}|multipart/form-data; ?boundary=.{0,4}", piece in 1..9_usize) {
            let _ = run(read(&body, piece, &content_type));
        }
    }
}
