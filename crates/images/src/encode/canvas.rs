//! The canvas of an animation: which part of it a frame changes.

use crate::decode::Pixels;
use crate::geometry::PixelSize;

/// A rectangle of whole pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CanvasArea {
    pub(super) left: u32,
    pub(super) top: u32,
    pub(super) size: PixelSize,
}

impl CanvasArea {
    /// Returns the area of a whole canvas.
    pub(super) fn whole(size: PixelSize) -> Self {
        Self { left: 0, top: 0, size }
    }

    /// Finds the smallest area in which two frames of four channels differ. `None`: they are equal.
    /// Left and top are multiples of `step`.
    pub(super) fn changed(previous: &Pixels, next: &Pixels, step: u32) -> Option<Self> {
        let stride = next.size.width as usize * 4;
        let rows = || previous.bytes.chunks_exact(stride).zip(next.bytes.chunks_exact(stride));
        let top = rows().position(|(before, after)| before != after)?;
        let bottom = rows().rposition(|(before, after)| before != after)?;
        let (mut left, mut right) = (usize::MAX, 0);
        for (before, after) in rows().skip(top).take(bottom - top + 1) {
            let differs = |(before, after): (&[u8], &[u8])| before != after;
            let pixels = || before.chunks_exact(4).zip(after.chunks_exact(4));
            if let (Some(first), Some(last)) = (pixels().position(differs), pixels().rposition(differs)) {
                left = left.min(first);
                right = right.max(last);
            }
        }
        let (left, top) = (left as u32 / step * step, top as u32 / step * step);
        let size = PixelSize::new(right as u32 + 1 - left, bottom as u32 + 1 - top);
        Some(Self { left, top, size })
    }

    /// Cuts this area out of a frame of four channels.
    pub(super) fn cut(self, frame: &Pixels) -> Pixels {
        let stride = frame.size.width as usize * 4;
        let (start, length) = (self.left as usize * 4, self.size.width as usize * 4);
        let rows = frame.bytes.chunks_exact(stride).skip(self.top as usize).take(self.size.height as usize);
        let bytes = rows.flat_map(|row| &row[start..start + length]).copied().collect();
        Pixels { size: self.size, channels: frame.channels, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::PixelChannels;

    #[test]
    fn the_changed_area_is_the_smallest_and_starts_at_a_step() {
        let size = PixelSize::new(10, 8);
        let blank = Pixels { size, channels: PixelChannels::Rgba, bytes: vec![0; 320] };
        assert_eq!(CanvasArea::changed(&blank, &blank, 2), None);

        let mut next = blank.clone();
        for (x, y) in [(5, 3), (7, 6)] {
            next.bytes[(y * 10 + x) * 4] = 9;
        }
        let area = CanvasArea::changed(&blank, &next, 1).unwrap();
        assert_eq!(area, CanvasArea { left: 5, top: 3, size: PixelSize::new(3, 4) });
        let cut = area.cut(&next);
        assert_eq!(cut.bytes.len(), 48);
        assert_eq!((cut.bytes[0], cut.bytes[47 - 3]), (9, 9));
        let area = CanvasArea::changed(&blank, &next, 2).unwrap();
        assert_eq!(area, CanvasArea { left: 4, top: 2, size: PixelSize::new(4, 5) });
    }
}
