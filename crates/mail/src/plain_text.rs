//! The plain-text part of an HTML email.

use std::borrow::Cow;

use crate::character_references;

/// The longest text that is made, in bytes. The rest is dropped.
const LONGEST: usize = 256 << 10;

/// Returns a readable text of an HTML email: paragraphs and breaks as lines, links with their
/// target in brackets, list items with a dash, nothing of scripts, styles and hidden elements.
pub fn plain_text(html: &str) -> String {
    let mut writer = PlainTextWriter::default();
    let mut rest = html;
    while !rest.is_empty() && writer.out.len() < LONGEST {
        let Some(start) = rest.find('<') else {
            writer.text(rest);
            break;
        };
        writer.text(&rest[..start]);
        rest = &rest[start..];
        rest = if let Some(comment) = rest.strip_prefix("<!--") {
            comment.find("-->").map_or("", |end| &comment[end + 3..])
        } else if rest[1..].starts_with(|next: char| next.is_ascii_alphabetic() || matches!(next, '/' | '!' | '?')) {
            let end = tag_end(rest);
            let tag = HtmlTag::read(&rest[1..end]);
            rest = rest.get(end + 1..).unwrap_or("");
            if !tag.closing && is_hidden(&tag) {
                skip_element(rest, &tag.name)
            } else {
                writer.tag(&tag);
                rest
            }
        } else {
            writer.text("<");
            &rest[1..]
        };
    }
    writer.finish()
}

#[derive(Default)]
struct PlainTextWriter {
    out: String,
    /// The line breaks before the next word.
    breaks: usize,
    space: bool,
    /// The link that is open: its target, and where its text began.
    link: Option<(String, usize)>,
    preformatted: usize,
}

impl PlainTextWriter {
    fn text(&mut self, text: &str) {
        let text = decode(text);
        if self.preformatted > 0 {
            self.flush();
            self.out.push_str(&text);
            return;
        }
        // Spaces that cannot break are content; the others only separate
        let words = text.split(|character: char| character.is_ascii_whitespace());
        let mut first = true;
        for word in words {
            if !first {
                self.space = true;
            }
            first = false;
            if word.is_empty() {
                continue;
            }
            self.flush();
            self.out.push_str(word);
        }
    }

    fn flush(&mut self) {
        if self.out.is_empty() {
            self.breaks = 0;
        } else if self.breaks > 0 {
            self.out.truncate(self.out.trim_end_matches(' ').len());
            self.out.push_str(&"\n".repeat(self.breaks.min(2)));
            self.breaks = 0;
        } else if self.space {
            self.out.push(' ');
        }
        self.space = false;
    }

    fn tag(&mut self, tag: &HtmlTag) {
        match tag.name.as_str() {
            "br" => self.breaks += 1,
            "p" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "ul" | "ol" | "table" | "blockquote" | "hr" | "pre" => {
                self.breaks = self.breaks.max(2);
            }
            "div" | "tr" | "section" | "header" | "footer" | "article" | "center" | "body" | "title" => {
                self.breaks = self.breaks.max(1);
            }
            "td" | "th" => self.space = true,
            "li" if !tag.closing => {
                self.breaks = self.breaks.max(1);
                self.flush();
                self.out.push_str("- ");
            }
            "img" => {
                if let Some(text) = tag.attribute("alt") {
                    self.text(&text);
                }
            }
            "a" if !tag.closing => {
                self.link = tag
                    .attribute("href")
                    .filter(|target| !target.starts_with('#'))
                    .map(|target| (target, self.out.len()));
            }
            "a" => self.close_link(),
            _ => {}
        }
        if tag.name == "pre" {
            self.preformatted = if tag.closing { self.preformatted.saturating_sub(1) } else { self.preformatted + 1 };
        }
    }

    fn close_link(&mut self) {
        let Some((target, start)) = self.link.take() else { return };
        let said = self.out.get(start..).unwrap_or("").trim();
        let target: String = target.chars().filter(|character| !character.is_control() && *character != ' ').collect();
        if said == target || target.strip_prefix("mailto:") == Some(said) {
            return;
        }
        if said.is_empty() {
            self.text(&target);
        } else {
            self.out.push_str(" (");
            self.out.push_str(&target);
            self.out.push(')');
        }
    }

