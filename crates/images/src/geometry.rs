//! Sizes and regions: which part of a source becomes a result of which size. Pure arithmetic.

use image::metadata::Orientation;

use crate::transformation::{Gravity, ResizeMode, Transformation};

/// Width and height in pixels, at least 1 each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PixelSize {
    /// Width.
    pub width: u32,
    /// Height.
    pub height: u32,
}

impl PixelSize {
    /// Returns a size of at least one pixel.
    pub fn new(width: u32, height: u32) -> Self {
        Self { width: width.max(1), height: height.max(1) }
    }

    /// Returns the number of pixels.
    pub fn pixels(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// Returns the size as it is seen under `orientation`.
    pub(crate) fn oriented(self, orientation: Orientation) -> Self {
        if swaps_axes(orientation) { Self { width: self.height, height: self.width } } else { self }
    }
}

/// A rectangle in pixels of the source, not necessarily whole ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SourceRegion {
    /// Distance from the left edge.
    pub left: f64,
    /// Distance from the top edge.
    pub top: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

/// The part of a source that is kept, and the size that it is scaled to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResizePlan {
    /// The part that is kept.
    pub region: SourceRegion,
    /// The size of the result.
    pub size: PixelSize,
}

/// Computes the size of a result. Nothing is enlarged: a source that is smaller than the box keeps
/// its size (`cover` crops it to the box, `fill` keeps the shape of the box).
///
/// `source` is the size as people see it, after the orientation of a photo is applied. A dimension
/// that is not requested is that of the source.
pub fn result_size(source: PixelSize, transformation: &Transformation) -> PixelSize {
    let (source_width, source_height) = (f64::from(source.width), f64::from(source.height));
    let width = transformation.width().unwrap_or(source.width);
    let height = transformation.height().unwrap_or(source.height);
    let (x_scale, y_scale) = (f64::from(width) / source_width, f64::from(height) / source_height);
    let scaled = |x_scale: f64, y_scale: f64| {
        PixelSize::new((source_width * x_scale).round() as u32, (source_height * y_scale).round() as u32)
    };
    match transformation.resize() {
        ResizeMode::Cover => PixelSize::new(width.min(source.width), height.min(source.height)),
        ResizeMode::Contain => {
            let scale = x_scale.min(y_scale).min(1.0);
            scaled(scale, scale)
        }
        ResizeMode::Fill => {
            let enlargement = x_scale.max(y_scale).max(1.0);
            scaled(x_scale / enlargement, y_scale / enlargement)
        }
    }
}

