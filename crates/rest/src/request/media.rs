//! Media types: `Accept` and `Content-Type`.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt::Write as _;

use http::{HeaderMap, header};

/// The limit of media types in `Accept`.
const MAX_TYPES: usize = 64;

/// A media type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MediaType {
    /// `*/*`
    Any,
    /// `application/json`, and `application/vnd.pgrst.array+json` without `nulls=stripped`
    Json,
    /// `application/vnd.pgrst.array+json;nulls=stripped`
    StrippedArray,
    /// `application/vnd.pgrst.object+json`
    Object {
        /// `nulls=stripped`
        stripped: bool,
    },
    /// `text/csv`
    Csv,
    /// `application/geo+json`
    GeoJson,
    /// `application/openapi+json`
    OpenApi,
    /// `application/octet-stream`
    Binary,
    /// `text/plain`
    Text,
    /// `text/xml`
    Xml,
    /// `application/x-www-form-urlencoded`
    Form,
    /// `application/vnd.pgrst.plan`
    Explain(ExplainRequest),
    /// Any other: type and subtype in lower case, without parameters.
    Other(String),
}

/// A request for the output of `EXPLAIN` instead of the result.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExplainRequest {
    /// `+text` or `+json`.
    pub format: ExplainFormat,
    /// `for`: the media type of the explained response; never one of `EXPLAIN` itself.
    pub of: Box<MediaType>,
    /// `options`, each at most once.
    pub options: Vec<ExplainOption>,
}

/// The format of the output of `EXPLAIN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExplainFormat {
    /// The form in which `psql` shows a value.
    Text,
    /// JSON.
    Json,
}

/// An option of `EXPLAIN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExplainOption {
    /// Runs the statement and reports times.
    Analyze,
    /// Reports the output of each node.
    Verbose,
    /// Reports planner settings that differ from the defaults.
    Settings,
    /// Reports blocks that were read and written.
    Buffers,
    /// Reports the volume of the write-ahead log.
    Wal,
}

impl ExplainOption {
    const ALL: [Self; 5] = [Self::Analyze, Self::Verbose, Self::Settings, Self::Buffers, Self::Wal];

    /// Returns the option as it is written in the header and, in any letter case, in `EXPLAIN`.
    pub fn text(self) -> &'static str {
        match self {
            Self::Analyze => "analyze",
            Self::Verbose => "verbose",
            Self::Settings => "settings",
            Self::Buffers => "buffers",
            Self::Wal => "wal",
        }
    }
}

impl MediaType {
    /// Parses a media type with its parameters. An unknown type is [`MediaType::Other`].
    pub fn parse(text: &str) -> Self {
        let text: Cow<'_, str> = match text.contains(char::is_whitespace) {
            true => text.split_whitespace().collect::<String>().into(),
            false => text.into(),
        };
        Self::parse_bare(&text, true)
    }

    /// Parses `text`, which has no spaces. The `for` of an `EXPLAIN` type cannot be such a type
    /// again.
    fn parse_bare(text: &str, may_be_plan: bool) -> Self {
        let mut parts = parts(text);
        let mut essence = parts.next().unwrap_or_default().to_ascii_lowercase();
        // The text is part of responses, sometimes in quotes: only token characters are kept (RFC
        // 9110, 5.6.2)
        essence.retain(|c| c.is_ascii_alphanumeric() || "/!#$%&'*+-.^_`|~".contains(c));
        let parameter = |name: &str| {
            parts.clone().find_map(|part| {
                let (key, value) = part.split_once('=')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim_matches('"'))
            })
        };
        let stripped = || parameter("nulls").is_some_and(|value| value.eq_ignore_ascii_case("stripped"));
        match essence.as_str() {
            "*/*" => Self::Any,
            "application/json" => Self::Json,
            "application/vnd.pgrst.array+json" | "application/vnd.pgrst.array" => match stripped() {
                true => Self::StrippedArray,
                false => Self::Json,
            },
            "application/vnd.pgrst.object+json" | "application/vnd.pgrst.object" => {
                Self::Object { stripped: stripped() }
            }
            "text/csv" => Self::Csv,
            "application/geo+json" => Self::GeoJson,
            "application/openapi+json" => Self::OpenApi,
            "application/octet-stream" => Self::Binary,
            "text/plain" => Self::Text,
            "text/xml" => Self::Xml,
            "application/x-www-form-urlencoded" => Self::Form,
            "application/vnd.pgrst.plan" | "application/vnd.pgrst.plan+text" | "application/vnd.pgrst.plan+json"
                if may_be_plan =>
            {
                let format = if essence.ends_with("+json") { ExplainFormat::Json } else { ExplainFormat::Text };
                let of = parameter("for").map_or(Self::Json, |text| Self::parse_bare(text, false));
                let mut options = Vec::new();
                for word in parameter("options").into_iter().flat_map(|text| text.split('|')) {
                    let option = ExplainOption::ALL.into_iter().find(|option| option.text().eq_ignore_ascii_case(word));
                    options.extend(option.filter(|option| !options.contains(option)));
                }
                Self::Explain(ExplainRequest { format, of: Box::new(of), options })
            }
            _ => Self::Other(essence),
        }
    }

    /// Returns the media type without a charset.
    pub fn text(&self) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Self::Any => "*/*",
            Self::Json => "application/json",
            Self::StrippedArray => "application/vnd.pgrst.array+json;nulls=stripped",
            Self::Object { stripped: false } => "application/vnd.pgrst.object+json",
            Self::Object { stripped: true } => "application/vnd.pgrst.object+json;nulls=stripped",
            Self::Csv => "text/csv",
            Self::GeoJson => "application/geo+json",
            Self::OpenApi => "application/openapi+json",
            Self::Binary => "application/octet-stream",
            Self::Text => "text/plain",
            Self::Xml => "text/xml",
            Self::Form => "application/x-www-form-urlencoded",
            Self::Explain(plan) => return Cow::Owned(plan.text()),
            Self::Other(text) => text,
        })
    }

    /// Returns `Content-Type`, with a charset for known text types.
    pub fn content_type(&self) -> String {
        match self {
            Self::Any | Self::Binary => "application/octet-stream".to_owned(),
            Self::Other(text) => text.clone(),
            known => format!("{}; charset=utf-8", known.text()),
        }
    }
}

