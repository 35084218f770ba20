//! Decoding: from the bytes of a file to pixels of 8 bits. Dimensions are read and checked first.

use std::io::Cursor;

use image::codecs::bmp::BmpDecoder;
use image::codecs::gif::GifDecoder;
use image::codecs::ico::IcoDecoder;
use image::codecs::jpeg::JpegDecoder;
use image::codecs::png::PngDecoder;
use image::codecs::tiff::TiffDecoder;
use image::codecs::webp::WebPDecoder;
use image::error::{ImageError, LimitErrorKind};
use image::metadata::{LoopCount, Orientation};
use image::{AnimationDecoder, DynamicImage, Frames, ImageDecoder, Limits};

use crate::geometry::PixelSize;
use crate::{RenderError, RenderLimits, SourceFormat};

/// Bytes that profile and texts of a PNG, and the buffers of its rows, may take.
const MAX_PNG_METADATA_BYTES: u64 = 32 << 20;

/// The meaning of the bytes of [`Pixels`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PixelChannels {
    /// One byte a pixel.
    Gray,
    /// Three bytes a pixel.
    Rgb,
    /// Four bytes a pixel; the colours are not multiplied by alpha.
    Rgba,
}

impl PixelChannels {
    /// Returns the number of bytes of a pixel.
    pub(crate) fn bytes_per_pixel(self) -> usize {
        match self {
            Self::Gray => 1,
            Self::Rgb => 3,
            Self::Rgba => 4,
        }
    }
}

/// Pixels of 8 bits a channel, row by row without gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pixels {
    pub(crate) size: PixelSize,
    pub(crate) channels: PixelChannels,
    pub(crate) bytes: Vec<u8>,
}

impl Pixels {
    /// Converts a decoded image of any depth.
    fn from_image(image: DynamicImage) -> Self {
        let size = PixelSize::new(image.width(), image.height());
        let (channels, bytes) = match image {
            DynamicImage::ImageLuma8(_) | DynamicImage::ImageLuma16(_) => {
                (PixelChannels::Gray, image.into_luma8().into_raw())
            }
            DynamicImage::ImageRgb8(_) | DynamicImage::ImageRgb16(_) | DynamicImage::ImageRgb32F(_) => {
                (PixelChannels::Rgb, image.into_rgb8().into_raw())
            }
            _ => (PixelChannels::Rgba, image.into_rgba8().into_raw()),
        };
        Self { size, channels, bytes }
    }

    /// Converts back, for the operations that [`DynamicImage`] has.
    ///
    /// # Errors
    /// [`RenderError::Internal`] if the number of bytes does not fit the size, which does not
    /// happen.
    pub(crate) fn into_image(self) -> Result<DynamicImage, RenderError> {
        let PixelSize { width, height } = self.size;
        let image = match self.channels {
            PixelChannels::Gray => image::GrayImage::from_raw(width, height, self.bytes).map(DynamicImage::from),
            PixelChannels::Rgb => image::RgbImage::from_raw(width, height, self.bytes).map(DynamicImage::from),
            PixelChannels::Rgba => image::RgbaImage::from_raw(width, height, self.bytes).map(DynamicImage::from),
        };
        image.ok_or(RenderError::Internal)
    }

    /// Applies the orientation of a photo.
    pub(crate) fn oriented(self, orientation: Orientation) -> Result<Self, RenderError> {
        if orientation == Orientation::NoTransforms {
            return Ok(self);
        }
        let mut image = self.into_image()?;
        image.apply_orientation(orientation);
        Ok(Self::from_image(image))
    }

    /// Converts to four channels.
    pub(crate) fn into_rgba(self) -> Self {
        let mut bytes = Vec::with_capacity(self.bytes.len() / self.channels.bytes_per_pixel() * 4);
        match self.channels {
            PixelChannels::Rgba => return self,
            PixelChannels::Gray => self.bytes.iter().for_each(|&gray| bytes.extend([gray, gray, gray, 255])),
            PixelChannels::Rgb => {
                self.bytes.chunks_exact(3).for_each(|rgb| bytes.extend([rgb[0], rgb[1], rgb[2], 255]))
            }
        }
        Self { channels: PixelChannels::Rgba, bytes, ..self }
    }

