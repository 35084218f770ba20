//! Encoding: from pixels to the bytes of a file, without metadata.

mod animated_gif;
mod animated_webp;
mod canvas;
mod failure;
mod lossy_webp;

use image::codecs::avif::AvifEncoder;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::metadata::LoopCount;
use image::{ExtendedColorType, ImageEncoder};
use jpeg_encoder::ColorType;

use crate::decode::{PixelChannels, Pixels};
use crate::{OutputFormat, RenderError, RenderLimits};
use animated_gif::GifAnimation;
use animated_webp::WebPAnimation;
use failure::encoder_error;
use lossy_webp::encode_webp;

/// The quality of JPEG and WebP, if none is requested.
const DEFAULT_QUALITY: u8 = 80;
/// The quality of AVIF, if none is requested.
const DEFAULT_AVIF_QUALITY: u8 = 62;
/// The speed of the AVIF encoder, 1 to 10: the quickest. Results are still smaller than WebP.
const AVIF_SPEED: u8 = 10;
/// Pixels above which PNG is compressed quickly rather than well.
const QUICK_PNG_PIXELS: u64 = 4_000_000;
/// The longest side of a WebP image.
const MAX_WEBP_SIDE: u32 = 16_383;
/// The longest side of the other formats.
const MAX_SIDE: u32 = 65_535;

/// Checks whether a size can be encoded in a format.
///
/// # Errors
/// [`RenderError::ResultTooLarge`].
pub(crate) fn check_size(
    size: crate::geometry::PixelSize,
    format: OutputFormat,
    limits: &RenderLimits,
) -> Result<(), RenderError> {
    let longest_side = if format == OutputFormat::WebP { MAX_WEBP_SIDE } else { MAX_SIDE };
    let max_pixels = if format == OutputFormat::Avif { limits.max_avif_pixels } else { limits.max_pixels };
    if size.width > longest_side || size.height > longest_side || size.pixels() > max_pixels {
        return Err(RenderError::ResultTooLarge);
    }
    Ok(())
}

/// Encodes one image. `quality` is 20 to 100; formats without loss ignore it.
///
/// # Errors
/// [`RenderError::Internal`] if the encoder fails, which it does not within [`check_size`].
pub(crate) fn encode_still(pixels: Pixels, format: OutputFormat, quality: Option<u8>) -> Result<Vec<u8>, RenderError> {
    match format {
        OutputFormat::Jpeg => encode_jpeg(&pixels, quality.unwrap_or(DEFAULT_QUALITY)),
        OutputFormat::Png => encode_png(&pixels),
        OutputFormat::WebP => encode_webp(pixels.without_gray(), quality.unwrap_or(DEFAULT_QUALITY)),
        OutputFormat::Avif => encode_avif(&pixels.without_gray(), quality.unwrap_or(DEFAULT_AVIF_QUALITY)),
        OutputFormat::Gif => {
            let mut animation = GifAnimation::new(pixels.size, LoopCount::Infinite)?;
            animation.push(pixels.into_rgba(), 0)?;
            animation.finish()
        }
        // An SVG document has no pixels
        OutputFormat::Svg => Err(RenderError::Internal),
    }
}

/// An encoder of an animation, which takes frame after frame.
pub(crate) enum AnimationEncoder {
    Gif(GifAnimation),
    WebP(WebPAnimation),
}

impl AnimationEncoder {
    /// Starts an animation. `None`: the format has still images only.
    ///
    /// # Errors
    /// [`RenderError::Internal`] if the encoder fails.
    pub(crate) fn start(
        format: OutputFormat,
        size: crate::geometry::PixelSize,
        loop_count: LoopCount,
        quality: Option<u8>,
    ) -> Result<Option<Self>, RenderError> {
        Ok(match format {
            OutputFormat::Gif => Some(Self::Gif(GifAnimation::new(size, loop_count)?)),
            OutputFormat::WebP => {
                Some(Self::WebP(WebPAnimation::new(size, loop_count, quality.unwrap_or(DEFAULT_QUALITY))))
            }
            _ => None,
        })
    }

    /// Adds a frame of four channels, which covers the whole canvas.
    pub(crate) fn push(&mut self, frame: Pixels, duration_ms: u32) -> Result<(), RenderError> {
        match self {
            Self::Gif(animation) => animation.push(frame, duration_ms),
            Self::WebP(animation) => animation.push(frame, duration_ms),
        }
    }

    /// Returns the number of bytes that are written so far.
    pub(crate) fn bytes_written(&self) -> usize {
        match self {
            Self::Gif(animation) => animation.bytes_written(),
            Self::WebP(animation) => animation.bytes_written(),
        }
    }

    /// Returns the file.
    pub(crate) fn finish(self) -> Result<Vec<u8>, RenderError> {
        match self {
            Self::Gif(animation) => animation.finish(),
            Self::WebP(animation) => animation.finish(),
        }
    }
}

fn encode_jpeg(pixels: &Pixels, quality: u8) -> Result<Vec<u8>, RenderError> {
    let color = match pixels.channels {
        PixelChannels::Gray => ColorType::Luma,
        PixelChannels::Rgb => ColorType::Rgb,
        PixelChannels::Rgba => ColorType::Rgba,
    };
    let side = |length: u32| u16::try_from(length).map_err(encoder_error);
    let (width, height) = (side(pixels.size.width)?, side(pixels.size.height)?);
    let mut file = Vec::new();
    // With its standard tables: its optimised ones are not read by all decoders (zune-jpeg)
    let encoder = jpeg_encoder::Encoder::new(&mut file, quality);
    encoder.encode(&pixels.bytes, width, height, color).map_err(encoder_error)?;
    Ok(file)
}

fn encode_png(pixels: &Pixels) -> Result<Vec<u8>, RenderError> {
    let mut file = Vec::new();
    let compression =
        if pixels.size.pixels() > QUICK_PNG_PIXELS { CompressionType::Fast } else { CompressionType::Default };
    PngEncoder::new_with_quality(&mut file, compression, FilterType::Adaptive)
        .write_image(&pixels.bytes, pixels.size.width, pixels.size.height, color_type(pixels.channels))
        .map_err(encoder_error)?;
    Ok(file)
}

fn encode_avif(pixels: &Pixels, quality: u8) -> Result<Vec<u8>, RenderError> {
    let mut file = Vec::new();
    AvifEncoder::new_with_speed_quality(&mut file, AVIF_SPEED, quality)
        .with_num_threads(Some(1))
        .write_image(&pixels.bytes, pixels.size.width, pixels.size.height, color_type(pixels.channels))
        .map_err(encoder_error)?;
    Ok(file)
}

fn color_type(channels: PixelChannels) -> ExtendedColorType {
    match channels {
        PixelChannels::Gray => ExtendedColorType::L8,
        PixelChannels::Rgb => ExtendedColorType::Rgb8,
        PixelChannels::Rgba => ExtendedColorType::Rgba8,
    }
}
