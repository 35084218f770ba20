//! Images: routes, permission, headers, signed parameters, and results that are kept.

use std::time::Duration;

use portico_storage::{GcOptions, ImageSettings};
use portico_testkit::TestResponse;
use serde_json::json;

use super::helper::{Files, OWN_FOLDER, assert_error, own};

/// Returns a server that renders images, with the buckets `files` and `site`.
async fn with_images() -> (Files, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let f = Files::with(|settings| settings.images = Some(ImageSettings::in_folder(folder.path()))).await;
    f.bucket("files", json!({})).await;
    f.bucket("site", json!({ "public": true })).await;
    (f, folder)
}

/// Returns the number of results that are kept.
fn kept(folder: &tempfile::TempDir) -> usize {
    std::fs::read_dir(folder.path()).unwrap().count()
}

/// Waits until this number of results is kept: those of deleted versions are removed after the
/// response.
async fn keeps(folder: &tempfile::TempDir, wanted: usize) {
    let settled = async {
        while kept(folder) != wanted {
            tokio::task::yield_now().await;
        }
    };
    let outcome = tokio::time::timeout(Duration::from_secs(30), settled).await;
    assert!(outcome.is_ok(), "{} results, wanted {wanted}", kept(folder));
}

/// Returns a PNG of one colour.
fn picture(width: u32, height: u32, color: [u8; 3]) -> Vec<u8> {
    let mut file = std::io::Cursor::new(Vec::new());
    let picture = image::RgbImage::from_pixel(width, height, image::Rgb(color));
    picture.write_to(&mut file, image::ImageFormat::Png).unwrap();
    file.into_inner()
}

impl Files {
    async fn store_picture(&self, path: &str, content: Vec<u8>) {
        let request =
            self.post(&format!("/object/{path}")).header("content-type", "image/png").header("x-upsert", "true");
        self.service(request.header("cache-control", "max-age=60").body(content)).send().await.expect(200);
    }
}

#[track_caller]
fn size(sent: &TestResponse) -> (u32, u32) {
    let image = image::load_from_memory(&sent.body).unwrap();
    (image.width(), image.height())
}

#[tokio::test]
async fn a_public_image_is_sent_in_the_requested_size_with_the_headers_of_its_source() {
    let (f, _folder) = with_images().await;
    f.store_picture("site/a.png", picture(40, 20, [200, 0, 0])).await;
    let source = f.get("/object/public/site/a.png").send().await.expect(200);
    let sent =
        f.get("/render/image/public/site/a.png?width=10&height=10&resize=contain&quality=50").send().await.expect(200);
    assert_eq!(size(&sent), (10, 5));
    let length = sent.body.len().to_string();
    for (name, value) in [
        ("content-type", Some("image/png")),
        ("content-length", Some(length.as_str())),
        ("x-transformations", Some("height:10,width:10,resizing_type:fit,quality:50")),
        ("x-robots-tag", Some("none")),
        ("x-content-type-options", Some("nosniff")),
        ("cache-control", Some("max-age=60")),
        ("vary", Some("Accept")),
        ("accept-ranges", None),
        ("content-disposition", None),
        ("etag", source.header("etag")),
        ("last-modified", source.header("last-modified")),
    ] {
        assert_eq!(sent.header(name), value, "{name}");
    }
    let head =
        f.head("/render/image/public/site/a.png?width=10&height=10&resize=contain&quality=50").send().await.expect(200);
    assert_eq!((head.header("content-length"), head.text().as_str()), (Some(length.as_str()), ""));
    let named = f.get("/render/image/public/site/a.png?width=10&download=b%20c.png").send().await.expect(200);
    assert!(named.header("content-disposition").unwrap().starts_with("attachment; filename=b%20c.png"));
    // Ranges of the source mean nothing for a result
    let whole = f.get("/render/image/public/site/a.png?width=10").header("range", "bytes=0-1");
    assert_eq!(size(&whole.send().await.expect(200)), (10, 20));
}