    fn finish(self) -> String {
        let mut text = String::with_capacity(self.out.len() + 1);
        for line in self.out.trim().lines() {
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

struct HtmlTag<'h> {
    name: String,
    closing: bool,
    attributes: &'h str,
}

impl<'h> HtmlTag<'h> {
    fn read(inside: &'h str) -> Self {
        let (closing, inside) = match inside.strip_prefix('/') {
            Some(inside) => (true, inside),
            None => (false, inside),
        };
        let end = inside.find(|character: char| !character.is_ascii_alphanumeric()).unwrap_or(inside.len());
        Self { name: inside[..end].to_ascii_lowercase(), closing, attributes: &inside[end..] }
    }

    fn attribute(&self, wanted: &str) -> Option<String> {
        let mut rest = self.attributes;
        loop {
            rest = rest.trim_start_matches(|character: char| character.is_ascii_whitespace() || character == '/');
            let end = rest.find(|character: char| character.is_ascii_whitespace() || character == '=')?;
            let name = &rest[..end];
            rest = rest[end..].trim_start();
            let Some(value) = rest.strip_prefix('=') else { continue };
            let value = value.trim_start();
            let (text, after) = match value.chars().next() {
                Some(quote @ ('"' | '\'')) => {
                    let end = value[1..].find(quote)?;
                    (&value[1..=end], &value[end + 2..])
                }
                _ => {
                    value.split_at(value.find(|character: char| character.is_ascii_whitespace()).unwrap_or(value.len()))
                }
            };
            if name.eq_ignore_ascii_case(wanted) {
                return Some(decode(text).into_owned());
            }
            rest = after;
        }
    }
}

/// Returns the end of the tag at the start of `text`: its `>`, or the end of the text.
fn tag_end(text: &str) -> usize {
    let mut quote = None;
    let mut after_equals = false;
    for (position, byte) in text.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return position,
            (None, b'"' | b'\'') if after_equals => quote = Some(byte),
            (Some(open), _) if byte == open => quote = None,
            _ => {}
        }
        after_equals = byte == b'=' || (after_equals && byte.is_ascii_whitespace());
    }
    text.len()
}

fn is_hidden(tag: &HtmlTag) -> bool {
    const HOLDERS: [&str; 6] = ["style", "script", "title", "template", "noscript", "svg"];
    const EMPTY: [&str; 8] = ["br", "hr", "img", "input", "meta", "link", "col", "source"];
    HOLDERS.contains(&tag.name.as_str())
        || (!EMPTY.contains(&tag.name.as_str())
            && tag
                .attribute("style")
                .is_some_and(|style| style.replace(' ', "").to_ascii_lowercase().contains("display:none")))
}

/// Returns the text behind the element whose opening tag was just read.
fn skip_element<'h>(html: &'h str, name: &str) -> &'h str {
    let mut depth = 1;
    let mut rest = html;
    let raw = matches!(name, "style" | "script" | "title");
    while let Some(start) = rest.find('<') {
        rest = &rest[start..];
        let after = rest[1..].strip_prefix('/').unwrap_or(&rest[1..]);
        let same = after.get(..name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name))
            && !after[name.len()..].starts_with(|next: char| next.is_ascii_alphanumeric());
        let closing = rest[1..].starts_with('/');
        if same && (closing || !raw) {
            depth = if closing { depth - 1 } else { depth + 1 };
            let end = tag_end(rest);
            rest = rest.get(end + 1..).unwrap_or("");
            if depth == 0 {
                return rest;
            }
        } else {
            rest = &rest[1..];
        }
    }
    ""
}

/// Returns a text without character references. One of a control character stays.
fn decode(text: &str) -> Cow<'_, str> {
    character_references::decode(text, |name| {
        Some(match name {
            "nbsp" => '\u{a0}',
            "copy" => '©',
            "reg" => '®',
            "hellip" => '…',
            "ndash" => '–',
            "mdash" => '—',
            "lsquo" => '‘',
            "rsquo" => '’',
            "ldquo" => '“',
            "rdquo" => '”',
            "middot" => '·',
            "bull" => '•',
            "euro" => '€',
            name => return character_references::xml_character(name).filter(|character| !character.is_control()),
        })
    })
}
