//! The slots of pages, which the server fills once when it starts.

use std::io::Write as _;

use brotli::enc::BrotliEncoderParams;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::request::encoding::Encoding;

const END: &str = "<!--/slot-->";
/// Pages are compressed once, so time does not count.
const BROTLI_QUALITY: i32 = 11;

/// Returns a page with the content of its slots replaced. A slot without content in `slots` keeps
/// its own.
pub(super) fn filled(mut page: String, slots: &[(&str, String)]) -> String {
    for (name, content) in slots {
        let start = format!("<!--slot:{name}-->");
        let mut from = 0;
        while let Some(at) = page[from..].find(&start).map(|at| from + at) {
            let Some(length) = page[at..].find(END) else { break };
            page.replace_range(at..at + length + END.len(), content);
            from = at + content.len();
        }
    }
    page
}

/// Returns a page in each encoding.
pub(super) fn compressed(page: String) -> Vec<(Encoding, Bytes)> {
    let mut forms = Vec::new();
    let parameters = BrotliEncoderParams {
        quality: BROTLI_QUALITY,
        lgwin: window_bits(page.len()),
        size_hint: page.len(),
        ..BrotliEncoderParams::default()
    };
    let mut brotli = Vec::new();
    if brotli::BrotliCompress(&mut page.as_bytes(), &mut brotli, &parameters).is_ok() {
        forms.push((Encoding::Brotli, brotli.into()));
    }
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    if gzip.write_all(page.as_bytes()).is_ok()
        && let Ok(bytes) = gzip.finish()
    {
        forms.push((Encoding::Gzip, bytes.into()));
    }
    forms.push((Encoding::Identity, page.into()));
    forms
}

/// Returns the smallest window, as a power of two, that contains `length` bytes. The encoder
/// allocates and clears some ten bytes for each byte of the window: with the default of 4 MiB the
/// pages would cost the start a quarter of a second and 100 MiB.
fn window_bits(length: usize) -> i32 {
    // The format keeps 16 bytes of the window for itself
    (10..22).find(|bits| length <= (1 << bits) - 16).unwrap_or(22)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_contains_the_page() {
        for (length, bits) in [(0, 10), (1008, 10), (1009, 11), (20_000, 15), (1 << 30, 22)] {
            assert_eq!(window_bits(length), bits, "{length}");
        }
    }

    #[test]
    fn every_slot_of_a_name_is_filled_and_others_keep_their_content() {
        let page = "<!--slot:a-->1<!--/slot--> <!--slot:b-->2<!--/slot--> <!--slot:a--><!--/slot-->".to_owned();
        let slots = [("a", "<!--slot:a-->x".to_owned()), ("c", "y".to_owned())];
        assert_eq!(filled(page, &slots), "<!--slot:a-->x <!--slot:b-->2<!--/slot--> <!--slot:a-->x");
        assert_eq!(filled("<!--slot:a-->open".to_owned(), &slots), "<!--slot:a-->open");
    }
}
