//! Colour profiles: results have the colours of sRGB, which is what clients assume without a
//! profile.

use moxcms::{ColorProfile, DataColorSpace, Layout, TransformOptions};

use crate::decode::{PixelChannels, Pixels};

/// The largest profile that is read. Those of cameras and screens have at most some hundred KiB.
const MAX_PROFILE_BYTES: usize = 4 << 20;

/// Converts pixels from a profile to sRGB.
///
/// Pixels whose profile is damaged, or of other channels (CMYK, which the decoder has converted),
/// are returned as they are.
pub(crate) fn to_srgb(pixels: Pixels, profile: Option<&[u8]>) -> Pixels {
    let Some(profile) = profile.filter(|profile| profile.len() <= MAX_PROFILE_BYTES) else { return pixels };
    let Ok(profile) = ColorProfile::new_from_slice(profile) else { return pixels };
    let srgb = ColorProfile::new_srgb();
    let (source, destination, channels) = match (profile.color_space, pixels.channels) {
        (DataColorSpace::Rgb, PixelChannels::Rgb) => (Layout::Rgb, Layout::Rgb, PixelChannels::Rgb),
        (DataColorSpace::Rgb, PixelChannels::Rgba) => (Layout::Rgba, Layout::Rgba, PixelChannels::Rgba),
        (DataColorSpace::Gray, PixelChannels::Gray) => (Layout::Gray, Layout::Rgb, PixelChannels::Rgb),
        _ => return pixels,
    };
    let Ok(transform) = profile.create_transform_8bit(source, &srgb, destination, TransformOptions::default()) else {
        return pixels;
    };
    let mut bytes = vec![0; pixels.size.pixels() as usize * channels.bytes_per_pixel()];
    match transform.transform(&pixels.bytes, &mut bytes) {
        Ok(()) => Pixels { channels, bytes, ..pixels },
        Err(_) => pixels,
    }
}