#[tokio::test]
async fn a_client_with_an_image_of_the_current_version_gets_no_body() {
    let (f, _folder) = with_images().await;
    f.store_picture("site/a.png", picture(40, 20, [200, 0, 0])).await;
    let url = "/render/image/public/site/a.png?width=10";
    let first = f.get(url).send().await.expect(200);
    let etag = first.header("etag").unwrap();
    let again = f.get(url).header("if-none-match", etag).send().await.expect(304);
    assert_eq!(
        (again.text().as_str(), again.header("etag"), again.header("vary"), again.header("cache-control")),
        ("", Some(etag), Some("Accept"), first.header("cache-control"))
    );
    // Permission comes first
    f.store_picture("files/a.png", picture(40, 20, [200, 0, 0])).await;
    f.get("/render/image/public/files/a.png?width=10").header("if-none-match", etag).send().await.expect(400);
    f.store_picture("site/a.png", picture(20, 40, [0, 0, 9])).await;
    let replaced = f.get(url).header("if-none-match", etag).send().await.expect(200);
    assert_ne!(replaced.header("etag"), Some(etag));
}

#[tokio::test]
async fn the_format_is_the_named_one_or_negotiated() {
    let (f, _folder) = with_images().await;
    f.store_picture("site/a.png", picture(40, 20, [200, 0, 0])).await;
    for (query, accept, format, vary) in [
        ("", "image/avif,image/webp,*/*", "image/webp", Some("Accept")),
        ("", "image/avif,*/*", "image/png", Some("Accept")),
        ("?format=origin", "image/webp", "image/png", None),
        ("?format=webp", "*/*", "image/webp", None),
        ("?format=avif", "*/*", "image/avif", None),
    ] {
        let sent =
            f.get(&format!("/render/image/public/site/a.png{query}")).header("accept", accept).send().await.expect(200);
        assert_eq!((sent.header("content-type"), sent.header("vary")), (Some(format), vary), "{query} {accept}");
    }
}

#[tokio::test]
async fn avif_is_negotiated_where_the_operator_wants_it() {
    let folder = tempfile::tempdir().unwrap();
    let images = ImageSettings { negotiate_avif: true, ..ImageSettings::in_folder(folder.path()) };
    let f = Files::with(|settings| settings.images = Some(images)).await;
    f.bucket("site", json!({ "public": true })).await;
    f.store_picture("site/a.png", picture(8, 8, [0, 0, 200])).await;
    for (query, accept, format, vary) in [
        ("", "image/avif,image/webp,*/*", "image/avif", Some("Accept")),
        ("", "image/webp,*/*", "image/webp", Some("Accept")),
        ("", "*/*", "image/png", Some("Accept")),
        ("?format=origin", "image/avif", "image/png", None),
    ] {
        let sent =
            f.get(&format!("/render/image/public/site/a.png{query}")).header("accept", accept).send().await.expect(200);
        assert_eq!((sent.header("content-type"), sent.header("vary")), (Some(format), vary), "{query} {accept}");
    }
}

#[tokio::test]
async fn invalid_parameters_and_sources_have_the_errors_of_the_contract() {
    let (f, _folder) = with_images().await;
    f.store_picture("site/a.png", picture(4, 4, [0, 0, 0])).await;
    f.store("site/text.png", "not a picture").await.expect(200);
    for (query, code, message) in [
        ("quality=19", "InvalidRequest", "querystring/quality must be >= 20"),
        ("width=a", "InvalidRequest", "querystring/width must be integer"),
        ("resize=x", "InvalidRequest", "querystring/resize must be equal to one of the allowed values"),
        ("gravity=fp", "InvalidParameter", "Focal point requires x and y coordinates within 0-1 range"),
    ] {
        let sent = f.get(&format!("/render/image/public/site/a.png?{query}")).send().await;
        assert_error(&sent, 400, "400", code, message);
    }
    let sent = f.get("/render/image/public/site/text.png?width=4").send().await;
    assert_error(&sent, 400, "400", "InvalidRequest", "The source image is invalid or unsupported for rendering");
    let sent = f.get("/render/image/public/site/missing.png").send().await;
    assert_error(&sent, 400, "404", "NoSuchKey", "Object not found");
}