    /// Converts grey to three channels, for encoders without grey.
    pub(crate) fn without_gray(self) -> Self {
        if self.channels != PixelChannels::Gray {
            return self;
        }
        let bytes = self.bytes.iter().flat_map(|&gray| [gray; 3]).collect();
        Self { channels: PixelChannels::Rgb, bytes, ..self }
    }

    /// Removes an alpha channel that is opaque everywhere.
    pub(crate) fn without_opaque_alpha(self) -> Self {
        if self.channels != PixelChannels::Rgba || self.bytes.chunks_exact(4).any(|pixel| pixel[3] != 255) {
            return self;
        }
        let bytes = self.bytes.chunks_exact(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect();
        Self { channels: PixelChannels::Rgb, bytes, ..self }
    }
}

/// A source whose header has been read and is within the limits.
pub(crate) struct OpenSource<'a> {
    decoder: SourceDecoder<'a>,
    /// The size as stored.
    pub(crate) size: PixelSize,
    /// The orientation of a photo, to be applied to the stored pixels.
    pub(crate) orientation: Orientation,
    /// The colour profile (ICC).
    pub(crate) profile: Option<Vec<u8>>,
}

type FileReader<'a> = Cursor<&'a [u8]>;

enum SourceDecoder<'a> {
    Still(Box<dyn ImageDecoder + 'a>),
    Gif(Box<GifDecoder<FileReader<'a>>>),
    AnimatedWebP(Box<WebPDecoder<FileReader<'a>>>),
}

/// The decoded content of a source.
pub(crate) enum DecodedContent<'a> {
    /// One image.
    Still(Pixels),
    /// Several images, decoded one after the other, and how often they are shown.
    Animation(Frames<'a>, LoopCount),
}

impl<'a> OpenSource<'a> {
    /// Reads the header of a file and checks it against the limits.
    ///
    /// # Errors
    /// [`RenderError::InvalidSource`], [`RenderError::ResolutionTooLarge`].
    pub(crate) fn open(file: &'a [u8], format: SourceFormat, limits: &RenderLimits) -> Result<Self, RenderError> {
        let reader = Cursor::new(file);
        let decoder: Box<dyn ImageDecoder + 'a> = match format {
            SourceFormat::Jpeg => Box::new(JpegDecoder::new(reader).map_err(source_error)?),
            SourceFormat::Png => {
                // The data that a PNG inflates beside its pixels, which have limits of their own
                let mut metadata = Limits::no_limits();
                metadata.max_alloc = Some(MAX_PNG_METADATA_BYTES);
                Box::new(PngDecoder::with_limits(reader, metadata).map_err(source_error)?)
            }
            SourceFormat::Bmp => Box::new(BmpDecoder::new(reader).map_err(source_error)?),
            SourceFormat::Ico => match png_of_icon(file) {
                Some(png) => return Self::open(png, SourceFormat::Png, limits),
                None => Box::new(IcoDecoder::new(reader).map_err(source_error)?),
            },
            SourceFormat::Tiff => Box::new(TiffDecoder::new(reader).map_err(source_error)?),
            SourceFormat::Gif => {
                let decoder = Box::new(GifDecoder::new(reader).map_err(source_error)?);
                return Self::checked(decoder, limits, SourceDecoder::Gif);
            }
            SourceFormat::WebP => {
                let decoder = Box::new(WebPDecoder::new(reader).map_err(source_error)?);
                return Self::checked(decoder, limits, |decoder| {
                    if decoder.has_animation() {
                        SourceDecoder::AnimatedWebP(decoder)
                    } else {
                        SourceDecoder::Still(decoder)
                    }
                });
            }
            SourceFormat::Svg => return Err(RenderError::InvalidSource),
        };
        Self::checked(decoder, limits, SourceDecoder::Still)
    }

    /// Reads size, orientation and profile, and checks them against the limits.
    fn checked<D: ImageDecoder>(
        mut decoder: D,
        limits: &RenderLimits,
        wrap: impl FnOnce(D) -> SourceDecoder<'a>,
    ) -> Result<Self, RenderError> {
        let (width, height) = decoder.dimensions();
        if width == 0 || height == 0 {
            return Err(RenderError::InvalidSource);
        }
        let size = PixelSize::new(width, height);
        if size.pixels() > limits.max_pixels || decoder.total_bytes() > limits.max_memory {
            return Err(RenderError::ResolutionTooLarge);
        }
        decoder.set_limits(decoder_limits(limits)).map_err(source_error)?;
        // A photo with a damaged orientation or profile is still a photo
        let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
        let profile = decoder.icc_profile().unwrap_or_default();
        Ok(Self { decoder: wrap(decoder), size, orientation, profile })
    }

    /// Decodes the pixels, or starts to decode the frames.
    ///
    /// # Errors
    /// [`RenderError::InvalidSource`], [`RenderError::ResolutionTooLarge`].
    pub(crate) fn decode(self, file: &[u8]) -> Result<DecodedContent<'a>, RenderError> {
        match self.decoder {
            SourceDecoder::Still(decoder) => Ok(DecodedContent::Still(Pixels::from_image(
                DynamicImage::from_decoder(decoder).map_err(source_error)?,
            ))),
            SourceDecoder::Gif(decoder) => {
                // The decoder does not tell a missing count, which means once, from an endless one
                const LOOP_EXTENSION: &[u8] = b"NETSCAPE2.0";
                let is_looped = file.windows(LOOP_EXTENSION.len()).any(|window| window == LOOP_EXTENSION);
                let count = if is_looped { decoder.loop_count() } else { LoopCount::Finite(std::num::NonZeroU32::MIN) };
                Ok(DecodedContent::Animation(decoder.into_frames(), count))
            }
            SourceDecoder::AnimatedWebP(decoder) => {
                let count = decoder.loop_count();
                Ok(DecodedContent::Animation(decoder.into_frames(), count))
            }
        }
    }
}

