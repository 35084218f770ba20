//! Still images: sizes, places, colours and formats.

use image::{ImageFormat, Rgb, Rgba};
use portico_images::geometry::{PixelSize, result_size};
use portico_images::{OutputFormat, RenderError, RenderLimits, RequestedFormat, render};
use proptest::prelude::*;

use crate::{control, corpus, decoded, decoded_size, rendered, transformation};

/// Returns the size of each valid file as people see it.
fn shown_size(name: &str, file: &[u8]) -> PixelSize {
    if name == "turned jpeg" {
        return PixelSize::new(32, 64);
    }
    if name == "ico of a png without alpha" {
        // The library does not decode it
        return PixelSize::new(61, 43);
    }
    let image = image::load_from_memory(file).unwrap();
    PixelSize::new(image.width(), image.height())
}

#[test]
fn every_source_keeps_its_format_or_takes_the_requested_one() {
    use OutputFormat::{Avif, Gif, Jpeg, Png, WebP};
    for (name, file) in corpus::valid() {
        let origin = match name {
            name if name.ends_with("jpeg") => Jpeg,
            name if name.contains("gif") => Gif,
            name if name.contains("webp") => WebP,
            "bmp" | "tiff" | "one pixel" | "ico of a png without alpha" => Jpeg,
            _ => Png,
        };
        for (requested, format) in [
            (RequestedFormat::Origin, origin),
            (RequestedFormat::WebP, WebP),
            (RequestedFormat::WebPAccepted, WebP),
            (RequestedFormat::Avif, Avif),
        ] {
            let image = rendered(&file, "width=20&height=10", requested).unwrap();
            assert_eq!(image.format, format, "{name} as {requested:?}");
            let expected = result_size(shown_size(name, &file), &transformation("width=20&height=10"));
            assert_eq!(decoded_size(&image), (expected.width, expected.height), "{name} as {requested:?}");
        }
    }
}

#[test]
fn without_parameters_a_picture_keeps_its_size_and_content() {
    let picture = corpus::picture(61, 43);
    let image = rendered(&corpus::encoded(picture.clone(), ImageFormat::Png), "", RequestedFormat::Origin).unwrap();
    assert_eq!(decoded(&image).into_rgb8(), picture);
}

#[test]
fn a_photo_is_turned_as_its_orientation_says() {
    let [red, green, blue, white] = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]];
    // The corners from the top left, by row
    let corners = [
        (1, [red, green, blue, white]),
        (2, [green, red, white, blue]),
        (3, [white, blue, green, red]),
        (4, [blue, white, red, green]),
        (5, [red, blue, green, white]),
        (6, [blue, red, white, green]),
        (7, [white, green, blue, red]),
        (8, [green, white, red, blue]),
    ];
    for (orientation, corners) in corners {
        let file = corpus::oriented_jpeg(orientation);
        let (width, height) = if orientation < 5 { (64, 32) } else { (32, 64) };
        for (query, width, height) in [
            ("", width, height),
            ("width=16&height=16&resize=fill", 16, 16),
            ("width=16&height=16&resize=contain", width / 4, height / 4),
        ] {
            let image = decoded(&rendered(&file, query, RequestedFormat::Origin).unwrap()).into_rgb8();
            assert_eq!((image.width(), image.height()), (width, height), "{orientation} {query}");
            let places = [(1, 1), (width - 2, 1), (1, height - 2), (width - 2, height - 2)];
            for ((x, y), expected) in places.into_iter().zip(corners) {
                let Rgb(found) = *image.get_pixel(x, y);
                let distance = found.iter().zip(expected).map(|(a, b)| a.abs_diff(b)).max().unwrap();
                assert!(distance < 60, "orientation {orientation} {query}: {found:?} at {x},{y} is not {expected:?}");
            }
        }
    }
}

