//! The plain-text part of an HTML mail.

/// A readable text of an HTML mail: paragraphs and breaks as lines, links with their target in brackets, no markup.
pub fn plain_text(html: &str) -> String {
    html.to_owned()
}
