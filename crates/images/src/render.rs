//! The path of one image: recognise → check → decode → crop and scale → turn → sRGB → encode.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use image::metadata::{LoopCount, Orientation};

use crate::decode::{DecodedContent, OpenSource, PixelChannels, Pixels, frame_pixels, source_error};
use crate::encode::{AnimationEncoder, check_size, encode_still};
use crate::geometry::{PixelSize, ResizePlan, plan};
use crate::saliency::{PREVIEW_SIDE, most_detailed};
use crate::{
    Gravity, OutputFormat, RenderControl, RenderError, RenderLimits, RequestedFormat, ResizeMode, SourceFormat,
    Transformation,
};

/// The result of a rendering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedImage {
    /// The format.
    pub format: OutputFormat,
    /// The file.
    pub bytes: Bytes,
}

/// Renders the file of an image.
///
/// An SVG document is returned as it is if its format may stay; it is never drawn, so that it
/// refers to nothing outside.
///
/// This blocks for as long as the codecs take; [`crate::Renderer`] runs it beside the threads of
/// requests.
///
/// # Errors
/// Any [`RenderError`] except [`RenderError::TooManyRequests`] and
/// [`RenderError::SourceUnavailable`].
pub fn render(
    file: &Bytes,
    transformation: &Transformation,
    requested: RequestedFormat,
    limits: &RenderLimits,
    control: &RenderControl,
) -> Result<RenderedImage, RenderError> {
    if file.len() > limits.max_source_bytes {
        return Err(RenderError::FileTooLarge);
    }
    let source_format = SourceFormat::recognise(file).ok_or(RenderError::InvalidSource)?;
    if source_format == SourceFormat::Svg {
        return match requested {
            RequestedFormat::Origin | RequestedFormat::WebPAccepted | RequestedFormat::AvifAccepted { .. } => {
                Ok(RenderedImage { format: OutputFormat::Svg, bytes: file.clone() })
            }
            RequestedFormat::WebP | RequestedFormat::Avif => Err(RenderError::InvalidSource),
        };
    }
    let rendering = Rendering { file, source_format, transformation, requested, limits, control };
    // Codecs are meant to return errors for damaged files. Where one panics, the file is damaged,
    // and nothing of it is kept: all that the closure writes belongs to this rendering
    let outcome = catch_unwind(AssertUnwindSafe(|| rendering.run()));
    outcome.unwrap_or_else(|_| {
        tracing::warn!(format = ?source_format, "a codec panicked on the file of an image");
        Err(RenderError::InvalidSource)
    })
}

/// The inputs of one rendering.
struct Rendering<'a> {
    file: &'a Bytes,
    source_format: SourceFormat,
    transformation: &'a Transformation,
    requested: RequestedFormat,
    limits: &'a RenderLimits,
    control: &'a RenderControl,
}

impl Rendering<'_> {
    fn run(&self) -> Result<RenderedImage, RenderError> {
        self.control.check()?;
        let source = OpenSource::open(self.file, self.source_format, self.limits)?;
        let stored = source.size;
        let orientation = source.orientation;
        let profile = source.profile.clone();
        // Checked before the source is decoded, where the format is known already
        let size = crate::geometry::result_size(stored.oriented(orientation), self.transformation);
        let requested = self.possible(size, self.requested)?;

        let mut scaler = Scaler { resizer: Resizer::new(), transformation: self.transformation, plan: None };
        let (format, bytes) = match source.decode(self.file)? {
            DecodedContent::Still(pixels) => {
                self.control.check()?;
                let pixels = crate::color::to_srgb(scaler.scale(pixels, orientation)?, profile.as_deref());
                self.encode(pixels.without_opaque_alpha(), requested)?
            }
            DecodedContent::Animation(frames, loop_count) => {
                let requested = self.possible(size, requested.for_animation())?;
                self.animate(frames, loop_count, &mut scaler, requested)?
            }
        };
        if bytes.len() > self.limits.max_output_bytes {
            return Err(RenderError::ResultTooLarge);
        }
        Ok(RenderedImage { format, bytes: bytes.into() })
    }

    /// Returns the first format that an image of this size can have: what is only accepted gives
    /// way to another one.
    ///
    /// # Errors
    /// [`RenderError::ResultTooLarge`] if it can have none.
    fn possible(&self, size: PixelSize, mut requested: RequestedFormat) -> Result<RequestedFormat, RenderError> {
        loop {
            let target = OutputFormat::choose(self.source_format, requested, false);
            match (check_size(size, target, self.limits), requested.fallback()) {
                (Err(_), Some(fallback)) => requested = fallback,
                (outcome, _) => return outcome.map(|()| requested),
            }
        }
    }

    /// Encodes a still image.
    fn encode(&self, pixels: Pixels, requested: RequestedFormat) -> Result<(OutputFormat, Vec<u8>), RenderError> {
        self.control.check()?;
        let has_alpha = pixels.channels == PixelChannels::Rgba;
        let format = OutputFormat::choose(self.source_format, requested, has_alpha);
        check_size(pixels.size, format, self.limits)?;
        Ok((format, encode_still(pixels, format, self.transformation.quality())?))
    }

    /// Decodes, scales and encodes the frames of an animation one after the other. A format
    /// without animations gets the first.
    fn animate(
        &self,
        frames: image::Frames<'_>,
        loop_count: LoopCount,
        scaler: &mut Scaler<'_>,
        requested: RequestedFormat,
    ) -> Result<(OutputFormat, Vec<u8>), RenderError> {
        let format = OutputFormat::choose(self.source_format, requested, true);
        let mut animation: Option<AnimationEncoder> = None;
        let mut pixels_decoded = 0;
        for frame in frames.take(self.limits.max_frames) {
            self.control.check()?;
            let frame = match (frame, &animation) {
                (Ok(frame), _) => frame,
                // A file that ends early is shown as far as it goes
                (Err(_), Some(_)) => break,
                (Err(error), None) => return Err(source_error(error)),
            };
            let (numerator, denominator) = frame.delay().numer_denom_ms();
            let duration_ms = numerator / denominator.max(1);
            let pixels = frame_pixels(frame);
            pixels_decoded += pixels.size.pixels();
            if pixels_decoded > self.limits.max_pixels {
                return Err(RenderError::FrameResolutionTooLarge);
            }
            let pixels = scaler.scale(pixels, Orientation::NoTransforms)?;
            let encoder = match &mut animation {
                Some(encoder) => encoder,
                None => {
                    let started =
                        AnimationEncoder::start(format, pixels.size, loop_count, self.transformation.quality())?;
                    let Some(encoder) = started else { return self.encode(pixels.without_opaque_alpha(), requested) };
                    animation.insert(encoder)
                }
            };
            encoder.push(pixels, duration_ms)?;
            if encoder.bytes_written() > self.limits.max_output_bytes {
                return Err(RenderError::FrameResolutionTooLarge);
            }
        }
        let animation = animation.ok_or(RenderError::InvalidSource)?;
        Ok((format, animation.finish()?))
    }
}