#[tokio::test]
async fn policies_decide_on_each_request_for_a_kept_result_too() {
    let (f, folder) = with_images().await;
    f.t.migrate(OWN_FOLDER).await;
    let (alice, bob) = (f.t.member("alice@example.com").await, f.t.member("bob@example.com").await);
    // Policies decide for public buckets too
    for bucket in ["files", "site"] {
        let path = format!("{bucket}/{}", own(&alice, "a.png"));
        f.store_picture(&path, picture(40, 20, [200, 0, 0])).await;
        let url = format!("/render/image/authenticated/{path}?width=10");
        let sent = f.get(&url).bearer(alice.access_token()).send().await.expect(200);
        assert_eq!(size(&sent), (10, 20));
        assert!(sent.header("cache-control").unwrap().starts_with("private"));
        let vary: Vec<_> = sent.headers.get_all("vary").iter().map(|value| value.to_str().unwrap()).collect();
        let vary = vary.join(", ");
        assert!(["Authorization", "apikey", "Accept"].iter().all(|name| vary.contains(name)), "{vary}");
        let before = kept(&folder);
        assert_error(&f.get(&url).bearer(bob.access_token()).send().await, 400, "404", "NoSuchKey", "Object not found");
        assert_error(&f.anon(f.get(&url)).send().await, 400, "404", "NoSuchKey", "Object not found");
        assert_eq!(kept(&folder), before, "nothing was rendered for others");
        let missing = "headers must have required property 'authorization'";
        assert_error(&f.get(&url).send().await, 400, "400", "InvalidRequest", missing);
    }
    let private = format!("/render/image/public/files/{}?width=10", own(&alice, "a.png"));
    assert_error(&f.get(&private).send().await, 400, "404", "NoSuchBucket", "Bucket not found");
}

#[tokio::test]
async fn a_new_version_never_meets_an_old_result_and_deleted_ones_leave_the_cache() {
    let (f, folder) = with_images().await;
    for color in [[250, 0, 0], [0, 0, 250]] {
        f.store_picture("site/a.png", picture(16, 16, color)).await;
        // Those of the replaced version are gone
        keeps(&folder, 0).await;
        for _ in 0..2 {
            let sent = f.get("/render/image/public/site/a.png?width=8&height=8").send().await.expect(200);
            let pixel = image::load_from_memory(&sent.body).unwrap().into_rgb8().get_pixel(4, 4).0;
            assert_eq!(pixel, color);
            assert_eq!(kept(&folder), 1);
        }
    }
    f.get("/render/image/public/site/a.png?width=9").send().await.expect(200);
    f.store_picture("site/b.png", picture(16, 16, [0, 0, 0])).await;
    f.get("/render/image/public/site/b.png?width=8").send().await.expect(200);
    assert_eq!(kept(&folder), 3);
    f.service(f.delete("/object/site/a.png")).send().await.expect(200);
    let sent = f.get("/render/image/public/site/a.png?width=8&height=8").send().await;
    assert_error(&sent, 400, "404", "NoSuchKey", "Object not found");
    keeps(&folder, 1).await;
}

#[tokio::test]
async fn a_garbage_collection_removes_the_results_of_what_it_deletes() {
    let (f, folder) = with_images().await;
    for name in ["a", "b", "c"] {
        f.store_picture(&format!("site/{name}.png"), picture(16, 16, [0, 0, 0])).await;
        f.get(&format!("/render/image/public/site/{name}.png?width=8")).send().await.expect(200);
    }
    // A row without content, and content without a row
    f.place.remove(&f.versions("site/a.png").await[0]).await;
    f.t.execute("set storage.allow_delete_query = 'true'; delete from storage.objects where name = 'b.png'").await;
    let options = GcOptions { grace: Duration::ZERO, delete_content: true, delete_rows: true };
    let found = f.t.storage().collect_garbage(options, &|_| {}).await.unwrap();
    assert_eq!((found.deleted_rows, found.orphans, kept(&folder)), (1, 1, 1));
    f.get("/render/image/public/site/c.png?width=8").send().await.expect(200);
    assert_eq!(kept(&folder), 1);
}

