//! Animated GIF and WebP.

use std::io::Cursor;

use bytes::Bytes;
use image::codecs::gif::GifDecoder;
use image::codecs::webp::WebPDecoder;
use image::{AnimationDecoder as _, Frame, Rgba};
use portico_images::{OutputFormat, RenderError, RenderLimits, RenderedImage, RequestedFormat, render};

use crate::{control, corpus, decoded, rendered, transformation};

fn frames(image: &RenderedImage) -> Vec<Frame> {
    let reader = Cursor::new(&image.bytes);
    let frames = match image.format {
        OutputFormat::Gif => GifDecoder::new(reader).unwrap().into_frames(),
        OutputFormat::WebP => WebPDecoder::new(reader).unwrap().into_frames(),
        format => panic!("{format:?} has no frames"),
    };
    frames.collect_frames().unwrap()
}

fn durations(frames: &[Frame]) -> Vec<u32> {
    frames.iter().map(|frame| frame.delay().numer_denom_ms().0 / frame.delay().numer_denom_ms().1).collect()
}

#[test]
fn each_frame_keeps_its_duration_and_shows_its_own_picture() {
    for is_transparent in [false, true] {
        let file = corpus::animated_gif(40, 20, 5, is_transparent);
        for requested in [RequestedFormat::Origin, RequestedFormat::WebP] {
            let image = rendered(&file, "", requested).unwrap();
            let frames = frames(&image);
            assert_eq!(durations(&frames), [50, 60, 70, 80, 90], "{requested:?}");
            for (index, frame) in frames.iter().enumerate() {
                let pixels = frame.buffer();
                assert_eq!((pixels.width(), pixels.height()), (40, 20));
                // The square of this frame, and of no other one
                for square in 0..5 {
                    let Rgba([red, _, _, alpha]) = *pixels.get_pixel(square * 4 + 1, 3);
                    let shown = red > 180 && alpha > 200;
                    assert_eq!(
                        shown,
                        square as usize == index,
                        "{requested:?} transparent {is_transparent} frame {index} square {square}"
                    );
                }
                let Rgba([_, _, _, alpha]) = *pixels.get_pixel(30, 15);
                assert_eq!(alpha == 0, is_transparent);
            }
        }
    }
}

#[test]
fn frames_are_scaled_and_cropped_alike() {
    let file = corpus::animated_gif(40, 20, 5, false);
    for requested in [RequestedFormat::Origin, RequestedFormat::WebP] {
        let frames = frames(&rendered(&file, "width=7&height=9&gravity=sm", requested).unwrap());
        assert!(frames.iter().all(|frame| (frame.buffer().width(), frame.buffer().height()) == (7, 9)));
    }
}

#[test]
fn equal_frames_are_merged_and_keep_their_time() {
    let mut encoder = gif::Encoder::new(Vec::new(), 4, 4, &[]).unwrap();
    encoder.set_repeat(gif::Repeat::Infinite).unwrap();
    for color in [10, 10, 10, 200] {
        let mut frame = gif::Frame::from_rgba_speed(4, 4, &mut [color, 0, 0, 255].repeat(16), 10);
        frame.delay = 7;
        encoder.write_frame(&frame).unwrap();
    }
    let file = encoder.into_inner().unwrap().into();
    for requested in [RequestedFormat::Origin, RequestedFormat::WebP] {
        assert_eq!(durations(&frames(&rendered(&file, "", requested).unwrap())), [210, 70]);
    }
}

#[test]
fn the_loop_count_is_kept() {
    for (repeat, expected) in [(Some(gif::Repeat::Infinite), 0), (Some(gif::Repeat::Finite(3)), 3), (None, 1)] {
        let mut encoder = gif::Encoder::new(Vec::new(), 2, 2, &[]).unwrap();
        if let Some(repeat) = repeat {
            encoder.set_repeat(repeat).unwrap();
        }
        for color in [0, 255] {
            encoder.write_frame(&gif::Frame::from_rgba_speed(2, 2, &mut [color, 0, 0, 255].repeat(4), 10)).unwrap();
        }
        let file: Bytes = encoder.into_inner().unwrap().into();
        let webp = rendered(&file, "", RequestedFormat::WebP).unwrap().bytes;
        let position = webp.windows(4).position(|window| window == b"ANIM").unwrap();
        assert_eq!(u16::from_le_bytes([webp[position + 12], webp[position + 13]]), expected, "{repeat:?}");
        let gif = rendered(&file, "", RequestedFormat::Origin).unwrap().bytes;
        assert_eq!(gif.windows(8).any(|window| window == b"NETSCAPE"), repeat.is_some());
    }
}

#[test]
fn frames_beyond_the_limit_are_dropped() {
    let file = corpus::animated_gif(400, 2, 70, false);
    for requested in [RequestedFormat::Origin, RequestedFormat::WebP] {
        assert_eq!(frames(&rendered(&file, "", requested).unwrap()).len(), 60);
    }
}

#[test]
fn frames_with_too_many_pixels_in_sum_are_rejected() {
    let limits = RenderLimits { max_pixels: 3_000, ..RenderLimits::default() };
    let outcome = |frames, requested| {
        render(&corpus::animated_gif(40, 20, frames, false), &transformation("width=5"), requested, &limits, &control())
    };
    for requested in [RequestedFormat::Origin, RequestedFormat::WebP] {
        assert!(outcome(3, requested).is_ok());
        assert_eq!(outcome(4, requested), Err(RenderError::FrameResolutionTooLarge));
    }
}

#[test]
fn a_format_without_animations_shows_the_first_frame() {
    let image = rendered(&corpus::animated_gif(40, 20, 5, false), "", RequestedFormat::Avif).unwrap();
    assert_eq!(crate::decoded_size(&image), (40, 20));
}

#[test]
fn an_animation_stays_one_for_clients_that_accept_avif() {
    let file = corpus::animated_gif(40, 20, 5, false);
    for (webp, format) in [(true, OutputFormat::WebP), (false, OutputFormat::Gif)] {
        let image = rendered(&file, "", RequestedFormat::AvifAccepted { webp }).unwrap();
        assert_eq!((image.format, frames(&image).len()), (format, 5));
    }
}

#[test]
fn a_still_gif_stays_still() {
    let file = corpus::animated_gif(40, 20, 1, false);
    let image = rendered(&file, "width=10", RequestedFormat::WebP).unwrap();
    assert!(!image.bytes.windows(4).any(|window| window == b"ANIM"));
    assert_eq!(decoded(&image).width(), 10);
}