/// Plans a result of which the crop is anchored by `transformation`. `interest` is the centre of
/// the most detailed part, in fractions of the source; it is called for [`Gravity::Smart`] only,
/// with the size of the crop in fractions of the source.
pub fn plan(
    source: PixelSize,
    transformation: &Transformation,
    interest: impl FnOnce(f64, f64) -> (f64, f64),
) -> ResizePlan {
    let (source_width, source_height) = (f64::from(source.width), f64::from(source.height));
    let size = result_size(source, transformation);
    let (width, height) = (f64::from(size.width), f64::from(size.height));
    if transformation.resize() != ResizeMode::Cover {
        let region = SourceRegion { left: 0.0, top: 0.0, width: source_width, height: source_height };
        return ResizePlan { region, size };
    }
    // The scale of the whole source, of which the crop is then taken
    let requested_width = transformation.width().map_or(source_width, f64::from);
    let requested_height = transformation.height().map_or(source_height, f64::from);
    let scale = (requested_width / source_width).max(requested_height / source_height).min(1.0);
    let scaled_width = (source_width * scale).max(width);
    let scaled_height = (source_height * scale).max(height);
    let (free_x, free_y) = (scaled_width - width, scaled_height - height);

    let (x_offset, y_offset) = transformation.offsets();
    let gravity = transformation.gravity();
    let centred_at = |x: f64, y: f64| (x * scaled_width - width / 2.0, y * scaled_height - height / 2.0);
    let (left, top) = match gravity {
        Gravity::FocalPoint => centred_at(x_offset, y_offset),
        Gravity::Smart => {
            let (x, y) = interest(width / scaled_width, height / scaled_height);
            centred_at(x, y)
        }
        _ => {
            let in_pixels = |offset: f64, length: f64| if offset.abs() < 1.0 { offset * length } else { offset };
            let (x_offset, y_offset) = (in_pixels(x_offset, scaled_width), in_pixels(y_offset, scaled_height));
            // Offsets lead from an edge to the inside
            let left = match gravity {
                Gravity::West | Gravity::NorthWest | Gravity::SouthWest => x_offset,
                Gravity::East | Gravity::NorthEast | Gravity::SouthEast => free_x - x_offset,
                _ => free_x / 2.0 + x_offset,
            };
            let top = match gravity {
                Gravity::North | Gravity::NorthEast | Gravity::NorthWest => y_offset,
                Gravity::South | Gravity::SouthEast | Gravity::SouthWest => free_y - y_offset,
                _ => free_y / 2.0 + y_offset,
            };
            (left, top)
        }
    };
    // Whole pixels of the scaled source, so that an unscaled crop copies pixels and mixes none
    let left = left.round().clamp(0.0, free_x);
    let top = top.round().clamp(0.0, free_y);
    let x_scale = scaled_width / source_width;
    let y_scale = scaled_height / source_height;
    let region = SourceRegion {
        left: left / x_scale,
        top: top / y_scale,
        width: (width / x_scale).min(source_width),
        height: (height / y_scale).min(source_height),
    };
    ResizePlan { region: inside(region, source_width, source_height), size }
}

/// Moves a region that rounding has shifted beyond the source back into it.
fn inside(region: SourceRegion, width: f64, height: f64) -> SourceRegion {
    SourceRegion {
        left: region.left.min(width - region.width).max(0.0),
        top: region.top.min(height - region.height).max(0.0),
        ..region
    }
}

/// Checks whether an orientation exchanges width and height.
fn swaps_axes(orientation: Orientation) -> bool {
    matches!(
        orientation,
        Orientation::Rotate90 | Orientation::Rotate270 | Orientation::Rotate90FlipH | Orientation::Rotate270FlipH
    )
}

