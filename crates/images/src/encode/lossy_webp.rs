//! WebP with loss.

use super::failure::encoder_error;
use crate::RenderError;
use crate::decode::{PixelChannels, Pixels};

/// Encodes pixels of three or four channels as WebP with loss.
pub(super) fn encode_webp(pixels: Pixels, quality: u8) -> Result<Vec<u8>, RenderError> {
    let mut config = webp::WebPConfig::new().map_err(|()| encoder_error("no configuration"))?;
    config.quality = f32::from(quality);
    let crate::geometry::PixelSize { width, height } = pixels.size;
    let encoder = match pixels.channels {
        PixelChannels::Rgba => webp::Encoder::from_rgba(&pixels.bytes, width, height),
        PixelChannels::Rgb => webp::Encoder::from_rgb(&pixels.bytes, width, height),
        PixelChannels::Gray => return encode_webp(pixels.without_gray(), quality),
    };
    let file = match encoder.encode_advanced(&config) {
        // The modes of a very large picture can exceed the part of the file that is for them
        Err(webp::WebPEncodingError::VP8_ENC_ERROR_PARTITION0_OVERFLOW) => {
            config.partition_limit = 100;
            encoder.encode_advanced(&config)
        }
        outcome => outcome,
    };
    let file = file.map_err(|error| encoder_error(format!("{error:?}")))?;
    Ok(file.to_vec())
}