/// Returns the largest image of an icon if it is a PNG. The library decodes only those of 32 bits
/// within icons, but many programs write others.
fn png_of_icon(file: &[u8]) -> Option<&[u8]> {
    const ENTRY_SIZE: usize = 16;
    const PNG_SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
    let count = usize::from(u16::from_le_bytes(*file.get(4..)?.first_chunk()?));
    let entries = file.get(6..)?.chunks_exact(ENTRY_SIZE).take(count);
    // 0 stands for 256. Of two equal ones, that with more colours
    let side = |byte: u8| if byte == 0 { 256 } else { u32::from(byte) };
    let area = |entry: &&[u8]| (side(entry[0]) * side(entry[1]), u16::from_le_bytes([entry[6], entry[7]]));
    let largest = entries.max_by_key(area)?;
    let number = |at: usize| usize::try_from(u32::from_le_bytes(*largest.get(at..)?.first_chunk()?)).ok();
    let (length, offset) = (number(8)?, number(12)?);
    let image = file.get(offset..offset.checked_add(length)?)?;
    image.starts_with(PNG_SIGNATURE).then_some(image)
}

/// Converts a frame of an animation.
pub(crate) fn frame_pixels(frame: image::Frame) -> Pixels {
    Pixels::from_image(DynamicImage::ImageRgba8(frame.into_buffer()))
}

fn decoder_limits(limits: &RenderLimits) -> Limits {
    let mut decoder_limits = Limits::no_limits();
    // The pixels, and a third of it for what the decoder keeps beside them
    decoder_limits.max_alloc = Some(limits.max_memory + limits.max_memory / 3);
    decoder_limits
}

/// Maps an error of a decoder.
pub(crate) fn source_error(error: ImageError) -> RenderError {
    match error {
        ImageError::Limits(limit) if !matches!(limit.kind(), LimitErrorKind::Unsupported { .. }) => {
            RenderError::ResolutionTooLarge
        }
        _ => RenderError::InvalidSource,
    }
}
