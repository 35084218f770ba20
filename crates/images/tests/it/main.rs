//! Rendering through the public interface: every format, every parameter, hostile files, and the
//! renderer with its queue and cache.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod animations;
mod corpus;
mod damaged_files;
mod pictures;
mod queue;

use std::time::Duration;

use bytes::Bytes;
use portico_images::{
    OutputFormat, RenderControl, RenderError, RenderLimits, RenderedImage, RequestedFormat, Transformation, render,
};

/// Parses parameters written as a query string.
pub fn transformation(query: &str) -> Transformation {
    let pairs: Vec<_> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
    Transformation::parse(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)).unwrap()
}

/// Returns a control that lets a rendering finish.
pub fn control() -> RenderControl {
    RenderControl::with_time_limit(Duration::from_secs(600))
}

/// Renders within the default limits.
pub fn rendered(file: &Bytes, query: &str, requested: RequestedFormat) -> Result<RenderedImage, RenderError> {
    render(file, &transformation(query), requested, &RenderLimits::default(), &control())
}

/// Decodes a result in full and returns its size.
pub fn decoded_size(image: &RenderedImage) -> (u32, u32) {
    if image.format == OutputFormat::Avif {
        return avif_size(&image.bytes);
    }
    let decoded = decoded(image);
    (decoded.width(), decoded.height())
}

/// Decodes a result, the first frame of an animation.
pub fn decoded(image: &RenderedImage) -> image::DynamicImage {
    let format = match image.format {
        OutputFormat::Jpeg => image::ImageFormat::Jpeg,
        OutputFormat::Png => image::ImageFormat::Png,
        OutputFormat::Gif => image::ImageFormat::Gif,
        OutputFormat::WebP => image::ImageFormat::WebP,
        OutputFormat::Avif | OutputFormat::Svg => panic!("{:?} is not decoded here", image.format),
    };
    image::load_from_memory_with_format(&image.bytes, format).unwrap()
}

/// Reads the size from the property `ispe` of an AVIF file.
fn avif_size(file: &[u8]) -> (u32, u32) {
    assert_eq!(&file[4..12], b"ftypavif");
    let position = file.windows(4).position(|window| window == b"ispe").unwrap();
    let number = |start: usize| u32::from_be_bytes(file[position + start..][..4].try_into().unwrap());
    (number(8), number(12))
}
