//! The XML documents of the protocol, as far as a backend needs them.

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::StoreError;

/// A page of objects.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ObjectPage {
    #[serde(default)]
    pub contents: Vec<ListedKey>,
    pub next_continuation_token: Option<String>,
}

/// An object of a page.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ListedKey {
    pub key: String,
    #[serde(default)]
    pub size: u64,
    pub last_modified: String,
}

/// The response to the begin of a multipart upload.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct InitiatedUpload {
    pub upload_id: String,
}

/// The response to the end of a multipart upload, and to a copy.
#[derive(Debug, Deserialize)]
pub(super) struct EtagResponse {
    #[serde(rename = "ETag")]
    pub etag: String,
}

/// A page of multipart uploads.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct UploadPage {
    #[serde(rename = "Upload", default)]
    pub uploads: Vec<ListedUpload>,
    #[serde(default)]
    pub is_truncated: bool,
    pub next_key_marker: Option<String>,
    pub next_upload_id_marker: Option<String>,
}

/// A multipart upload of a page.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ListedUpload {
    pub key: String,
    pub upload_id: String,
    pub initiated: String,
}

/// A page of the parts of an upload.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct PartPage {
    #[serde(rename = "Part", default)]
    pub parts: Vec<ListedPart>,
    #[serde(default)]
    pub is_truncated: bool,
    pub next_part_number_marker: Option<String>,
}

/// A part of a page.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ListedPart {
    pub last_modified: String,
}

/// The response to a deletion of many objects: those that failed.
#[derive(Debug, Deserialize)]
pub(super) struct DeletionResponse {
    #[serde(rename = "Error", default)]
    pub errors: Vec<ErrorDocument>,
}

/// An error.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ErrorDocument {
    pub code: String,
}

/// Parses a document.
///
/// # Errors
/// [`StoreError::Malformed`]
pub(super) fn parse<T: DeserializeOwned>(document: &Bytes) -> Result<T, StoreError> {
    quick_xml::de::from_reader(document.as_ref()).map_err(|_| StoreError::Malformed)
}

/// Returns the code of an error document; `None` for other documents.
pub(super) fn error_code(document: &[u8]) -> Option<String> {
    let mut reader = quick_xml::Reader::from_reader(document);
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        match reader.read_event_into(&mut buffer).ok()? {
            quick_xml::events::Event::Start(root) => {
                return match root.local_name().as_ref() {
                    "Error" => quick_xml::de::from_reader::<_, ErrorDocument>(document).ok().map(|error| error.code),
                    _ => None,
                };
            }
            quick_xml::events::Event::Eof => return None,
            _ => {}
        }
    }
}

/// Returns the document that ends a multipart upload.
pub(super) fn completion(etags: &[String]) -> String {
    let mut document = String::from("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for (at, etag) in etags.iter().enumerate() {
        let etag = quick_xml::escape::escape(etag.as_str());
        document.push_str(&format!("<Part><PartNumber>{}</PartNumber><ETag>{etag}</ETag></Part>", at + 1));
    }
    document.push_str("</CompleteMultipartUpload>");
    document
}

/// Returns the document that deletes objects.
pub(super) fn deletion(keys: &[String]) -> String {
    let mut document = String::from("<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>");
    for key in keys {
        let key = quick_xml::escape::escape(key.as_str());
        document.push_str(&format!("<Object><Key>{key}</Key></Object>"));
    }
    document.push_str("</Delete>");
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_read_with_their_references_and_without_unknown_parts() {
        let page = Bytes::from_static(
            b"<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\"><Name>b</Name><Contents><Key>a&amp;b</Key><Size>1</Size>\
              <LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents><KeyCount>1</KeyCount></ListBucketResult>",
        );
        let page: ObjectPage = parse(&page).unwrap();
        assert_eq!((page.contents[0].key.as_str(), page.next_continuation_token), ("a&b", None));
        let uploads: UploadPage = parse(&Bytes::from_static(b"<X><IsTruncated>false</IsTruncated></X>")).unwrap();
        assert!(uploads.uploads.is_empty() && !uploads.is_truncated);
    }

    #[test]
    fn an_error_is_recognised_by_its_root() {
        let error = b"<?xml version=\"1.0\"?>\n<Error><Code>SlowDown</Code><Message>x</Message></Error>";
        assert_eq!(error_code(error).as_deref(), Some("SlowDown"));
        for other in [&b"<DeleteResult><Error><Code>X</Code></Error></DeleteResult>"[..], b"", b"<", b"not xml"] {
            assert_eq!(error_code(other), None);
        }
    }

    #[test]
    fn texts_in_documents_are_escaped() {
        assert!(deletion(&["a&<b".into()]).contains("<Key>a&amp;&lt;b</Key>"));
        assert!(completion(&["\"x\"".into()]).contains("<PartNumber>1</PartNumber><ETag>&quot;x&quot;</ETag>"));
    }
}
