//! The parameters of a rendering: parsed from a query, a body or a signed token, and written back.

use std::fmt::Write as _;

use crate::RequestedFormat;

/// The largest width and height of a result. Larger values of a request are lowered to it.
const MAX_DIMENSION: f64 = 2000.0;
/// The largest offset, in pixels. Beyond, a crop rests at the edge anyway.
const MAX_OFFSET: f64 = 1_000_000.0;

/// The way in which an image is brought to the requested size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResizeMode {
    /// Keeps the aspect ratio, fills the box and crops what projects.
    #[default]
    Cover,
    /// Keeps the aspect ratio and fits inside the box.
    Contain,
    /// Stretches to the box.
    Fill,
}

impl ResizeMode {
    const ALL: [Self; 3] = [Self::Cover, Self::Contain, Self::Fill];

    /// Returns the value of the parameter `resize`.
    fn name(self) -> &'static str {
        match self {
            Self::Cover => "cover",
            Self::Contain => "contain",
            Self::Fill => "fill",
        }
    }

    /// Returns the value of `resizing_type` in the header `X-Transformations`.
    fn resizing_type(self) -> &'static str {
        match self {
            Self::Cover => "fill",
            Self::Contain => "fit",
            Self::Fill => "force",
        }
    }
}

/// The part of an image that a crop keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gravity {
    /// Middle.
    #[default]
    Center,
    /// Top edge.
    North,
    /// Bottom edge.
    South,
    /// Right edge.
    East,
    /// Left edge.
    West,
    /// Top right corner.
    NorthEast,
    /// Top left corner.
    NorthWest,
    /// Bottom right corner.
    SouthEast,
    /// Bottom left corner.
    SouthWest,
    /// The part with the most detail.
    Smart,
    /// A point, in fractions of width and height.
    FocalPoint,
}

impl Gravity {
    const ALL: [Self; 11] = [
        Self::Center,
        Self::North,
        Self::South,
        Self::East,
        Self::West,
        Self::NorthEast,
        Self::NorthWest,
        Self::SouthEast,
        Self::SouthWest,
        Self::Smart,
        Self::FocalPoint,
    ];

    /// Returns the value of the parameter `gravity`.
    fn name(self) -> &'static str {
        match self {
            Self::Center => "ce",
            Self::North => "no",
            Self::South => "so",
            Self::East => "ea",
            Self::West => "we",
            Self::NorthEast => "noea",
            Self::NorthWest => "nowe",
            Self::SouthEast => "soea",
            Self::SouthWest => "sowe",
            Self::Smart => "sm",
            Self::FocalPoint => "fp",
        }
    }
}

/// The parameters of a rendering, within their bounds. The default changes nothing but the
/// encoding.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Transformation {
    width: Option<u32>,
    height: Option<u32>,
    resize: Option<ResizeMode>,
    quality: Option<u8>,
    format: Option<RequestedFormat>,
    gravity: Option<Gravity>,
    x_offset: Option<f64>,
    y_offset: Option<f64>,
}

/// A parameter that is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// A value outside its schema. Displays as `/quality must be >= 20`; the caller writes the part
    /// of the request before it (`querystring`, `body/transform`).
    #[error("/{field} {problem}")]
    Schema {
        /// The parameter.
        field: &'static str,
        /// The rule, in the words of JSON schema validators.
        problem: &'static str,
    },
    /// `gravity=fp` without two offsets between 0 and 1.
    #[error("Focal point requires x and y coordinates within 0-1 range")]
    FocalPoint,
}

const NOT_ALLOWED: &str = "must be equal to one of the allowed values";

impl Transformation {
    /// The names of the parameters. Others are not of a transformation.
    pub const FIELDS: [&'static str; 8] =
        ["height", "width", "resize", "format", "quality", "gravity", "x_offset", "y_offset"];

    /// Parses parameters given as text; other names are ignored.
    ///
    /// `value` returns the value of a field, if the request has it.
    ///
    /// # Errors
    /// The first parameter with an invalid value.
    pub fn parse<'a>(value: impl Fn(&str) -> Option<&'a str>) -> Result<Self, ParameterError> {
        let transformation = Self {
            height: value("height").map(|text| parse_dimension("height", text)).transpose()?.flatten(),
            width: value("width").map(|text| parse_dimension("width", text)).transpose()?.flatten(),
            resize: value("resize").map(parse_resize).transpose()?,
            format: value("format").map(parse_format).transpose()?,
            quality: value("quality").map(parse_quality).transpose()?,
            gravity: value("gravity").map(parse_gravity).transpose()?,
            x_offset: value("x_offset").map(|text| parse_offset("x_offset", text)).transpose()?,
            y_offset: value("y_offset").map(|text| parse_offset("y_offset", text)).transpose()?,
        };
        let is_fraction = |offset: Option<f64>| offset.is_some_and(|offset| (0.0..=1.0).contains(&offset));
        if transformation.gravity == Some(Gravity::FocalPoint)
            && !(is_fraction(transformation.x_offset) && is_fraction(transformation.y_offset))
        {
            return Err(ParameterError::FocalPoint);
        }
        Ok(transformation)
    }