#[test]
fn a_crop_of_a_turned_photo_is_anchored_as_people_see_it() {
    // Turned by 90°: blue red above white green
    let file = corpus::oriented_jpeg(6);
    for (gravity, expected) in
        [("nowe", [0, 0, 255]), ("noea", [255, 0, 0]), ("sowe", [255, 255, 255]), ("soea", [0, 255, 0])]
    {
        let query = format!("width=8&height=8&resize=cover&gravity={gravity}");
        // 32×64 covers 8×8 as 8×16, of which one half is kept: look at the corner
        let image = decoded(&rendered(&file, &query, RequestedFormat::Origin).unwrap()).into_rgb8();
        let corner = (if gravity.ends_with("ea") { 6 } else { 1 }, if gravity.starts_with("so") { 6 } else { 1 });
        let Rgb(found) = *image.get_pixel(corner.0, corner.1);
        let distance = found.iter().zip(expected).map(|(a, b): (&u8, u8)| a.abs_diff(b)).max().unwrap();
        assert!(distance < 60, "{gravity}: {found:?} is not {expected:?}");
    }
}

#[test]
fn transparency_survives_and_does_not_colour_its_edge() {
    let file = corpus::encoded(
        image::RgbaImage::from_fn(80, 80, |x, _| if x < 40 { Rgba([255, 0, 0, 0]) } else { Rgba([0, 0, 255, 255]) }),
        ImageFormat::Png,
    );
    for requested in [RequestedFormat::Origin, RequestedFormat::WebP] {
        let image = decoded(&rendered(&file, "width=21&height=21&resize=fill", requested).unwrap()).into_rgba8();
        assert_eq!(image.get_pixel(0, 10).0[3], 0);
        assert_eq!(image.get_pixel(20, 10).0[3], 255);
        let Rgba([red, _, blue, alpha]) = *image.get_pixel(10, 10);
        assert!(alpha > 0 && red < 40 && blue > 200, "the hidden red shows: {red} {blue} {alpha}");
    }
}

#[test]
fn a_cmyk_photo_has_the_colours_of_its_inks() {
    for (ink, expected) in
        [([255, 0, 0, 0], [0, 255, 255]), ([0, 0, 0, 255], [0, 0, 0]), ([0, 0, 0, 0], [255, 255, 255])]
    {
        let image = rendered(&corpus::cmyk_jpeg(16, 16, ink), "width=4&height=4", RequestedFormat::Origin).unwrap();
        let Rgb(found) = *decoded(&image).into_rgb8().get_pixel(2, 2);
        let distance = found.iter().zip(expected).map(|(a, b): (&u8, u8)| a.abs_diff(b)).max().unwrap();
        assert!(distance < 20, "{ink:?}: {found:?}");
    }
}

#[test]
fn a_profile_is_converted_to_srgb_and_left_out() {
    use image::ImageEncoder as _;
    let profile = moxcms::ColorProfile::new_display_p3().encode().unwrap();
    let mut file = Vec::new();
    let mut encoder = image::codecs::png::PngEncoder::new(&mut file);
    encoder.set_icc_profile(profile).unwrap();
    // A green that sRGB has too
    encoder.write_image(&[100, 180, 90].repeat(64), 8, 8, image::ExtendedColorType::Rgb8).unwrap();

    let image = rendered(&file.into(), "", RequestedFormat::Origin).unwrap();
    let mut decoder = image::codecs::png::PngDecoder::new(std::io::Cursor::new(&image.bytes)).unwrap();
    assert_eq!(image::ImageDecoder::icc_profile(&mut decoder).unwrap(), None);
    let Rgb([red, green, blue]) = *decoded(&image).into_rgb8().get_pixel(4, 4);
    // Display P3's primaries are wider: the same colour has more extreme numbers in sRGB
    assert!(red < 95 && (178..=190).contains(&green) && blue < 90, "{red} {green} {blue}");
}

#[test]
fn a_result_carries_nothing_of_the_source_but_its_pixels() {
    let image = rendered(&corpus::oriented_jpeg(1), "", RequestedFormat::Origin).unwrap();
    assert!(!image.bytes.windows(4).any(|window| window == b"Exif"));
}

#[test]
fn a_smart_crop_keeps_the_detail() {
    let mut wall = image::RgbImage::from_pixel(400, 100, Rgb([120, 130, 140]));
    let picture = corpus::picture(60, 100);
    image::imageops::replace(&mut wall, &picture, 320, 0);
    let file = corpus::encoded(wall, ImageFormat::Png);
    let image = decoded(&rendered(&file, "width=100&height=100&gravity=sm", RequestedFormat::Origin).unwrap());
    let detailed = image.into_rgb8().pixels().filter(|pixel| **pixel != Rgb([120, 130, 140])).count();
    assert!(detailed > 5_000, "{detailed} pixels of 6,000");
}

