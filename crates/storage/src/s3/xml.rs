//! XML: responses are written, bodies are read into a small tree. Documents are bounded in size and
//! depth, and have no document type.

use std::fmt::Write as _;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, header};
use quick_xml::Reader;
use quick_xml::events::Event;

use crate::error::{Result, S3Error, StorageError};

const DECLARATION: &str = r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?>"#;
const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";
/// The most elements within each other.
const MAX_DEPTH: usize = 8;
/// The most elements of a document: those of 10,000 parts with checksums.
const MAX_ELEMENTS: usize = 100_000;

/// Writes a document.
pub(super) struct XmlWriter(String);

impl XmlWriter {
    pub fn new() -> Self {
        Self(DECLARATION.to_owned())
    }

    /// Returns the document.
    pub fn into_text(self) -> String {
        self.0
    }

    /// Writes the root element with its content.
    pub fn root(&mut self, name: &str, content: impl FnOnce(&mut Self)) {
        let _ = write!(self.0, "<{name} xmlns=\"{NAMESPACE}\">");
        content(self);
        let _ = write!(self.0, "</{name}>");
    }

    /// Writes an element with other elements.
    pub fn element(&mut self, name: &str, content: impl FnOnce(&mut Self)) {
        let _ = write!(self.0, "<{name}>");
        content(self);
        let _ = write!(self.0, "</{name}>");
    }

    /// Writes an element with a text.
    pub fn text(&mut self, name: &str, text: &str) {
        if text.is_empty() {
            let _ = write!(self.0, "<{name}/>");
        } else {
            self.element(name, |xml| xml.escaped(text));
        }
    }

    /// Writes the text of the current element.
    pub fn escaped(&mut self, text: &str) {
        for character in text.chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\r' => self.0.push_str("&#13;"),
                '\n' | '\t' => self.0.push(character),
                // No document can have these
                '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => self.0.push('\u{fffd}'),
                other => self.0.push(other),
            }
        }
    }
}

/// Returns a response with a document.
pub(super) fn xml_response(xml: XmlWriter) -> Response {
    let mut response = Response::new(Body::from(xml.into_text()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml; charset=utf-8"));
    response
}

/// An element of a document that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct XmlElement {
    /// Without a prefix.
    pub name: String,
    /// The text directly in it.
    pub text: String,
    pub children: Vec<XmlElement>,
}

impl XmlElement {
    /// Reads a document whose root has this name.
    ///
    /// # Errors
    /// `MalformedXML`
    pub fn parse(document: &[u8], root: &str) -> Result<Self> {
        let element = Self::read(document).map_err(|reason| StorageError::from(S3Error::malformed_xml(&reason)))?;
        if element.name == root { Ok(element) } else { Err(S3Error::malformed_xml("unexpected root element").into()) }
    }

    fn read(document: &[u8]) -> std::result::Result<Self, String> {
        let text = std::str::from_utf8(document).map_err(|_| "not UTF-8")?;
        let mut reader = Reader::from_str(text);
        // The parents of the current element, from the root
        let mut open: Vec<Self> = Vec::new();
        let (mut root, mut count) = (None, 0);
        loop {
            let event = reader.read_event().map_err(|error| error.to_string())?;
            let ended = match event {
                Event::Eof if open.is_empty() => return root.ok_or_else(|| "no root element".into()),
                Event::Eof => return Err("unexpected end".into()),
                Event::DocType(_) => return Err("a document type is not allowed".into()),
                Event::Start(_) | Event::Empty(_) if root.is_some() => return Err("more than one root element".into()),
                Event::Start(ref start) | Event::Empty(ref start) => {
                    count += 1;
                    if count > MAX_ELEMENTS || open.len() == MAX_DEPTH {
                        return Err("too many elements".into());
                    }
                    let name = start.local_name().as_ref().to_owned();
                    let element = Self { name, ..Self::default() };
                    if matches!(event, Event::Empty(_)) {
                        Some(element)
                    } else {
                        open.push(element);
                        None
                    }
                }
                Event::End(_) => open.pop(),
                Event::Text(text) => {
                    append(&mut open, &text.xml10_content())?;
                    None
                }
                Event::CData(text) => {
                    append(&mut open, &text.xml10_content())?;
                    None
                }
                Event::GeneralRef(reference) => {
                    let character = reference.resolve_char_ref().map_err(|error| error.to_string())?;
                    let character = character.or(match &*reference {
                        "amp" => Some('&'),
                        "lt" => Some('<'),
                        "gt" => Some('>'),
                        "quot" => Some('"'),
                        "apos" => Some('\''),
                        _ => None,
                    });
                    append(&mut open, character.ok_or("an unknown entity")?.encode_utf8(&mut [0; 4]))?;
                    None
                }
                Event::Decl(_) | Event::PI(_) | Event::Comment(_) => None,
            };
            if let Some(element) = ended {
                match open.last_mut() {
                    Some(parent) => parent.children.push(element),
                    None => root = Some(element),
                }
            }
        }
    }

    /// Returns the text of the first child of a name.
    pub fn child(&self, name: &str) -> Option<&str> {
        self.children.iter().find(|child| child.name == name).map(|child| child.text.as_str())
    }

    /// Returns the children of a name.
    pub fn children<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |child| child.name == name)
    }
}

fn append(open: &mut [XmlElement], text: &str) -> std::result::Result<(), String> {
    match open.last_mut() {
        Some(element) => element.text.push_str(text),
        None if text.trim_matches(['\u{feff}', ' ', '\n', '\r', '\t']).is_empty() => {}
        None => return Err("text outside of the root element".into()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_body_is_read_with_its_entities() {
        let document = br#"<?xml version="1.0"?><Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
            <Object><Key>a &amp; b&#x2f;c<![CDATA[<d>]]></Key></Object><s:Quiet>true</s:Quiet><Object><Key/></Object></Delete>"#;
        let read = XmlElement::parse(document, "Delete").unwrap();
        let keys: Vec<Option<&str>> = read.children("Object").map(|object| object.child("Key")).collect();
        assert_eq!((keys, read.child("Quiet")), (vec![Some("a & b/c<d>"), Some("")], Some("true")));
    }

    #[test]
    fn a_body_that_is_not_the_expected_document_is_malformed() {
        let deep = format!("<a>{}{}</a>", "<b>".repeat(20), "</b>".repeat(20));
        let bomb = r#"<!DOCTYPE a [<!ENTITY x "xxxxxxxx"><!ENTITY y "&x;&x;">]><a>&y;</a>"#;
        for document in
            ["", "x", "<a>", "<a></b>", "<b/>", "<a/><a/>", "<a>&x;</a>", "<a>&#x0;</a>", bomb, &deep, "<a/>x"]
        {
            let error = XmlElement::parse(document.as_bytes(), "a").unwrap_err();
            assert_eq!(error.status_and_code(), (400, "MalformedXML"), "{document}");
        }
        assert!(XmlElement::parse(b"<a>\xff</a>", "a").is_err());
    }

    proptest! {
        #[test]
        fn every_text_survives_writing_and_reading(text in "[ -~\\n\\täöü<>&\"']{0,40}") {
            let mut xml = XmlWriter::new();
            xml.root("a", |xml| xml.text("b", &text));
            let read = XmlElement::parse(xml.0.as_bytes(), "a").unwrap();
            prop_assert_eq!(read.child("b"), Some(text.as_str()));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(document: Vec<u8>, text in "[<>/a!\\[\\]&;#x0-9 \"=?-]{0,60}") {
            let _ = XmlElement::read(&document);
            let _ = XmlElement::read(text.as_bytes());
        }
    }
}