impl ExplainRequest {
    fn text(&self) -> String {
        let format = match self.format {
            ExplainFormat::Text => "text",
            ExplainFormat::Json => "json",
        };
        let mut text = format!("application/vnd.pgrst.plan+{format}; for=\"{}\"", self.of.text());
        for (at, option) in self.options.iter().enumerate() {
            let _ = write!(text, "{}{}", if at == 0 { "; options=" } else { "|" }, option.text());
        }
        text
    }
}

/// Returns the media types that the client accepts, the best first: by `q`, then by the number of
/// `;` minus the number of `*`, then by position. Without `Accept`, everything is accepted.
pub fn accepted(headers: &HeaderMap) -> Vec<MediaType> {
    let mut types = Vec::new();
    for value in headers.get_all(header::ACCEPT) {
        let text = String::from_utf8_lossy(value.as_bytes());
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            if types.len() == MAX_TYPES {
                break;
            }
            let number = |wanted: u8| item.bytes().filter(|&byte| byte == wanted).count() as i64;
            types.push((quality(item), number(b';') - number(b'*'), MediaType::parse(item)));
        }
    }
    if types.is_empty() {
        return vec![MediaType::Any];
    }
    types.sort_by_key(|&(quality, detail, _)| Reverse((quality, detail)));
    types.into_iter().map(|(_, _, media_type)| media_type).collect()
}

/// Returns the media type of the body; JSON by default.
pub fn content_type(headers: &HeaderMap) -> MediaType {
    match headers.get(header::CONTENT_TYPE) {
        Some(value) if !value.is_empty() => MediaType::parse(&String::from_utf8_lossy(value.as_bytes())),
        _ => MediaType::Json,
    }
}

/// Returns `q` in thousandths; 1 if it is absent or not a number.
fn quality(item: &str) -> i64 {
    let value = parts(item).skip(1).find_map(|part| {
        let (key, value) = part.split_once('=')?;
        key.trim().eq_ignore_ascii_case("q").then_some(value)
    });
    let value = value.and_then(|text| text.trim().parse::<f64>().ok()).filter(|quality| quality.is_finite());
    value.map_or(1000, |quality| (quality.clamp(0.0, 1.0) * 1000.0) as i64)
}

