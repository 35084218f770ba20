//! Content encodings and the choice among them (RFC 9110, 12.5.3).

use http::HeaderValue;

/// The encodings of a response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Brotli,
    Gzip,
    Identity,
}

impl Encoding {
    /// Returns the suffix of file names in this encoding.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Brotli => ".br",
            Self::Gzip => ".gz",
            Self::Identity => "",
        }
    }

    /// Returns the value of `Content-Encoding`.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Self::Brotli => Some("br"),
            Self::Gzip => Some("gzip"),
            Self::Identity => None,
        }
    }

    /// Returns the encoding that a file name indicates.
    pub(crate) fn of_path(path: &str) -> Self {
        if path.ends_with(".br") {
            Self::Brotli
        } else if path.ends_with(".gz") {
            Self::Gzip
        } else {
            Self::Identity
        }
    }
}

/// Returns the encodings that a client accepts, the best first. `values` are those of its
/// `Accept-Encoding`.
pub(crate) fn accepted<'a>(values: impl IntoIterator<Item = &'a HeaderValue>) -> Vec<Encoding> {
    let (mut brotli, mut gzip, mut any) = (None, None, None);
    // Only an explicit weight of the plain form can exceed that of a compressed one
    let mut identity = 0;
    for value in values {
        for entry in value.to_str().unwrap_or_default().split(',') {
            let mut parameters = entry.split(';');
            let name = parameters.next().unwrap_or_default().trim().to_ascii_lowercase();
            let weight = parameters.find_map(weight).unwrap_or(1000);
            match name.as_str() {
                "br" => brotli = Some(weight),
                "gzip" | "x-gzip" => gzip = Some(weight),
                "identity" => identity = weight,
                "*" => any = Some(weight),
                _ => {}
            }
        }
    }
    let mut forms = [(Encoding::Brotli, brotli.or(any)), (Encoding::Gzip, gzip.or(any))]
        .into_iter()
        .filter_map(|(encoding, weight)| Some((encoding, weight?)))
        .filter(|(_, weight)| *weight > 0 && *weight >= identity)
        .collect::<Vec<_>>();
    // Stable: among equal weights the smaller form wins
    forms.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    forms.into_iter().map(|(encoding, _)| encoding).collect()
}

/// Returns `q=0.5` in thousandths. A value that is not a number counts as unacceptable.
fn weight(parameter: &str) -> Option<u32> {
    let (name, value) = parameter.split_once('=')?;
    if !name.trim().eq_ignore_ascii_case("q") {
        return None;
    }
    let value: f32 = value.trim().parse().unwrap_or(0.0);
    // In range after the clamp; NaN becomes 0
    Some((value.clamp(0.0, 1.0) * 1000.0) as u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(text: &'static str) -> Vec<Encoding> {
        accepted([&HeaderValue::from_static(text)])
    }

    #[test]
    fn the_client_s_weights_decide_and_the_smaller_form_among_equals() {
        use Encoding::{Brotli, Gzip};
        assert_eq!(of("gzip, deflate, br, zstd"), [Brotli, Gzip]);
        assert_eq!(of("gzip;q=1.0, br;q=0.5"), [Gzip, Brotli]);
        assert_eq!(of("br;q=0, gzip"), [Gzip]);
        assert_eq!(of("*"), [Brotli, Gzip]);
        assert_eq!(of("*;q=0.5, br;q=0"), [Gzip]);
        assert_eq!(of("identity, br;q=0.5"), []);
        assert_eq!(of("BR ; Q=0.3 , GZIP;q=0.2"), [Brotli, Gzip]);
        assert_eq!(of("br;q=nonsense"), []);
        assert_eq!(of(""), []);
        assert_eq!(of("gzip, identity;q=0"), [Gzip]);
        assert_eq!(of("*;q=0"), []);
        assert_eq!(accepted([]), []);
        assert_eq!(accepted(&["gzip", "br"].map(HeaderValue::from_static)), [Brotli, Gzip]);
    }

    proptest! {
        #[test]
        fn any_header_gives_each_form_at_most_once(text in "[ -~]{0,60}") {
            let forms = accepted([&text.parse().unwrap()]);
            prop_assert!(forms.len() <= 2 && !forms.contains(&Encoding::Identity));
            prop_assert!(forms.len() < 2 || forms[0] != forms[1]);
        }
    }
}
