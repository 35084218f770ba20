//! A page in memory, compressed when it is first asked for.

use std::io::{self, Write as _};

use brotli::enc::BrotliEncoderParams;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use portico_base::spawn_blocking;
use tokio::sync::OnceCell;

use super::asset::{Asset, Document};
use crate::request::encoding::Encoding;

/// Pages are compressed once, so time does not count.
const BROTLI_QUALITY: i32 = 11;

/// Returns content in another form.
type Compress = fn(&[u8]) -> io::Result<Vec<u8>>;

/// A page that was filled in when the server started. Most pages of a server are never asked for,
/// above all those of tests: to compress all of them was half of the processor time of a test.
#[derive(Debug)]
pub(super) struct FilledPage {
    content: Bytes,
    identity: Document,
    brotli: OnceCell<Option<Document>>,
    gzip: OnceCell<Option<Document>>,
}

impl FilledPage {
    pub(super) fn new(page: String) -> Self {
        let content = Bytes::from(page);
        let identity = Document::new(content.clone());
        Self { content, identity, brotli: OnceCell::new(), gzip: OnceCell::new() }
    }

    /// Loads the page in one encoding. Concurrent callers wait for one compression.
    pub(super) async fn load(&self, encoding: Encoding) -> Option<Asset> {
        let (form, compress): (_, Compress) = match encoding {
            Encoding::Identity => return Some(self.identity.asset(encoding)),
            Encoding::Brotli => (&self.brotli, brotli),
            Encoding::Gzip => (&self.gzip, gzip),
        };
        let compressed = async {
            let content = self.content.clone();
            let compressed = spawn_blocking(move || compress(&content)).await.ok()?.ok()?;
            Some(Document::new(compressed.into()))
        };
        form.get_or_init(|| compressed).await.as_ref().map(|document| document.asset(encoding))
    }
}

fn brotli(mut page: &[u8]) -> io::Result<Vec<u8>> {
    let parameters = BrotliEncoderParams {
        quality: BROTLI_QUALITY,
        lgwin: window_bits(page.len()),
        size_hint: page.len(),
        ..BrotliEncoderParams::default()
    };
    let mut compressed = Vec::new();
    brotli::BrotliCompress(&mut page, &mut compressed, &parameters)?;
    Ok(compressed)
}

fn gzip(page: &[u8]) -> io::Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(page)?;
    gzip.finish()
}

/// Returns the smallest window, as a power of two, that contains `length` bytes. The encoder
/// allocates and clears some ten bytes for each byte of the window, whose default is 4 MiB.
fn window_bits(length: usize) -> i32 {
    // The format keeps 16 bytes of the window for itself
    (10..22).find(|bits| length <= (1 << bits) - 16).unwrap_or(22)
}

#[cfg(test)]
mod tests {
    use super::super::asset::AssetContent;
    use super::*;

    #[test]
    fn the_window_contains_the_page() {
        for (length, bits) in [(0, 10), (1008, 10), (1009, 11), (20_000, 15), (1 << 30, 22)] {
            assert_eq!(window_bits(length), bits, "{length}");
        }
    }

    #[tokio::test]
    async fn a_page_is_compressed_once() {
        let page = FilledPage::new("<p>Hello</p>".repeat(100));
        for encoding in [Encoding::Brotli, Encoding::Gzip] {
            let (first, second) = tokio::join!(page.load(encoding), page.load(encoding));
            let (AssetContent::Memory(first), AssetContent::Memory(second)) =
                (first.unwrap().content, second.unwrap().content)
            else {
                panic!("the page is in memory");
            };
            assert!(first.len() < 100, "{} bytes", first.len());
            assert_eq!(first.as_ptr(), second.as_ptr());
        }
    }
}