/// Splits at each `;` outside of quotes.
fn parts(text: &str) -> impl Iterator<Item = &str> + Clone {
    let mut in_quotes = false;
    text.split(move |c| {
        in_quotes ^= c == '"';
        c == ';' && !in_quotes
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn accept(values: &[&str]) -> Vec<MediaType> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::ACCEPT, HeaderValue::from_str(value).unwrap());
        }
        accepted(&headers)
    }

    #[test]
    fn types_are_read_in_any_letter_case_and_with_any_parameters() {
        for (text, expected) in [
            ("*/*", MediaType::Any),
            ("Application/JSON; charset=utf-8", MediaType::Json),
            ("application/vnd.pgrst.array+json", MediaType::Json),
            ("application/vnd.pgrst.array;NULLS=stripped", MediaType::StrippedArray),
            ("application/vnd.pgrst.object", MediaType::Object { stripped: false }),
            ("application/vnd.pgrst.object+json; nulls=stripped", MediaType::Object { stripped: true }),
            ("text/csv;header=present", MediaType::Csv),
            ("application/geo+json", MediaType::GeoJson),
            ("application/openapi+json", MediaType::OpenApi),
            ("application/octet-stream", MediaType::Binary),
            ("text/plain", MediaType::Text),
            ("text/xml", MediaType::Xml),
            ("application/x-www-form-urlencoded", MediaType::Form),
            ("Image/PNG;q=0.5", MediaType::Other("image/png".into())),
            ("", MediaType::Other(String::new())),
        ] {
            assert_eq!(MediaType::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn the_best_type_comes_first() {
        assert_eq!(accept(&[]), [MediaType::Any]);
        assert_eq!(accept(&[""]), [MediaType::Any]);
        assert_eq!(
            accept(&["text/csv;q=0.5, */*;q=0.1, application/json;q=0.9", "text/xml"]),
            [MediaType::Xml, MediaType::Json, MediaType::Csv, MediaType::Any]
        );
        // As a browser sends it: fewer stars and more parameters are more specific
        assert_eq!(
            accept(&["*/*,text/*,text/csv,application/vnd.pgrst.object+json;nulls=stripped"]),
            [MediaType::Object { stripped: true }, MediaType::Csv, MediaType::Other("text/*".into()), MediaType::Any]
        );
        assert_eq!(accept(&["text/csv,application/json"]), [MediaType::Csv, MediaType::Json]);
        assert_eq!(accept(&["text/csv;q=high,text/xml;q=NaN"]), [MediaType::Csv, MediaType::Xml]);
    }

    #[test]
    fn explain_types_are_parsed_with_the_explained_type() {
        let text = "application/vnd.pgrst.plan+json; for=\"application/vnd.pgrst.object+json;nulls=stripped\"; \
                    options=analyze|VERBOSE|analyze|other;";
        let MediaType::Explain(plan) = MediaType::parse(text) else { panic!() };
        assert_eq!(plan.format, ExplainFormat::Json);
        assert_eq!(*plan.of, MediaType::Object { stripped: true });
        assert_eq!(plan.options, [ExplainOption::Analyze, ExplainOption::Verbose]);
        assert_eq!(
            MediaType::parse("application/vnd.pgrst.plan; for=\"application/json\"; options=analyze|verbose")
                .content_type(),
            "application/vnd.pgrst.plan+text; for=\"application/json\"; options=analyze|verbose; charset=utf-8"
        );
        assert_eq!(
            MediaType::parse("application/vnd.pgrst.plan+text; for=\"application/json\"; options=;").content_type(),
            "application/vnd.pgrst.plan+text; for=\"application/json\"; charset=utf-8"
        );
        let MediaType::Explain(plan) = MediaType::parse("application/vnd.pgrst.plan;for=application/vnd.pgrst.plan")
        else {
            panic!()
        };
        assert_eq!(*plan.of, MediaType::Other("application/vnd.pgrst.plan".into()));
    }

    #[test]
    fn quotes_inside_a_type_do_not_end_the_explained_type() {
        let read = MediaType::parse("application/vnd.pgrst.plan+text; for=\"a/b\"c;\"; d\"");
        let MediaType::Explain(plan) = &read else { panic!() };
        assert_eq!(*plan.of, MediaType::Other("a/bc".into()));
        assert_eq!(MediaType::parse(&read.text()), read);
        assert_eq!(MediaType::parse("é\"x;\"/y"), MediaType::Other("x/y".into()));
    }

    #[test]
    fn responses_name_their_charset_if_it_is_known() {
        assert_eq!(MediaType::Json.content_type(), "application/json; charset=utf-8");
        assert_eq!(
            MediaType::StrippedArray.content_type(),
            "application/vnd.pgrst.array+json;nulls=stripped; charset=utf-8"
        );
        assert_eq!(MediaType::Binary.content_type(), "application/octet-stream");
        assert_eq!(MediaType::Other("image/png".into()).content_type(), "image/png");
    }

    #[test]
    fn requests_without_a_type_are_json() {
        let mut headers = HeaderMap::new();
        assert_eq!(content_type(&headers), MediaType::Json);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8"));
        assert_eq!(content_type(&headers), MediaType::Csv);
    }

    proptest! {
        #[test]
        fn a_written_type_parses_to_the_same_type(text in "[a-z*/+.;=\" |-]{0,40}") {
            let read = MediaType::parse(&text);
            prop_assert_eq!(MediaType::parse(&read.text()), read);
        }
    }
}
