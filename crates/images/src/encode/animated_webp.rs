//! Animated WebP: the container around frames that libwebp has encoded one by one.
//!
//! Frames are encoded when they arrive, so that only one is in memory, and only the area that
//! changes is stored.

use image::metadata::LoopCount;

use super::canvas::CanvasArea;
use super::lossy_webp::encode_webp;
use crate::RenderError;
use crate::decode::Pixels;
use crate::geometry::PixelSize;

const HAS_ANIMATION: u8 = 0x02;
const HAS_ALPHA: u8 = 0x10;
/// The frame replaces what is below it, transparent pixels too.
const DO_NOT_BLEND: u8 = 0x02;
/// The longest duration of a frame, which has 24 bits.
const MAX_DURATION_MS: u32 = 0x00ff_ffff;

/// An animated WebP that is being written.
pub(crate) struct WebPAnimation {
    size: PixelSize,
    loop_count: u16,
    quality: u8,
    has_alpha: bool,
    previous: Option<Pixels>,
    /// The last frame, whose duration still grows while frames are equal.
    pending: Option<PendingWebPFrame>,
    /// The chunks `ANMF` of the frames before.
    frames: Vec<u8>,
}

struct PendingWebPFrame {
    area: CanvasArea,
    duration_ms: u32,
    file: Vec<u8>,
}

impl WebPAnimation {
    pub(super) fn new(size: PixelSize, loop_count: LoopCount, quality: u8) -> Self {
        let loop_count = match loop_count {
            LoopCount::Infinite => 0,
            LoopCount::Finite(count) => u16::try_from(count.get()).unwrap_or(u16::MAX),
        };
        Self { size, loop_count, quality, has_alpha: false, previous: None, pending: None, frames: Vec::new() }
    }

    pub(super) fn push(&mut self, frame: Pixels, duration_ms: u32) -> Result<(), RenderError> {
        let area = match &self.previous {
            Some(previous) => CanvasArea::changed(previous, &frame, 2),
            None => Some(CanvasArea::whole(self.size)),
        };
        let Some(area) = area else {
            if let Some(pending) = &mut self.pending {
                pending.duration_ms = pending.duration_ms.saturating_add(duration_ms);
            }
            return Ok(());
        };
        self.write_pending()?;
        let file = encode_webp(area.cut(&frame).without_opaque_alpha(), self.quality)?;
        self.pending = Some(PendingWebPFrame { area, duration_ms, file });
        self.previous = Some(frame);
        Ok(())
    }

    pub(super) fn bytes_written(&self) -> usize {
        self.frames.len() + self.pending.as_ref().map_or(0, |pending| pending.file.len())
    }

    pub(super) fn finish(mut self) -> Result<Vec<u8>, RenderError> {
        // A single frame is a still image
        if self.frames.is_empty() {
            return self.pending.map(|pending| pending.file).ok_or(RenderError::InvalidSource);
        }
        self.write_pending()?;
        let mut body = b"WEBP".to_vec();
        let flags = HAS_ANIMATION | if self.has_alpha { HAS_ALPHA } else { 0 };
        let mut header = vec![flags, 0, 0, 0];
        header.extend(three_bytes(self.size.width - 1));
        header.extend(three_bytes(self.size.height - 1));
        push_chunk(&mut body, b"VP8X", &header);
        // Background colour: transparent
        let mut animation = vec![0; 4];
        animation.extend(self.loop_count.to_le_bytes());
        push_chunk(&mut body, b"ANIM", &animation);
        body.extend(self.frames);

        let mut file = Vec::with_capacity(body.len() + 8);
        push_chunk(&mut file, b"RIFF", &body);
        Ok(file)
    }

    fn write_pending(&mut self) -> Result<(), RenderError> {
        let Some(PendingWebPFrame { area, duration_ms, file }) = self.pending.take() else { return Ok(()) };
        let mut frame = Vec::with_capacity(file.len() + 16);
        frame.extend(three_bytes(area.left / 2));
        frame.extend(three_bytes(area.top / 2));
        frame.extend(three_bytes(area.size.width - 1));
        frame.extend(three_bytes(area.size.height - 1));
        frame.extend(three_bytes(duration_ms.min(MAX_DURATION_MS)));
        frame.push(DO_NOT_BLEND);
        for (name, chunk) in chunks(&file) {
            // The header of an extended file stays behind; the frame has what it says
            if [*b"ALPH", *b"VP8 ", *b"VP8L"].contains(&name) {
                self.has_alpha |= name != *b"VP8 ";
                push_chunk(&mut frame, &name, chunk);
            }
        }
        push_chunk(&mut self.frames, b"ANMF", &frame);
        Ok(())
    }
}

fn three_bytes(number: u32) -> [u8; 3] {
    let [first, second, third, _] = number.to_le_bytes();
    [first, second, third]
}

/// Writes a chunk: its name, its length, its content, and a zero after an odd length.
fn push_chunk(file: &mut Vec<u8>, name: &[u8; 4], content: &[u8]) {
    file.extend(name);
    // Within the bound of a result, far below 4 GiB
    file.extend((content.len() as u32).to_le_bytes());
    file.extend(content);
    if content.len() % 2 == 1 {
        file.push(0);
    }
}

/// Iterates over the chunks inside a WebP file that libwebp has written.
fn chunks(file: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    let mut rest = file.get(12..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (name, after_name) = rest.split_first_chunk::<4>()?;
        let (length, content) = after_name.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length) as usize;
        let chunk = content.get(..length)?;
        rest = content.get(length + length % 2..).unwrap_or_default();
        Some((*name, chunk))
    })
}
