//! The most detailed part of an image, for `gravity=sm`.

use crate::decode::Pixels;
use crate::geometry::PixelSize;

/// The longer side of the preview in which detail is measured, in pixels.
pub(crate) const PREVIEW_SIDE: u32 = 128;

/// Finds the window with the most detail and returns its centre, in fractions of the image.
///
/// Detail is contrast between neighbours plus a part of the saturation: faces, lettering and
/// colourful things win over sky and walls. Among equal windows, the one nearest to the middle
/// wins.
///
/// `window_width` and `window_height` are fractions of the image, above 0 and at most 1.
pub(crate) fn most_detailed(preview: Pixels, window_width: f64, window_height: f64) -> (f64, f64) {
    let preview = preview.into_rgba();
    let PixelSize { width, height } = preview.size;
    let (width, height) = (width as usize, height as usize);
    let sums = DetailSums::measure(&preview.bytes, width, height);
    let window = |fraction: f64, length: usize| ((fraction * length as f64).round() as usize).clamp(1, length);
    let (window_width, window_height) = (window(window_width, width), window(window_height, height));

    let mut best = (0_u64, usize::MAX, 0, 0);
    for top in 0..=height - window_height {
        for left in 0..=width - window_width {
            let detail = sums.of(left, top, window_width, window_height);
            // Twice the distances between the middles of window and image
            let distance = (2 * left + window_width).abs_diff(width) + (2 * top + window_height).abs_diff(height);
            if detail > best.0 || (detail == best.0 && distance < best.1) {
                best = (detail, distance, left, top);
            }
        }
    }
    let (_, _, left, top) = best;
    let centre = |start: usize, window: usize, length: usize| (start as f64 + window as f64 / 2.0) / length as f64;
    (centre(left, window_width, width), centre(top, window_height, height))
}

/// Sums of the detail of all pixels above and left of a point.
struct DetailSums {
    sums: Vec<u64>,
    stride: usize,
}

impl DetailSums {
    fn measure(rgba: &[u8], width: usize, height: usize) -> Self {
        let pixel = |x: usize, y: usize| {
            let start = (y * width + x) * 4;
            let [red, green, blue, alpha] = [0, 1, 2, 3].map(|channel| i64::from(rgba[start + channel]));
            // Transparent pixels have no detail
            [red * alpha / 255, green * alpha / 255, blue * alpha / 255]
        };
        let luminance = |[red, green, blue]: [i64; 3]| (red * 54 + green * 183 + blue * 19) / 256;
        let stride = width + 1;
        let mut sums = vec![0_u64; stride * (height + 1)];
        for y in 0..height {
            let mut row = 0;
            for x in 0..width {
                let here = pixel(x, y);
                let right = luminance(pixel((x + 1).min(width - 1), y));
                let below = luminance(pixel(x, (y + 1).min(height - 1)));
                let contrast = (luminance(here) - right).abs() + (luminance(here) - below).abs();
                let [low, high] =
                    [here.iter().min(), here.iter().max()].map(|bound| bound.copied().unwrap_or_default());
                row += (contrast * 4 + (high - low) / 8) as u64;
                sums[(y + 1) * stride + x + 1] = sums[y * stride + x + 1] + row;
            }
        }
        Self { sums, stride }
    }

    fn of(&self, left: usize, top: usize, width: usize, height: usize) -> u64 {
        let at = |x: usize, y: usize| self.sums[y * self.stride + x];
        at(left + width, top + height) + at(left, top) - at(left + width, top) - at(left, top + height)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::PixelChannels;

    #[test]
    fn the_window_lies_on_the_detail_and_otherwise_in_the_middle() {
        let gray = |detail: std::ops::Range<usize>| Pixels {
            size: PixelSize::new(100, 20),
            channels: PixelChannels::Gray,
            bytes: (0..2000).map(|i| if detail.contains(&(i % 100)) && i % 2 == 0 { 255 } else { 100 }).collect(),
        };
        let (x, y) = most_detailed(gray(80..90), 0.2, 1.0);
        assert!((0.75..=0.9).contains(&x), "{x}");
        assert_eq!(y, 0.5);
        assert_eq!(most_detailed(gray(0..0), 0.2, 0.5), (0.5, 0.5));
        assert_eq!(most_detailed(gray(0..0), 1.0, 1.0), (0.5, 0.5));
    }
}
