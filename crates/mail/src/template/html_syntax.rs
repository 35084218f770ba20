//! The syntax of HTML as far as it decides how a value is escaped: contexts and attributes.

/// The context of the next character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HtmlContext {
    Text,
    Comment,
    /// Text of an element without markup inside: title, textarea.
    PlainElement,
    Tag,
    AttributeName,
    AfterName,
    BeforeValue,
    Value(AttributeMeaning),
    Script(Script),
    Style(Style),
}

/// The meaning of an attribute's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttributeMeaning {
    Plain,
    Link,
    /// A link whose query or fragment has begun.
    LinkQuery,
    Links,
    Script(Script),
    Style(Style),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Script {
    Code,
    Quoted(char),
    /// A literal with back ticks, or a regular expression: no value is safe there.
    Template,
    Expression {
        in_class: bool,
    },
    LineComment,
    BlockComment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Code,
    Quoted(char),
    Link,
    Comment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quote {
    Double,
    Single,
    None,
}

/// Returns the meaning of the values of an attribute.
pub(super) fn meaning_of(attribute: &str) -> AttributeMeaning {
    const LINKS: [&str; 17] = [
        "action",
        "archive",
        "background",
        "cite",
        "classid",
        "codebase",
        "data",
        "formaction",
        "href",
        "icon",
        "longdesc",
        "manifest",
        "poster",
        "profile",
        "src",
        "usemap",
        "xmlns",
    ];
    let lower = attribute.to_ascii_lowercase();
    let name = match lower.strip_prefix("data-") {
        Some(name) => name,
        None => match lower.split_once(':') {
            Some(("xmlns", _)) => return AttributeMeaning::Link,
            Some((_, name)) => name,
            None => &lower,
        },
    };
    match name {
        "srcset" | "imagesrcset" => AttributeMeaning::Links,
        "style" => AttributeMeaning::Style(Style::Code),
        "srcdoc" => AttributeMeaning::Plain,
        _ if name.starts_with("on") => AttributeMeaning::Script(Script::Code),
        _ if LINKS.contains(&name) || ["src", "uri", "url"].iter().any(|part| name.contains(part)) => {
            AttributeMeaning::Link
        }
        _ => AttributeMeaning::Plain,
    }
}

/// Returns the characters that an attribute's text stands for, as far as they can matter to the
/// context of a value.
pub(super) fn decode(text: &str) -> std::borrow::Cow<'_, str> {
    if !text.contains('&') {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('&') {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let end = rest.bytes().take(12).position(|byte| byte == b';');
        let decoded = end.and_then(|end| {
            let character = match &rest[1..end] {
                "amp" => '&',
                "lt" => '<',
                "gt" => '>',
                "quot" => '"',
                "apos" => '\'',
                "quest" => '?',
                "num" => '#',
                "sol" => '/',
                "colon" => ':',
                name => {
                    let number = name.strip_prefix('#')?;
                    let code = match number.strip_prefix(['x', 'X']) {
                        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                        None => number.parse().ok()?,
                    };
                    char::from_u32(code)?
                }
            };
            Some((character, end + 1))
        });
        match decoded {
            Some((character, length)) => {
                out.push(character);
                rest = &rest[length..];
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out.into()
}
