//! The syntax of HTML as far as it decides how a value is escaped: contexts and attributes.

use std::borrow::Cow;

use crate::character_references;

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
    Script(ScriptState),
    Style(StyleState),
}

/// The meaning of an attribute's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttributeMeaning {
    Plain,
    Link,
    /// A link whose query or fragment has begun.
    LinkQuery,
    Links,
    Script(ScriptState),
    Style(StyleState),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScriptState {
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
pub(super) enum StyleState {
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
        "style" => AttributeMeaning::Style(StyleState::Code),
        "srcdoc" => AttributeMeaning::Plain,
        _ if name.starts_with("on") => AttributeMeaning::Script(ScriptState::Code),
        _ if LINKS.contains(&name) || ["src", "uri", "url"].iter().any(|part| name.contains(part)) => {
            AttributeMeaning::Link
        }
        _ => AttributeMeaning::Plain,
    }
}

/// Returns the characters that an attribute's text stands for, as far as they can matter to the
/// context of a value.
pub(super) fn decode(text: &str) -> Cow<'_, str> {
    character_references::decode(text, |name| {
        Some(match name {
            "quest" => '?',
            "num" => '#',
            "sol" => '/',
            "colon" => ':',
            name => return character_references::xml_character(name),
        })
    })
}
