//! Animated GIF. Each frame has a palette of its own. While nothing is transparent, only the area
//! that changes is stored.

use gif::{DisposalMethod, Encoder, Frame, Repeat};
use image::metadata::LoopCount;

use super::canvas::CanvasArea;
use super::failure::encoder_error;
use crate::RenderError;
use crate::decode::Pixels;
use crate::geometry::PixelSize;

/// The speed of the palette search, 1 to 30; its authors' compromise.
const PALETTE_SPEED: i32 = 10;
/// Alpha from which a pixel is opaque: GIF knows nothing between.
const OPAQUE_FROM: u8 = 128;

/// A GIF that is being written.
pub(crate) struct GifAnimation {
    size: PixelSize,
    encoder: Encoder<Vec<u8>>,
    previous: Option<Pixels>,
    /// The last frame, whose duration still grows while frames are equal.
    pending: Option<PendingGifFrame>,
    /// From the first transparent pixel on, each frame is stored whole and removed before the next.
    is_transparent: bool,
}

struct PendingGifFrame {
    area: CanvasArea,
    duration_ms: u32,
    pixels: Pixels,
}

impl GifAnimation {
    pub(super) fn new(size: PixelSize, loop_count: LoopCount) -> Result<Self, RenderError> {
        let side = |length: u32| u16::try_from(length).map_err(encoder_error);
        let mut encoder =
            Encoder::new(Vec::new(), side(size.width)?, side(size.height)?, &[]).map_err(encoder_error)?;
        let repeat = match loop_count {
            LoopCount::Infinite => Some(Repeat::Infinite),
            // Without a count, a GIF is shown once
            LoopCount::Finite(count) if count.get() == 1 => None,
            LoopCount::Finite(count) => Some(Repeat::Finite(u16::try_from(count.get()).unwrap_or(u16::MAX))),
        };
        if let Some(repeat) = repeat {
            encoder.set_repeat(repeat).map_err(encoder_error)?;
        }
        Ok(Self { size, encoder, previous: None, pending: None, is_transparent: false })
    }

    pub(super) fn push(&mut self, mut frame: Pixels, duration_ms: u32) -> Result<(), RenderError> {
        for pixel in frame.bytes.chunks_exact_mut(4) {
            if pixel[3] >= OPAQUE_FROM {
                pixel[3] = 255;
            } else {
                pixel.fill(0);
            }
        }
        let whole = CanvasArea::whole(self.size);
        let area = match &self.previous {
            Some(previous) => CanvasArea::changed(previous, &frame, 1),
            None => Some(whole),
        };
        let Some(area) = area else {
            if let Some(pending) = &mut self.pending {
                pending.duration_ms = pending.duration_ms.saturating_add(duration_ms);
            }
            return Ok(());
        };
        if !self.is_transparent && frame.bytes.chunks_exact(4).any(|pixel| pixel[3] == 0) {
            self.is_transparent = true;
            // The frame before is removed as a whole, so that it has to be stored as a whole
            if let (Some(pending), Some(previous)) = (&mut self.pending, &self.previous) {
                pending.area = whole;
                pending.pixels = previous.clone();
            }
        }
        self.write_pending()?;
        let area = if self.is_transparent { whole } else { area };
        self.pending = Some(PendingGifFrame { area, duration_ms, pixels: area.cut(&frame) });
        self.previous = Some(frame);
        Ok(())
    }

    pub(super) fn bytes_written(&self) -> usize {
        self.encoder.get_ref().len()
    }

    pub(super) fn finish(mut self) -> Result<Vec<u8>, RenderError> {
        self.write_pending()?;
        self.encoder.into_inner().map_err(encoder_error)
    }

    fn write_pending(&mut self) -> Result<(), RenderError> {
        let Some(PendingGifFrame { area, duration_ms, mut pixels }) = self.pending.take() else { return Ok(()) };
        let side = |length: u32| u16::try_from(length).map_err(encoder_error);
        let (width, height) = (side(area.size.width)?, side(area.size.height)?);
        let mut frame = Frame::from_rgba_speed(width, height, &mut pixels.bytes, PALETTE_SPEED);
        frame.left = side(area.left)?;
        frame.top = side(area.top)?;
        frame.delay = u16::try_from(duration_ms / 10).unwrap_or(u16::MAX);
        frame.dispose = if self.is_transparent { DisposalMethod::Background } else { DisposalMethod::Keep };
        self.encoder.write_frame(&frame).map_err(encoder_error)
    }
}
