//! The formats of sources and results.

/// A format that a source can have, recognised by its first bytes: names and declared types are
/// not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceFormat {
    /// JPEG, baseline or progressive; grey, colour or CMYK.
    Jpeg,
    /// PNG. Of an animated one, the default image.
    Png,
    /// GIF, still or animated.
    Gif,
    /// WebP, still or animated.
    WebP,
    /// Windows bitmap.
    Bmp,
    /// Windows icon; the largest of its images.
    Ico,
    /// TIFF; the first page.
    Tiff,
    /// SVG. Passed on as it is, never drawn.
    Svg,
}

/// The bytes at the start of a file in which the root element of an SVG document is searched.
const SVG_SEARCH_BYTES: usize = 4096;

impl SourceFormat {
    /// Recognises the format of a file. `None`: a format that is not rendered here.
    pub fn recognise(file: &[u8]) -> Option<Self> {
        match file {
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some(Self::Png),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::WebP),
            [b'B', b'M', ..] => Some(Self::Bmp),
            [0, 0, 1, 0, ..] => Some(Self::Ico),
            [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..] => Some(Self::Tiff),
            _ if is_svg(file) => Some(Self::Svg),
            _ => None,
        }
    }
}

/// Checks whether the first element of an XML document is `svg`. Skips the declaration, comments,
/// instructions and a document type.
fn is_svg(file: &[u8]) -> bool {
    let start = &file[..file.len().min(SVG_SEARCH_BYTES)];
    let text = String::from_utf8_lossy(start);
    let mut rest = text.trim_start_matches('\u{feff}').trim_start();
    loop {
        let end = if rest.starts_with("<?") {
            "?>"
        } else if rest.starts_with("<!--") {
            "-->"
        } else if let Some(root) = rest.get(..9).filter(|start| start.eq_ignore_ascii_case("<!doctype")) {
            if !is_svg_name(rest[root.len()..].trim_start()) {
                return false;
            }
            // An internal subset has declarations with brackets of their own
            if rest.find('[').is_some_and(|subset| rest.find('>').is_some_and(|end| subset < end)) { "]>" } else { ">" }
        } else {
            break;
        };
        let Some(position) = rest.find(end) else { return false };
        rest = rest[position + end.len()..].trim_start();
    }
    rest.strip_prefix('<').is_some_and(is_svg_name)
}

/// Checks whether a text starts with the name `svg`, with or without the prefix of a name space.
fn is_svg_name(text: &str) -> bool {
    let name = text.split(|c: char| c.is_whitespace() || matches!(c, '>' | '/' | '[')).next().unwrap_or_default();
    name == "svg" || name.ends_with(":svg")
}

/// The format that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestedFormat {
    /// The format of the source: asked for by name, or because nothing better is accepted.
    Origin,
    /// WebP, negotiated: the client accepts it. Sources that are no pictures of pixels stay as they
    /// are.
    WebPAccepted,
    /// AVIF, negotiated: the client accepts it. What AVIF cannot be is as if it were not accepted.
    AvifAccepted {
        /// The client accepts WebP as well.
        webp: bool,
    },
    /// WebP, asked for by name.
    WebP,
    /// AVIF, asked for by name.
    Avif,
}

impl RequestedFormat {
    /// Chooses by the value of `format` if there is one, otherwise by the header `Accept`.
    ///
    /// AVIF is negotiated only if `avif` is true: encoding it takes ten times as long as WebP.
    pub fn negotiate(named: Option<Self>, accept: Option<&str>, avif: bool) -> Self {
        let accepts = |kind: &str| accept.is_some_and(|accept| accept.contains(kind));
        match named {
            Some(named) => named,
            None if avif && accepts("image/avif") => Self::AvifAccepted { webp: accepts("image/webp") },
            None if accepts("image/webp") => Self::WebPAccepted,
            None => Self::Origin,
        }
    }

    /// Returns what is requested where this format is accepted and not possible; `None` where it
    /// was asked for by name.
    pub(crate) fn fallback(self) -> Option<Self> {
        match self {
            Self::AvifAccepted { webp: true } => Some(Self::WebPAccepted),
            Self::AvifAccepted { webp: false } | Self::WebPAccepted => Some(Self::Origin),
            Self::Origin | Self::WebP | Self::Avif => None,
        }
    }

    /// Returns what is requested for an animation, which results in AVIF are not.
    pub(crate) fn for_animation(self) -> Self {
        match self {
            Self::AvifAccepted { .. } => self.fallback().unwrap_or(self),
            other => other,
        }
    }

