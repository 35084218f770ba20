//! Follows HTML as it is written, to know at every point what a value would mean there.
//!
//! This is the part of Go's contextual escaping that its analyser does before a template runs. Here
//! it happens while the template is written, so that branches and loops need no analysis of their
//! own: the text that was really written decides.

use super::escape;
use super::html_syntax::{AttributeMeaning, HtmlContext, Quote, ScriptState, StyleState, decode, meaning_of};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    Other,
    Script,
    Style,
    Title,
    TextArea,
}

impl Element {
    fn named(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            "script" => Self::Script,
            "style" => Self::Style,
            "title" => Self::Title,
            "textarea" => Self::TextArea,
            _ => Self::Other,
        }
    }

    fn closing(self) -> &'static str {
        match self {
            Self::Script => "</script",
            Self::Style => "</style",
            Self::Title => "</title",
            Self::TextArea => "</textarea",
            Self::Other => "",
        }
    }

    fn inside(self) -> HtmlContext {
        match self {
            Self::Script => HtmlContext::Script(ScriptState::Code),
            Self::Style => HtmlContext::Style(StyleState::Code),
            Self::Title | Self::TextArea => HtmlContext::PlainElement,
            Self::Other => HtmlContext::Text,
        }
    }
}

/// Writes HTML: the template's own text as it is, values escaped.
#[derive(Debug)]
pub(super) struct HtmlWriter {
    pub out: String,
    context: HtmlContext,
    quote: Quote,
    element: Element,
    attribute: String,
    /// The last character of script code that was no white space; it tells a division from a
    /// regular expression.
    last_code: char,
    previous: char,
}

impl HtmlWriter {
    pub(super) fn new() -> Self {
        Self {
            out: String::new(),
            context: HtmlContext::Text,
            quote: Quote::None,
            element: Element::Other,
            attribute: String::new(),
            last_code: '\0',
            previous: '\0',
        }
    }

    /// Writes text of the template. HTML comments are left out, as Go leaves them out.
    pub(super) fn text(&mut self, text: &str) {
        let mut rest = text;
        while !rest.is_empty() {
            let taken = match self.context {
                HtmlContext::Text => self.in_text(rest),
                HtmlContext::Comment => self.in_comment(rest),
                HtmlContext::PlainElement | HtmlContext::Script(_) | HtmlContext::Style(_) => self.in_element(rest),
                HtmlContext::Tag | HtmlContext::AttributeName | HtmlContext::AfterName | HtmlContext::BeforeValue => {
                    self.in_tag(rest)
                }
                HtmlContext::Value(_) => self.in_value(rest),
            };
            rest = &rest[taken..];
        }
    }

    /// Writes a value, escaped for the place that has been reached. `printed` is the value as text.
    ///
    /// # Errors
    ///
    /// A text that says why no value can stand here.
    pub(super) fn value(&mut self, value: &serde_json::Value, printed: &str) -> Result<(), String> {
        if self.context == HtmlContext::BeforeValue {
            self.begin_value(Quote::None);
        }
        if matches!(self.context, HtmlContext::Tag | HtmlContext::AfterName) {
            self.context = HtmlContext::AttributeName;
            self.attribute.clear();
        }
        let in_attribute = |writer: &mut Self, text: &str| match writer.quote {
            Quote::None => writer.out.push_str(&escape::html_unquoted(text)),
            Quote::Double | Quote::Single => writer.out.push_str(&escape::html(text)),
        };
        match self.context {
            HtmlContext::Text | HtmlContext::PlainElement => self.out.push_str(&escape::html(printed)),
            HtmlContext::Comment => {}
            HtmlContext::Tag | HtmlContext::AfterName | HtmlContext::BeforeValue | HtmlContext::AttributeName => {
                let name = attribute_name(printed);
                self.attribute.push_str(name);
                self.out.push_str(name);
            }
            HtmlContext::Value(meaning) => match meaning {
                AttributeMeaning::Plain => in_attribute(self, printed),
                AttributeMeaning::Link | AttributeMeaning::Links if !escape::is_safe_url(printed.trim_start()) => {
                    in_attribute(self, &format!("#{}", escape::REFUSED));
                }
                AttributeMeaning::Link => in_attribute(self, &escape::url_whole(printed)),
                AttributeMeaning::Links => in_attribute(self, &escape::url_whole(printed).replace(',', "%2c")),
                AttributeMeaning::LinkQuery => in_attribute(self, &escape::url_part(printed)),
                AttributeMeaning::Script(script) => {
                    let text = self.in_script(script, value, printed)?;
                    in_attribute(self, &text);
                }
                AttributeMeaning::Style(style) => in_attribute(self, &in_style(style, printed)),
            },
            HtmlContext::Script(script) => {
                let text = self.in_script(script, value, printed)?;
                self.out.push_str(&text);
            }
            HtmlContext::Style(style) => self.out.push_str(&in_style(style, printed)),
        }
        Ok(())
    }

    /// Returns true if the next character is in the query or fragment of a link.
    pub(super) fn is_in_query(&self) -> bool {
        self.context == HtmlContext::Value(AttributeMeaning::LinkQuery)
    }

