//! The beginnings of files by media type, so that content cannot be declared as what it is not.

/// The type of content whose sender names none.
pub(crate) const OCTETS: &str = "application/octet-stream";

/// The bytes of a beginning that are compared.
pub(crate) const BEGINNING: usize = 1024;

/// The forms that a file of a media type begins with.
#[derive(Debug, Clone, Copy)]
enum Signature {
    /// One of these, at its position.
    Bytes(&'static [(usize, &'static [u8])]),
    /// `RIFF`, with this form at the ninth byte.
    Riff(&'static [u8; 4]),
    /// A box of an ISO base media file of one of these types.
    Box(&'static [&'static [u8; 4]]),
    /// A box `ftyp` that names one of these brands.
    Brand(&'static [&'static [u8; 4]]),
    /// Frames of MPEG audio, with or without tags before them.
    MpegAudio,
    /// A text that occurs near the beginning.
    Near(&'static [u8]),
    /// An element, a comment or a declaration behind white space.
    Markup,
}

const ZIP: Signature = Signature::Bytes(&[(0, b"PK\x03\x04"), (0, b"PK\x05\x06"), (0, b"PK\x07\x08")]);
/// Office documents with a password are in a compound file, as those of earlier formats are.
const OFFICE: Signature = Signature::Bytes(&[
    (0, b"PK\x03\x04"),
    (0, b"PK\x05\x06"),
    (0, b"PK\x07\x08"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
]);
const GZIP: Signature = Signature::Bytes(&[(0, b"\x1f\x8b")]);
const OGG: Signature = Signature::Bytes(&[(0, b"OggS")]);
const MATROSKA: Signature = Signature::Bytes(&[(0, b"\x1a\x45\xdf\xa3")]);
const MP4: Signature = Signature::Box(&[b"ftyp"]);
const HEIF: Signature = Signature::Brand(&[b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"]);

/// Returns true if content that begins like this can be of a declared type. Types whose files have
/// no known beginning, and content without bytes, always can.
pub(crate) fn can_be(declared: &str, beginning: &[u8]) -> bool {
    let essence = declared.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    beginning.is_empty() || signature_of(&essence).is_none_or(|signature| signature.fits(beginning))
}

fn signature_of(essence: &str) -> Option<Signature> {
    Some(match essence {
        "image/png" | "image/apng" => Signature::Bytes(&[(0, b"\x89PNG\r\n\x1a\n")]),
        "image/jpeg" | "image/jpg" => Signature::Bytes(&[(0, b"\xff\xd8\xff")]),
        "image/gif" => Signature::Bytes(&[(0, b"GIF87a"), (0, b"GIF89a")]),
        "image/webp" => Signature::Riff(b"WEBP"),
        "image/avif" => Signature::Brand(&[b"avif", b"avis"]),
        "image/heic" | "image/heif" => HEIF,
        "image/bmp" => Signature::Bytes(&[(0, b"BM")]),
        "image/tiff" => Signature::Bytes(&[(0, b"II*\0"), (0, b"MM\0*"), (0, b"II+\0"), (0, b"MM\0+")]),
        "image/x-icon" | "image/vnd.microsoft.icon" => Signature::Bytes(&[(0, b"\0\0\x01\0")]),
        "image/svg+xml" => Signature::Markup,
        "application/pdf" => Signature::Near(b"%PDF-"),
        "application/zip" | "application/x-zip-compressed" | "application/epub+zip" => ZIP,
        "application/gzip" | "application/x-gzip" => GZIP,
        "application/ogg" | "audio/ogg" | "video/ogg" | "audio/opus" => OGG,
        "audio/mpeg" | "audio/mp3" => Signature::MpegAudio,
        "audio/wav" | "audio/x-wav" | "audio/wave" | "audio/vnd.wave" => Signature::Riff(b"WAVE"),
        "audio/flac" | "audio/x-flac" => Signature::Bytes(&[(0, b"fLaC"), (0, b"ID3")]),
        "audio/mp4" | "audio/x-m4a" | "video/mp4" => MP4,
        "video/quicktime" => Signature::Box(&[b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot"]),
        "video/webm" | "audio/webm" | "video/x-matroska" => MATROSKA,
        "font/woff" => Signature::Bytes(&[(0, b"wOFF")]),
        "font/woff2" => Signature::Bytes(&[(0, b"wOF2")]),
        "font/otf" => Signature::Bytes(&[(0, b"OTTO"), (0, b"\0\x01\0\0")]),
        "font/ttf" => Signature::Bytes(&[(0, b"\0\x01\0\0"), (0, b"true"), (0, b"OTTO")]),
        _ if essence.starts_with("application/vnd.openxmlformats-officedocument.") => OFFICE,
        _ if essence.starts_with("application/vnd.oasis.opendocument.") => ZIP,
        _ => return None,
    })
}

impl Signature {
    fn fits(self, beginning: &[u8]) -> bool {
        let at =
            |position: usize, wanted: &[u8]| beginning.get(position..).is_some_and(|rest| rest.starts_with(wanted));
        match self {
            Self::Bytes(forms) => forms.iter().any(|(position, bytes)| at(*position, bytes)),
            Self::Riff(form) => at(0, b"RIFF") && at(8, form),
            Self::Box(types) => types.iter().any(|kind| at(4, *kind)),
            Self::Brand(brands) => {
                let size = beginning.first_chunk().map_or(0, |size| u32::from_be_bytes(*size)) as usize;
                let named = beginning.get(8..size.min(beginning.len())).unwrap_or_default();
                at(4, b"ftyp") && named.chunks(4).any(|brand| brands.iter().any(|wanted| brand == *wanted))
            }
            Self::MpegAudio => at(0, b"ID3") || matches!(beginning, [0xff, second, ..] if second & 0xe0 == 0xe0),
            Self::Near(text) => memchr::memmem::find(beginning, text).is_some(),
            Self::Markup => {
                let text = beginning.strip_prefix(b"\xef\xbb\xbf").unwrap_or(beginning).trim_ascii_start();
                text.first() == Some(&b'<') || at(0, b"\xff\xfe<\0") || at(0, b"\xfe\xff\0<")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_begins_as_its_type_does() {
        for (declared, beginning) in [
            ("image/png", &b"\x89PNG\r\n\x1a\n\0\0"[..]),
            ("IMAGE/JPEG; q=1", b"\xff\xd8\xff\xe0"),
            ("image/webp", b"RIFF\x10\0\0\0WEBPVP8 "),
            ("image/avif", b"\0\0\0\x18ftypmif1\0\0\0\0mif1avif"),
            ("image/heic", b"\0\0\0\x10ftypheic\0\0\0\0"),
            ("image/svg+xml", b"\xef\xbb\xbf \n<?xml version=\"1.0\"?>"),
            ("application/pdf", b"\0\0%PDF-1.7"),
            ("audio/mpeg", b"\xff\xfb\x90"),
            ("video/mp4", b"\0\0\0\x18ftypisom"),
            ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", b"PK\x03\x04"),
            (
                "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
                b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
            ),
            // These have no known beginning
            ("text/plain", b"\x89PNG\r\n\x1a\n"),
            ("application/octet-stream", b"<html>"),
            ("image/x-own", b"?"),
            ("", b"?"),
            ("image/png", b""),
        ] {
            assert!(can_be(declared, beginning), "{declared}");
        }
    }

    #[test]
    fn content_of_another_type_is_recognised() {
        for (declared, beginning) in [
            ("image/png", &b"<html><script>"[..]),
            ("image/png", b"\x89PN"),
            ("image/webp", b"RIFF\x10\0\0\0WAVE"),
            ("image/avif", b"\0\0\0\x10ftypmp42\0\0\0\0avif"),
            ("image/avif", b"\xff\xff\xff\xffftyp"),
            ("image/svg+xml", b"GIF89a"),
            ("application/pdf", b"PK\x03\x04"),
            ("audio/mpeg", b"\xff"),
            ("video/mp4", b"\x1a\x45\xdf\xa3"),
        ] {
            assert!(!can_be(declared, beginning), "{declared} {beginning:?}");
        }
    }
}