    /// Parses the claim `transformations` of a signed URL (`height:50,width:100,resize:contain`).
    ///
    /// Values that are not valid count as absent, as `resize:undefined` does, which the reference
    /// server writes: the claim is signed, so it has passed [`Transformation::parse`] before.
    pub fn from_claim(claim: &str, format: Option<&str>) -> Self {
        let field = |name: &str| {
            let value = claim.split(',').find_map(|part| part.split_once(':').filter(|(key, _)| *key == name));
            value.map(|(_, value)| value).or_else(|| format.filter(|_| name == "format"))
        };
        let offset = |name| field(name).and_then(|text| parse_offset(name, text).ok());
        let mut transformation = Self {
            height: field("height").and_then(|text| parse_dimension("height", text).ok().flatten()),
            width: field("width").and_then(|text| parse_dimension("width", text).ok().flatten()),
            resize: field("resize").and_then(|text| parse_resize(text).ok()),
            format: field("format").and_then(|text| parse_format(text).ok()),
            quality: field("quality").and_then(|text| parse_quality(text).ok()),
            gravity: field("gravity").and_then(|text| parse_gravity(text).ok()),
            x_offset: offset("x_offset"),
            y_offset: offset("y_offset"),
        };
        let is_fraction = |offset: Option<f64>| offset.is_some_and(|offset| (0.0..=1.0).contains(&offset));
        if transformation.gravity == Some(Gravity::FocalPoint)
            && !(is_fraction(transformation.x_offset) && is_fraction(transformation.y_offset))
        {
            transformation.gravity = None;
        }
        transformation
    }

    /// Writes the claim `transformations` of a signed URL.
    pub fn to_claim(&self) -> String {
        self.write(|resize| ("resize", resize.name()))
    }

    /// Writes the value of the header `X-Transformations`, in the words of the processor of the
    /// reference server (`resizing_type:fit`).
    pub fn to_header(&self) -> String {
        let mut explicit = self.clone();
        explicit.resize = Some(self.resize());
        explicit.format = self.format.filter(|format| *format != RequestedFormat::Origin);
        explicit.write(|resize| ("resizing_type", resize.resizing_type()))
    }

    /// Writes the parameters that are given, as `name:value` with commas between.
    fn write(&self, resize_part: impl Fn(ResizeMode) -> (&'static str, &'static str)) -> String {
        let mut text = String::new();
        let mut part = |name: &str, value: &dyn std::fmt::Display| {
            let comma = if text.is_empty() { "" } else { "," };
            // Writing to a string does not fail
            let _ = write!(text, "{comma}{name}:{value}");
        };
        if let Some(height) = self.height {
            part("height", &height);
        }
        if let Some(width) = self.width {
            part("width", &width);
        }
        if let Some(resize) = self.resize {
            let (name, value) = resize_part(resize);
            part(name, &value);
        }
        if let Some(quality) = self.quality {
            part("quality", &quality);
        }
        if let Some(format) = self.format {
            part("format", &format.key());
        }
        if let Some(gravity) = self.gravity {
            part("gravity", &gravity.name());
        }
        if let Some(x_offset) = self.x_offset {
            part("x_offset", &x_offset);
        }
        if let Some(y_offset) = self.y_offset {
            part("y_offset", &y_offset);
        }
        text
    }

    /// Returns the width in pixels, if one is requested.
    pub fn width(&self) -> Option<u32> {
        self.width
    }

    /// Returns the height in pixels, if one is requested.
    pub fn height(&self) -> Option<u32> {
        self.height
    }

    /// Returns the resize mode.
    pub fn resize(&self) -> ResizeMode {
        self.resize.unwrap_or_default()
    }

    /// Returns the quality, 20 to 100, if one is requested.
    pub fn quality(&self) -> Option<u8> {
        self.quality
    }

    /// Returns the format that is asked for by name.
    pub fn format(&self) -> Option<RequestedFormat> {
        self.format
    }

    /// Returns the value of the parameter `format`, if one is requested.
    pub fn format_name(&self) -> Option<&'static str> {
        self.format.map(RequestedFormat::key)
    }

    /// Returns the part of the image that a crop keeps.
    pub fn gravity(&self) -> Gravity {
        self.gravity.unwrap_or_default()
    }

    /// Returns the horizontal and the vertical offset: pixels, or below 1 a fraction of the image.
    pub fn offsets(&self) -> (f64, f64) {
        (self.x_offset.unwrap_or_default(), self.y_offset.unwrap_or_default())
    }
}

/// Parses a number as JSON schema validators coerce it from text.
fn parse_number(text: &str) -> Option<f64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    text.trim().parse::<f64>().ok().filter(|number| is_number && number.is_finite())
}

fn parse_integer(field: &'static str, text: &str) -> Result<f64, ParameterError> {
    parse_number(text)
        .filter(|number| number.fract() == 0.0)
        .ok_or(ParameterError::Schema { field, problem: "must be integer" })
}