    /// Returns the word of this format in cache keys.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Origin => "origin",
            Self::WebPAccepted => "webp-accepted",
            Self::AvifAccepted { webp: true } => "avif-or-webp-accepted",
            Self::AvifAccepted { webp: false } => "avif-accepted",
            Self::WebP => "webp",
            Self::Avif => "avif",
        }
    }
}

/// A format that results have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    /// JPEG.
    Jpeg,
    /// PNG.
    Png,
    /// GIF, still or animated.
    Gif,
    /// WebP, still or animated.
    WebP,
    /// AVIF.
    Avif,
    /// SVG, the bytes of the source.
    Svg,
}

impl OutputFormat {
    /// All formats, in the order of their numbers in cache files.
    pub(crate) const ALL: [Self; 6] = [Self::Jpeg, Self::Png, Self::Gif, Self::WebP, Self::Avif, Self::Svg];

    /// Returns the media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Jpeg => "image/jpeg",
            Self::Png => "image/png",
            Self::Gif => "image/gif",
            Self::WebP => "image/webp",
            Self::Avif => "image/avif",
            Self::Svg => "image/svg+xml",
        }
    }

    /// Chooses the format of a result made of pixels.
    ///
    /// Bitmaps, icons and TIFF files, which browsers show badly or not at all, become PNG if they
    /// have transparency and JPEG otherwise.
    pub(crate) fn choose(source: SourceFormat, requested: RequestedFormat, has_alpha: bool) -> Self {
        match (requested, source) {
            (RequestedFormat::WebP | RequestedFormat::WebPAccepted, _) => Self::WebP,
            (RequestedFormat::Avif | RequestedFormat::AvifAccepted { .. }, _) => Self::Avif,
            (RequestedFormat::Origin, SourceFormat::Jpeg) => Self::Jpeg,
            (RequestedFormat::Origin, SourceFormat::Png) => Self::Png,
            (RequestedFormat::Origin, SourceFormat::Gif) => Self::Gif,
            (RequestedFormat::Origin, SourceFormat::WebP) => Self::WebP,
            (RequestedFormat::Origin, SourceFormat::Svg) => Self::Svg,
            (RequestedFormat::Origin, SourceFormat::Bmp | SourceFormat::Ico | SourceFormat::Tiff) => {
                if has_alpha {
                    Self::Png
                } else {
                    Self::Jpeg
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_svg_document_is_recognised_behind_declarations() {
        for document in [
            "<svg xmlns='http://www.w3.org/2000/svg'/>",
            "\u{feff}<?xml version='1.0'?>\n<!-- <b> -->\n<!DOCTYPE svg PUBLIC '-//W3C//DTD SVG 1.1//EN' 'u'>\n<svg>",
            "<!DOCTYPE svg [<!ENTITY a 'b'>]><s:svg>",
        ] {
            assert_eq!(SourceFormat::recognise(document.as_bytes()), Some(SourceFormat::Svg), "{document}");
        }
        for document in
            ["<html><svg>", "<!doctype html><svg>", "<!DOCTYPE", "<svgfoo>", "svg", "<!-- <svg>", "", "<", "<?xml"]
        {
            assert_eq!(SourceFormat::recognise(document.as_bytes()), None, "{document}");
        }
    }

    #[test]
    fn the_format_is_negotiated_only_when_it_is_not_named() {
        let accept = Some("image/avif,image/webp,*/*");
        let only_avif = Some("image/avif,*/*");
        for avif in [false, true] {
            assert_eq!(RequestedFormat::negotiate(None, Some("image/webp"), avif), RequestedFormat::WebPAccepted);
            assert_eq!(RequestedFormat::negotiate(None, None, avif), RequestedFormat::Origin);
            assert_eq!(
                RequestedFormat::negotiate(Some(RequestedFormat::Origin), accept, avif),
                RequestedFormat::Origin
            );
            assert_eq!(RequestedFormat::negotiate(Some(RequestedFormat::Avif), None, avif), RequestedFormat::Avif);
        }
        assert_eq!(RequestedFormat::negotiate(None, accept, false), RequestedFormat::WebPAccepted);
        assert_eq!(RequestedFormat::negotiate(None, only_avif, false), RequestedFormat::Origin);
        let avif = |webp| RequestedFormat::AvifAccepted { webp };
        assert_eq!(RequestedFormat::negotiate(None, accept, true), avif(true));
        assert_eq!(RequestedFormat::negotiate(None, only_avif, true), avif(false));
    }
}