#[tokio::test]
async fn a_source_above_the_limit_is_rejected_before_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let f = Files::with(|settings| {
        let mut images = ImageSettings::in_folder(folder.path());
        images.rendering.limits.max_source_bytes = 100;
        settings.images = Some(images);
    })
    .await;
    f.bucket("site", json!({ "public": true })).await;
    f.store_picture("site/a.png", vec![0; 101]).await;
    let sent = f.get("/render/image/public/site/a.png").send().await;
    assert_error(&sent, 400, "400", "InvalidRequest", "The source image file is too large to process");
}

#[tokio::test]
async fn the_description_of_an_object_repeats_the_parameters_of_an_image() {
    let (f, _folder) = with_images().await;
    f.store_picture("site/a.png", picture(4, 4, [0, 0, 0])).await;
    let header = async |query: &str| {
        let sent = f.get(&format!("/object/info/public/site/a.png{query}")).send().await.expect(200);
        sent.header("x-transformations").map(str::to_owned)
    };
    assert_eq!(header("?width=10&quality=30").await.as_deref(), Some("width:10,resizing_type:fill,quality:30"));
    assert_eq!((header("").await, header("?quality=5").await), (None, None));
}

#[tokio::test]
async fn a_signed_url_carries_its_parameters_and_ignores_those_of_the_query() {
    let (f, _folder) = with_images().await;
    f.store_picture("files/a.png", picture(40, 20, [200, 0, 0])).await;
    let body =
        json!({ "expiresIn": 60, "transform": { "width": 10, "height": "10", "resize": "contain", "format": "webp" } });
    let signed = f.service(f.post("/object/sign/files/a.png").json(&body)).send().await.expect(200).json();
    let url = signed["signedURL"].as_str().unwrap();
    assert!(url.starts_with("/render/image/sign/files/a.png?token="), "{url}");
    let sent = f.get(&format!("{url}&width=3&format=origin")).send().await.expect(200);
    assert_eq!((size(&sent), sent.header("content-type")), ((10, 5), Some("image/webp")));
    assert!(sent.header("expires").is_some());
    // The link to a preview is none to the original
    let original = f.get(&url.replace("/render/image/sign/", "/object/sign/")).send().await;
    assert_error(&original, 400, "400", "InvalidSignature", "Invalid signature");
    // The token opens this object alone
    f.store_picture("files/b.png", picture(4, 4, [0, 0, 0])).await;
    let other = f.get(&url.replace("a.png", "b.png")).send().await;
    assert_error(&other, 400, "400", "InvalidSignature", "Invalid signature");
    let without = f.get("/render/image/sign/files/a.png").send().await;
    assert_error(&without, 400, "400", "InvalidRequest", "querystring must have required property 'token'");

    let body = json!({ "expiresIn": 60, "transform": { "quality": 5 } });
    let rejected = f.service(f.post("/object/sign/files/a.png").json(&body)).send().await;
    assert_error(&rejected, 400, "400", "InvalidRequest", "body/transform/quality must be >= 20");
}

#[tokio::test]
async fn an_svg_document_is_passed_on_without_its_scripts_being_run() {
    let (f, _folder) = with_images().await;
    let document = b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>".to_vec();
    // Declared as something else: what it is decides
    f.store_picture("site/a.png", document.clone()).await;
    let sent =
        f.get("/render/image/public/site/a.png?width=10").header("accept", "image/webp").send().await.expect(200);
    assert_eq!(sent.header("content-type"), Some("image/svg+xml"));
    assert!(sent.header("content-security-policy").unwrap().contains("sandbox"));
    assert_eq!(sent.body, document);
}

#[tokio::test]
async fn without_images_the_routes_do_not_exist_and_transform_is_ignored() {
    let f = Files::with_buckets().await;
    f.store_picture("site/a.png", picture(4, 4, [0, 0, 0])).await;
    let path = "/render/image/public/site/a.png";
    let message = format!("Route GET:{path} not found");
    assert_error(&f.get(path).send().await, 404, "404", "InvalidRequest", &message);
    let body = json!({ "expiresIn": 60, "transform": { "width": 10 } });
    let signed = f.service(f.post("/object/sign/site/a.png").json(&body)).send().await.expect(200).json();
    assert!(signed["signedURL"].as_str().unwrap().starts_with("/object/sign/site/a.png?token="));
}