/// Crops and scales the images of one source, all by the plan of the first.
struct Scaler<'a> {
    resizer: Resizer,
    transformation: &'a Transformation,
    plan: Option<ResizePlan>,
}

impl Scaler<'_> {
    /// Crops and scales an image as `transformation` says, then turns it upright.
    fn scale(&mut self, pixels: Pixels, orientation: Orientation) -> Result<Pixels, RenderError> {
        let plan = match self.plan {
            Some(plan) => plan,
            None => {
                let plan = self.make_plan(&pixels, orientation)?;
                *self.plan.insert(plan)
            }
        };
        let whole = plan.size == pixels.size
            && (plan.region.width, plan.region.height) == (f64::from(plan.size.width), f64::from(plan.size.height));
        if whole {
            return pixels.oriented(orientation);
        }
        self.resize(&pixels, &plan)?.oriented(orientation)
    }

    /// Plans in the coordinates of the stored pixels.
    fn make_plan(&mut self, pixels: &Pixels, orientation: Orientation) -> Result<ResizePlan, RenderError> {
        let oriented = pixels.size.oriented(orientation);
        let is_smart =
            self.transformation.gravity() == Gravity::Smart && self.transformation.resize() == ResizeMode::Cover;
        let preview = if is_smart { Some(self.preview(pixels)?.oriented(orientation)?) } else { None };
        let plan = plan(oriented, self.transformation, |width, height| {
            preview.map_or((0.5, 0.5), |preview| most_detailed(preview, width, height))
        });
        Ok(plan.before_orientation(orientation, pixels.size))
    }

    /// Scales the whole image down to a preview.
    fn preview(&mut self, pixels: &Pixels) -> Result<Pixels, RenderError> {
        let PixelSize { width, height } = pixels.size;
        let scale = (f64::from(PREVIEW_SIDE) / f64::from(width.max(height))).min(1.0);
        let side = |length: u32| (f64::from(length) * scale).round() as u32;
        let region =
            crate::geometry::SourceRegion { left: 0.0, top: 0.0, width: f64::from(width), height: f64::from(height) };
        self.resize(pixels, &ResizePlan { region, size: PixelSize::new(side(width), side(height)) })
    }

    fn resize(&mut self, pixels: &Pixels, plan: &ResizePlan) -> Result<Pixels, RenderError> {
        let pixel_type = match pixels.channels {
            PixelChannels::Gray => PixelType::U8,
            PixelChannels::Rgb => PixelType::U8x3,
            PixelChannels::Rgba => PixelType::U8x4,
        };
        let failed = |error: &dyn std::fmt::Display| {
            tracing::error!(error = %error, "an image could not be scaled");
            RenderError::Internal
        };
        let source = ImageRef::new(pixels.size.width, pixels.size.height, &pixels.bytes, pixel_type)
            .map_err(|error| failed(&error))?;
        let mut result = Image::new(plan.size.width, plan.size.height, pixel_type);
        let region = plan.region;
        let options = ResizeOptions::new()
            .crop(region.left, region.top, region.width, region.height)
            .resize_alg(ResizeAlg::Convolution(FilterType::Lanczos3))
            .use_alpha(true);
        self.resizer.resize(&source, &mut result, &options).map_err(|error| failed(&error))?;
        Ok(Pixels { size: plan.size, channels: pixels.channels, bytes: result.into_vec() })
    }
}