#[test]
fn quality_changes_the_size_of_a_file() {
    let file = corpus::encoded(corpus::picture(200, 200), ImageFormat::Png);
    for requested in [RequestedFormat::WebP, RequestedFormat::Avif] {
        let length = |query| rendered(&file, query, requested).unwrap().bytes.len();
        assert!(length("quality=20") < length("") && length("") < length("quality=100"), "{requested:?}");
    }
}

#[test]
fn an_svg_document_is_passed_on_and_never_drawn() {
    let file = bytes::Bytes::from_static(b"<?xml version='1.0'?><svg><image href='http://127.0.0.1/x'/></svg>");
    let accepted = RequestedFormat::AvifAccepted { webp: true };
    for requested in [RequestedFormat::Origin, RequestedFormat::WebPAccepted, accepted] {
        let image = rendered(&file, "width=10", requested).unwrap();
        assert_eq!((image.format, &image.bytes), (OutputFormat::Svg, &file));
    }
    assert_eq!(rendered(&file, "", RequestedFormat::WebP), Err(RenderError::InvalidSource));
}

#[test]
fn an_accepted_format_gives_way_where_it_cannot_hold_the_size() {
    let file = corpus::encoded(image::RgbImage::new(20_000, 1), ImageFormat::Png);
    assert_eq!(rendered(&file, "", RequestedFormat::WebPAccepted).unwrap().format, OutputFormat::Png);
    assert_eq!(rendered(&file, "", RequestedFormat::WebP), Err(RenderError::ResultTooLarge));
    assert_eq!(rendered(&file, "width=100", RequestedFormat::WebP).unwrap().format, OutputFormat::WebP);

    let small = RenderLimits { max_avif_pixels: 100, ..RenderLimits::default() };
    let file = corpus::encoded(image::RgbImage::new(20, 10), ImageFormat::Png);
    for (query, webp, format) in
        [("width=10", false, OutputFormat::Avif), ("", true, OutputFormat::WebP), ("", false, OutputFormat::Png)]
    {
        let requested = RequestedFormat::AvifAccepted { webp };
        let image = render(&file, &transformation(query), requested, &small, &control()).unwrap();
        assert_eq!(image.format, format, "{query} {webp}");
    }
}

fn parameters() -> impl Strategy<Value = String> {
    let side = prop_oneof![Just(0_u32), 1..70_u32, 1900..2100_u32];
    let resize = prop::sample::select(vec!["", "cover", "contain", "fill"]);
    let gravity =
        prop::sample::select(vec!["", "no", "so", "ea", "we", "noea", "nowe", "soea", "sowe", "ce", "sm", "fp"]);
    let quality = prop::option::of(20..=100_u8);
    (side.clone(), side, resize, gravity, -2.0..2.0_f64, -60.0..60.0_f64, quality).prop_map(
        |(width, height, resize, gravity, x, y, quality)| {
            let mut query = format!("width={width}&height={height}");
            if !resize.is_empty() {
                query += &format!("&resize={resize}");
            }
            match gravity {
                "" => {}
                "fp" => query += &format!("&gravity=fp&x_offset={}&y_offset={}", x.abs() / 2.0, y.abs() / 60.0),
                _ => query += &format!("&gravity={gravity}&x_offset={x}&y_offset={y}"),
            }
            if let Some(quality) = quality {
                query += &format!("&quality={quality}");
            }
            query
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_parameters_on_any_valid_file_give_an_image_of_the_computed_size(
        query in parameters(),
        index in any::<prop::sample::Index>(),
        requested in prop::sample::select(vec![RequestedFormat::Origin, RequestedFormat::WebP, RequestedFormat::WebPAccepted]),
    ) {
        static CORPUS: std::sync::LazyLock<Vec<(&str, bytes::Bytes)>> = std::sync::LazyLock::new(corpus::valid);
        let (name, file) = index.get(&CORPUS);
        let image = rendered(file, &query, requested).unwrap();
        let expected = result_size(shown_size(name, file), &transformation(&query));
        prop_assert_eq!(decoded_size(&image), (expected.width, expected.height), "{} {}", name, query);
    }
}