impl ResizePlan {
    /// Returns this plan for the pixels as they are stored, before `orientation` is applied.
    /// `stored` is the stored size. Scaling first and turning the small result is quicker.
    pub(crate) fn before_orientation(self, orientation: Orientation, stored: PixelSize) -> Self {
        let SourceRegion { left, top, width, height } = self.region;
        let (stored_width, stored_height) = (f64::from(stored.width), f64::from(stored.height));
        let region = match orientation {
            Orientation::NoTransforms => self.region,
            Orientation::FlipHorizontal => SourceRegion { left: stored_width - left - width, ..self.region },
            Orientation::FlipVertical => SourceRegion { top: stored_height - top - height, ..self.region },
            Orientation::Rotate180 => {
                SourceRegion { left: stored_width - left - width, top: stored_height - top - height, ..self.region }
            }
            Orientation::Rotate90 => {
                SourceRegion { left: top, top: stored_height - left - width, width: height, height: width }
            }
            Orientation::Rotate270 => {
                SourceRegion { left: stored_width - top - height, top: left, width: height, height: width }
            }
            Orientation::Rotate90FlipH => SourceRegion { left: top, top: left, width: height, height: width },
            Orientation::Rotate270FlipH => SourceRegion {
                left: stored_width - top - height,
                top: stored_height - left - width,
                width: height,
                height: width,
            },
        };
        Self { region: inside(region, stored_width, stored_height), size: self.size.oriented(orientation) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transformation(query: &str) -> Transformation {
        let pairs: Vec<_> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        Transformation::parse(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)).unwrap()
    }

    fn size_of(width: u32, height: u32, query: &str) -> (u32, u32) {
        let size = result_size(PixelSize::new(width, height), &transformation(query));
        (size.width, size.height)
    }

    #[test]
    fn results_have_the_requested_size_and_are_never_enlarged() {
        for (source, query, expected) in [
            ((400, 300), "", (400, 300)),
            ((400, 300), "width=100&height=100", (100, 100)),
            ((400, 300), "width=100&height=100&resize=contain", (100, 75)),
            ((400, 300), "width=100&height=100&resize=fill", (100, 100)),
            // One dimension: the other follows, stays, or stays
            ((400, 300), "width=100&resize=contain", (100, 75)),
            ((400, 300), "width=100", (100, 300)),
            ((400, 300), "width=100&resize=fill", (100, 300)),
            // Smaller than the box
            ((100, 100), "width=200&height=50", (100, 50)),
            ((100, 100), "width=200&height=200", (100, 100)),
            ((100, 50), "width=200&height=200&resize=contain", (100, 50)),
            ((100, 100), "width=200&height=50&resize=fill", (100, 25)),
            // Extreme shapes
            ((1, 10000), "width=100&height=100&resize=contain", (1, 100)),
            ((10000, 1), "height=1&resize=contain", (10000, 1)),
            ((50000, 1), "width=10&resize=contain", (10, 1)),
        ] {
            assert_eq!(size_of(source.0, source.1, query), expected, "{source:?} {query}");
        }
    }

    fn region_of(width: u32, height: u32, query: &str) -> (f64, f64, f64, f64) {
        let region = plan(PixelSize::new(width, height), &transformation(query), |_, _| (1.0, 0.0)).region;
        (region.left, region.top, region.width, region.height)
    }

    #[test]
    fn a_crop_is_anchored_by_gravity_and_moved_inwards_by_offsets() {
        // 400×200 scaled to 200×100, of which 100×100 is kept: 200 columns of the source
        let size = "width=100&height=100";
        for (query, left) in [
            ("", 100.0),
            ("&gravity=we", 0.0),
            ("&gravity=ea", 200.0),
            ("&gravity=noea", 200.0),
            ("&gravity=no", 100.0),
            ("&gravity=we&x_offset=10", 20.0),
            ("&gravity=ea&x_offset=10", 180.0),
            ("&gravity=ce&x_offset=-10", 80.0),
            // A tenth of the scaled width
            ("&gravity=we&x_offset=0.1", 40.0),
            ("&gravity=we&x_offset=-50", 0.0),
            ("&gravity=we&x_offset=5000", 200.0),
            ("&gravity=fp&x_offset=0.5&y_offset=0.5", 100.0),
            ("&gravity=fp&x_offset=0.3&y_offset=0", 20.0),
            ("&gravity=fp&x_offset=1&y_offset=1", 200.0),
            // The interest is at the top right; offsets do not count
            ("&gravity=sm&x_offset=70", 200.0),
        ] {
            assert_eq!(region_of(400, 200, &format!("{size}{query}")), (left, 0.0, 200.0, 200.0), "{query}");
        }
        assert_eq!(region_of(400, 300, "width=100"), (150.0, 0.0, 100.0, 300.0));
        assert_eq!(region_of(400, 300, "height=100&gravity=so&y_offset=20"), (0.0, 180.0, 400.0, 100.0));
    }

    #[test]
    fn every_plan_lies_inside_the_source() {
        for width in [1, 2, 3, 7, 100, 9999] {
            for height in [1, 2, 5, 333] {
                let source = PixelSize::new(width, height);
                for query in ["width=3&height=100", "width=1&height=1", "width=2000&height=7&gravity=soea&y_offset=-3"]
                {
                    let transformation = transformation(query);
                    let ResizePlan { region, size } = plan(source, &transformation, |_, _| (0.0, 1.0));
                    assert!(region.left >= 0.0 && region.top >= 0.0, "{source:?} {query} {region:?}");
                    assert!(region.left + region.width <= f64::from(width) + 1e-6, "{source:?} {query} {region:?}");
                    assert!(region.top + region.height <= f64::from(height) + 1e-6, "{source:?} {query} {region:?}");
                    assert!(region.width > 0.0 && region.height > 0.0);
                    assert!(size.width <= width && size.height <= height);
                }
            }
        }
    }
}