/// Parses a width or height. Zero means that none is requested.
fn parse_dimension(field: &'static str, text: &str) -> Result<Option<u32>, ParameterError> {
    let number = parse_integer(field, text)?;
    if number < 0.0 {
        return Err(ParameterError::Schema { field, problem: "must be >= 0" });
    }
    Ok((number > 0.0).then_some(number.min(MAX_DIMENSION) as u32))
}

fn parse_quality(text: &str) -> Result<u8, ParameterError> {
    let number = parse_integer("quality", text)?;
    if number < 20.0 {
        return Err(ParameterError::Schema { field: "quality", problem: "must be >= 20" });
    }
    if number > 100.0 {
        return Err(ParameterError::Schema { field: "quality", problem: "must be <= 100" });
    }
    Ok(number as u8)
}

fn parse_offset(field: &'static str, text: &str) -> Result<f64, ParameterError> {
    let number = parse_number(text).ok_or(ParameterError::Schema { field, problem: "must be number" })?;
    // `+ 0.0` makes zero of negative zero, so that both have one cache key
    Ok(number.clamp(-MAX_OFFSET, MAX_OFFSET) + 0.0)
}

fn parse_resize(text: &str) -> Result<ResizeMode, ParameterError> {
    let mode = ResizeMode::ALL.into_iter().find(|mode| mode.name() == text);
    mode.ok_or(ParameterError::Schema { field: "resize", problem: NOT_ALLOWED })
}

fn parse_gravity(text: &str) -> Result<Gravity, ParameterError> {
    let gravity = Gravity::ALL.into_iter().find(|gravity| gravity.name() == text);
    gravity.ok_or(ParameterError::Schema { field: "gravity", problem: NOT_ALLOWED })
}

fn parse_format(text: &str) -> Result<RequestedFormat, ParameterError> {
    match text {
        "origin" => Ok(RequestedFormat::Origin),
        "webp" => Ok(RequestedFormat::WebP),
        "avif" => Ok(RequestedFormat::Avif),
        _ => Err(ParameterError::Schema { field: "format", problem: NOT_ALLOWED }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Result<Transformation, String> {
        let pairs: Vec<_> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        Transformation::parse(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| *value))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn values_outside_the_schema_are_rejected_by_name() {
        for (query, error) in [
            ("width=a", "/width must be integer"),
            ("width=", "/width must be integer"),
            ("width=1.5", "/width must be integer"),
            ("width=NaN", "/width must be integer"),
            ("width=inf", "/width must be integer"),
            ("height=-1", "/height must be >= 0"),
            ("quality=19", "/quality must be >= 20"),
            ("quality=101", "/quality must be <= 100"),
            ("quality=50.5", "/quality must be integer"),
            ("resize=crop", "/resize must be equal to one of the allowed values"),
            ("format=jpeg", "/format must be equal to one of the allowed values"),
            ("format=webp-accepted", "/format must be equal to one of the allowed values"),
            ("gravity=up", "/gravity must be equal to one of the allowed values"),
            ("x_offset=left", "/x_offset must be number"),
            ("gravity=fp", "Focal point requires x and y coordinates within 0-1 range"),
            ("gravity=fp&x_offset=0.5", "Focal point requires x and y coordinates within 0-1 range"),
            ("gravity=fp&x_offset=0.5&y_offset=1.1", "Focal point requires x and y coordinates within 0-1 range"),
        ] {
            assert_eq!(parse(query), Err(error.to_owned()), "{query}");
        }
    }

    #[test]
    fn dimensions_are_clamped_and_zero_is_absent() {
        let parsed = parse("width=99999&height=0").unwrap();
        assert_eq!((parsed.width(), parsed.height()), (Some(2000), None));
        assert_eq!(parse("width=1e2").unwrap().width(), Some(100));
        assert_eq!(parse("").unwrap(), Transformation::default());
    }

    #[test]
    fn the_header_uses_the_words_of_the_processor() {
        let parsed = parse("width=100&height=50&resize=contain&quality=50&format=origin").unwrap();
        assert_eq!(parsed.to_header(), "height:50,width:100,resizing_type:fit,quality:50");
        assert_eq!(parse("width=100").unwrap().to_header(), "width:100,resizing_type:fill");
        assert_eq!(parse("height=9&resize=fill").unwrap().to_header(), "height:9,resizing_type:force");
    }

    #[test]
    fn a_claim_is_read_back_as_it_was_written() {
        for query in [
            "",
            "width=100&height=50&resize=contain&quality=50&format=webp",
            "width=7&gravity=fp&x_offset=0.25&y_offset=1",
            "height=7&gravity=soea&x_offset=-10&y_offset=0.5",
            "format=origin&resize=fill",
        ] {
            let parsed = parse(query).unwrap();
            assert_eq!(Transformation::from_claim(&parsed.to_claim(), None), parsed, "{query}");
        }
        let claim = "height:50,width:100,resize:undefined,quality:50";
        let expected = parse("height=50&width=100&quality=50&format=webp").unwrap();
        assert_eq!(Transformation::from_claim(claim, Some("webp")), expected);
        assert_eq!(Transformation::from_claim("width:x,gravity:fp,,:,y", None), Transformation::default());
    }
}