    fn in_script(&mut self, script: ScriptState, value: &serde_json::Value, printed: &str) -> Result<String, String> {
        match script {
            ScriptState::Code => {
                self.last_code = 'x';
                Ok(escape::js_value(value))
            }
            ScriptState::Quoted(_) => Ok(escape::js_string(printed)),
            ScriptState::LineComment | ScriptState::BlockComment => Ok(String::new()),
            ScriptState::Template | ScriptState::Expression { .. } => {
                Err("a value cannot stand inside a script's template literal or regular expression".to_owned())
            }
        }
    }

    fn in_text(&mut self, text: &str) -> usize {
        let Some(start) = text.find('<') else {
            self.out.push_str(text);
            return text.len();
        };
        self.out.push_str(&text[..start]);
        let tag = &text[start..];
        if tag.starts_with("<!--") {
            self.context = HtmlContext::Comment;
            return start + 4;
        }
        if tag.starts_with("<!") || tag.starts_with("<?") {
            self.out.push_str(&tag[..2]);
            return start + 2;
        }
        let closing = tag.starts_with("</");
        let name = &tag[if closing { 2 } else { 1 }..];
        if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
            // Were it left as it is, the value behind it could become a tag
            self.out.push_str("&lt;");
            return start + 1;
        }
        let end = name
            .find(|character: char| !character.is_ascii_alphanumeric() && !matches!(character, '-' | ':'))
            .unwrap_or(name.len());
        self.element = if closing { Element::Other } else { Element::named(&name[..end]) };
        self.context = HtmlContext::Tag;
        let length = tag.len() - name.len() + end;
        self.out.push_str(&tag[..length]);
        start + length
    }

    fn in_comment(&mut self, text: &str) -> usize {
        match text.find("-->") {
            Some(end) => {
                self.context = HtmlContext::Text;
                end + 3
            }
            None => text.len(),
        }
    }

    /// Reads the text inside script, style, title and textarea until the closing tag, whatever else
    /// the text says. Returns its length.
    fn in_element(&mut self, text: &str) -> usize {
        let closing = self.element.closing();
        let end = text.match_indices('<').map(|(position, _)| position).find(|&position| {
            text.get(position..position + closing.len()).is_some_and(|tag| tag.eq_ignore_ascii_case(closing))
        });
        let inside = &text[..end.unwrap_or(text.len())];
        match self.context {
            HtmlContext::Script(script) => self.context = HtmlContext::Script(self.follow_script(script, inside)),
            HtmlContext::Style(style) => self.context = HtmlContext::Style(self.follow_style(style, inside)),
            _ => {}
        }
        self.out.push_str(inside);
        if end.is_some() {
            self.context = HtmlContext::Text;
            self.element = Element::Other;
            self.last_code = '\0';
        }
        // At the closing tag nothing may be taken yet: the place has changed and the tag is read as
        // one
        inside.len()
    }

    fn in_tag(&mut self, text: &str) -> usize {
        let Some(first) = text.chars().next() else { return 0 };
        let length = first.len_utf8();
        let space = first.is_ascii_whitespace() || first == '/';
        if self.context == HtmlContext::AttributeName {
            let end = text
                .find(|character: char| character.is_ascii_whitespace() || matches!(character, '=' | '>' | '/'))
                .unwrap_or(text.len());
            if end > 0 {
                // Only the beginning of a name can matter; a long one is no known attribute
                if self.attribute.len() < 64 {
                    self.attribute.push_str(&text[..end]);
                }
                self.out.push_str(&text[..end]);
                return end;
            }
            self.context = HtmlContext::AfterName;
        }
        match (self.context, first) {
            (_, '>') => {
                self.out.push('>');
                self.context = self.element.inside();
                self.last_code = '\0';
                return 1;
            }
            (HtmlContext::AfterName, '=') => self.context = HtmlContext::BeforeValue,
            (HtmlContext::BeforeValue, '"') => self.begin_value(Quote::Double),
            (HtmlContext::BeforeValue, '\'') => self.begin_value(Quote::Single),
            (HtmlContext::BeforeValue, _) if !space || first == '/' => {
                self.begin_value(Quote::None);
                return 0;
            }
            (HtmlContext::Tag | HtmlContext::AfterName, _) if !space => {
                self.context = HtmlContext::AttributeName;
                self.attribute.clear();
                // An attribute may begin with what else ends one, and must then still be left
                // behind
                self.attribute.push(first);
            }
            _ => {}
        }
        self.out.push(first);
        length
    }

    fn begin_value(&mut self, quote: Quote) {
        self.quote = quote;
        self.context = HtmlContext::Value(meaning_of(&self.attribute));
        self.last_code = '\0';
        self.previous = '\0';
    }

    fn in_value(&mut self, text: &str) -> usize {
        let end = match self.quote {
            Quote::Double => text.find('"'),
            Quote::Single => text.find('\''),
            Quote::None => text.find(|character: char| character.is_ascii_whitespace() || character == '>'),
        };
        let inside = &text[..end.unwrap_or(text.len())];
        if let HtmlContext::Value(meaning) = self.context {
            let decoded = decode(inside);
            let next = match meaning {
                AttributeMeaning::Link if decoded.contains(['?', '#']) => AttributeMeaning::LinkQuery,
                AttributeMeaning::Script(script) => AttributeMeaning::Script(self.follow_script(script, &decoded)),
                AttributeMeaning::Style(style) => AttributeMeaning::Style(self.follow_style(style, &decoded)),
                same => same,
            };
            self.context = HtmlContext::Value(next);
        }
        self.out.push_str(inside);
        if end.is_none() {
            return text.len();
        }
        self.context = HtmlContext::Tag;
        match self.quote {
            Quote::None => inside.len(),
            Quote::Double | Quote::Single => {
                self.out.push_str(&text[inside.len()..=inside.len()]);
                inside.len() + 1
            }
        }
    }

    fn follow_script(&mut self, mut script: ScriptState, text: &str) -> ScriptState {
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            script = match (script, character) {
                (ScriptState::Code, '"' | '\'') => ScriptState::Quoted(character),
                (ScriptState::Code, '`') => ScriptState::Template,
                (ScriptState::Code, '/') if characters.next_if_eq(&'/').is_some() => ScriptState::LineComment,
                (ScriptState::Code, '/') if characters.next_if_eq(&'*').is_some() => ScriptState::BlockComment,
                (ScriptState::Code, '/') if !ends_operand(self.last_code) => {
                    ScriptState::Expression { in_class: false }
                }
                (ScriptState::Code, '!') if self.last_code == '<' && characters.peek() == Some(&'-') => {
                    ScriptState::LineComment
                }
                (ScriptState::Quoted(_) | ScriptState::Template | ScriptState::Expression { .. }, '\\') => {
                    characters.next();
                    script
                }
                (ScriptState::Quoted(quote), _) if character == quote || character == '\n' => ScriptState::Code,
                (ScriptState::Template, '`') => ScriptState::Code,
                (ScriptState::Expression { in_class: false }, '/' | '\n') => ScriptState::Code,
                (ScriptState::Expression { .. }, '[') => ScriptState::Expression { in_class: true },
                (ScriptState::Expression { .. }, ']') => ScriptState::Expression { in_class: false },
                (ScriptState::LineComment, '\n' | '\r' | '\u{2028}' | '\u{2029}') => ScriptState::Code,
                (ScriptState::BlockComment, '*') if characters.next_if_eq(&'/').is_some() => ScriptState::Code,
                (same, _) => same,
            };
            if script == ScriptState::Code && !character.is_whitespace() {
                // The end of a text counts as an operand, so that a slash behind it divides
                self.last_code = if matches!(character, '"' | '\'' | '`' | '/') { 'x' } else { character };
            }
        }
        script
    }

    fn follow_style(&mut self, mut style: StyleState, text: &str) -> StyleState {
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            style = match (style, character) {
                (StyleState::Code | StyleState::Link, '"' | '\'') => StyleState::Quoted(character),
                (StyleState::Code, '/') if characters.next_if_eq(&'*').is_some() => StyleState::Comment,
                (StyleState::Code, '(') if matches!(self.previous, 'l' | 'L') => StyleState::Link,
                (StyleState::Link, ')') => StyleState::Code,
                (_, '\\') => {
                    characters.next();
                    style
                }
                (StyleState::Quoted(quote), _) if character == quote || character == '\n' => StyleState::Code,
                (StyleState::Comment, '*') if characters.next_if_eq(&'/').is_some() => StyleState::Code,
                (same, _) => same,
            };
            self.previous = character;
        }
        style
    }
}

