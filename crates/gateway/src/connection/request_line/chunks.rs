//! Finds the end of a body in chunks (RFC 9112, 7.1).
//!
//! The HTTP library decodes such bodies; this finds only their end. It accepts no more than the
//! library does, and bytes that it does not accept end the connection, so both always see the same
//! end.

/// The position of the next byte in the chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunks {
    /// In the size of a chunk, with the number of its digits so far.
    Size { size: u64, digits: u8 },
    /// Behind the size, in a chunk extension.
    Extension { size: u64 },
    /// Behind the carriage return of the size line.
    SizeEnd { size: u64 },
    /// In the data of a chunk; at least one byte is left.
    Data { left: u64 },
    /// Behind the data, before its carriage return.
    DataReturn,
    /// Behind the carriage return of the data.
    DataEnd,
    /// At the first byte of a line behind the last chunk.
    Trailer,
    /// In such a line.
    TrailerLine,
    /// Behind the carriage return of such a line.
    TrailerEnd,
    /// Behind the carriage return of the empty line that ends the body.
    LastEnd,
}

/// The result of a walk over bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Walk {
    /// All bytes belong to the body.
    Within,
    /// The body ends behind this number of bytes.
    Ends(usize),
    /// The bytes are not valid chunks.
    Broken,
}

impl Chunks {
    /// Returns the position before the first chunk.
    pub(super) fn start() -> Self {
        Self::Size { size: 0, digits: 0 }
    }

    /// Walks over the bytes.
    pub(super) fn follow(&mut self, bytes: &[u8]) -> Walk {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            at += 1;
            *self = match (*self, byte) {
                (Self::Size { size, digits }, byte) if byte.is_ascii_hexdigit() => {
                    let digit = u64::from(char::from(byte).to_digit(16).unwrap_or_default());
                    match size.checked_mul(16) {
                        Some(size) if digits < 16 => Self::Size { size: size + digit, digits: digits + 1 },
                        _ => return Walk::Broken,
                    }
                }
                (Self::Size { digits: 0, .. }, _) => return Walk::Broken,
                (Self::Size { size, .. } | Self::Extension { size }, b'\r') => Self::SizeEnd { size },
                (Self::Size { size, .. }, b' ' | b'\t' | b';') => Self::Extension { size },
                (Self::Extension { size }, byte) if byte != b'\n' => Self::Extension { size },
                (Self::SizeEnd { size: 0 }, b'\n') => Self::Trailer,
                (Self::SizeEnd { size }, b'\n') => Self::Data { left: size },
                (Self::Data { left }, _) => {
                    let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - at + 1);
                    at += here - 1;
                    match left - here as u64 {
                        0 => Self::DataReturn,
                        left => Self::Data { left },
                    }
                }
                (Self::DataReturn, b'\r') => Self::DataEnd,
                (Self::DataEnd, b'\n') => Self::start(),
                (Self::Trailer, b'\r') => Self::LastEnd,
                (Self::TrailerLine, b'\r') => Self::TrailerEnd,
                (Self::Trailer | Self::TrailerLine, byte) if byte != b'\n' => Self::TrailerLine,
                (Self::TrailerEnd, b'\n') => Self::Trailer,
                (Self::LastEnd, b'\n') => return Walk::Ends(at),
                _ => return Walk::Broken,
            };
        }
        Walk::Within
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_body_ends_behind_its_last_line() {
        for body in [
            "0\r\n\r\n",
            "3\r\nabc\r\n0\r\n\r\n",
            "0000A;x=\"y\"\r\n0\r\n\r\n0\r\n\r\n\r\n0 \r\n\r\n",
            "2 ;q\r\n\r\n\r\n00\r\nX-Sum: 1\r\nY: 2\r\n\r\n",
        ] {
            for behind in ["", "GET / HTTP/1.1\r\n\r\n"] {
                assert_eq!(
                    Chunks::start().follow(format!("{body}{behind}").as_bytes()),
                    Walk::Ends(body.len()),
                    "{body:?}"
                );
            }
            // However it is cut
            let mut chunks = Chunks::start();
            let (last, rest) = body.as_bytes().split_last().unwrap();
            assert!(rest.iter().all(|byte| chunks.follow(&[*byte]) == Walk::Within), "{body:?}");
            assert_eq!(chunks.follow(&[*last]), Walk::Ends(1));
        }
    }

    #[test]
    fn malformed_chunks_are_rejected() {
        for body in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "0x1\r\n",
            "3\nabc\r\n",
            "3\r\nabcd",
            "3\r\nabc\n",
            "0\n",
            "0\r\n\n",
            "0\r\nx: y\n",
            "0;x\n",
            "3\rx",
            "10000000000000000\r\n",
            "00000000000000001\r\n",
        ] {
            assert_eq!(Chunks::start().follow(body.as_bytes()), Walk::Broken, "{body:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_walked_over(bytes in prop::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'0'), any::<u8>()], 0..60)) {
            if let Walk::Ends(end) = Chunks::start().follow(&bytes) {
                prop_assert!(end <= bytes.len());
            }
        }
    }
}