fn in_style(style: StyleState, printed: &str) -> String {
    match style {
        StyleState::Code => escape::css_value(printed),
        // A quoted text may be a link (`url("...")`, `@import "..."`)
        StyleState::Quoted(_) if escape::is_safe_url(printed.trim_start()) => escape::css_string(printed),
        StyleState::Link if escape::is_safe_url(printed.trim_start()) => escape::url_whole(printed),
        StyleState::Quoted(_) | StyleState::Link => format!("#{}", escape::REFUSED),
        StyleState::Comment => String::new(),
    }
}

/// Returns true if a slash behind this character is a division. A bracket or a name may end an
/// operand, or a statement that a regular expression follows; taken for a division, such an
/// expression leaves its slashes and quotes to be read as code, and at worst a value is escaped for
/// a quoted text that is none: it then stays without quotation marks and operators.
fn ends_operand(last: char) -> bool {
    last.is_alphanumeric() || matches!(last, '_' | '$' | ')' | ']' | '}')
}

fn attribute_name(printed: &str) -> &str {
    let harmless = !printed.is_empty()
        && printed.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && meaning_of(printed) == AttributeMeaning::Plain
        && !printed.to_ascii_lowercase().starts_with("http-equiv");
    if harmless { printed } else { escape::REFUSED }
}

impl From<HtmlWriter> for String {
    fn from(writer: HtmlWriter) -> Self {
        writer.out
    }
}
