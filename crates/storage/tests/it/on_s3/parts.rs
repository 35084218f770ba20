//! Content that is stored in parts.

use futures_util::{StreamExt, stream};
use portico_storage::BackendSettings;
use serde_json::Value;

use super::helper::{Files, assert_error, streamed};

const MIB: usize = 1024 * 1024;

/// Returns content in which every position differs from its neighbours.
fn content(size: usize, seed: usize) -> Vec<u8> {
    (0..size).map(|at| ((at * 31 + at / 253 + seed) % 251) as u8).collect()
}

/// Returns a body in uneven chunks without a declared length.
fn body(content: &[u8]) -> reqwest::Body {
    let chunks: Vec<Vec<u8>> = content.chunks(70_001).map(<[u8]>::to_vec).collect();
    streamed(stream::iter(chunks))
}

async fn metadata(f: &Files, name: &str) -> Value {
    let row = f.t.query(&format!("select metadata from storage.objects where name = '{name}'")).await;
    row[0].get(0)
}

#[tokio::test]
async fn large_content_is_stored_in_parts_and_read_in_ranges() {
    let f = Files::with_buckets().await;
    for (name, size, etag_end) in
        [("below", 5 * MIB - 1, "\""), ("exact", 10 * MIB, "-2\""), ("above", 11 * MIB, "-3\"")]
    {
        let sent = content(size, 0);
        f.service(f.put(&format!("/object/site/{name}")).body(body(&sent))).send().await.expect(200);
        let metadata = metadata(&f, name).await;
        assert_eq!(metadata["size"], size);
        let etag = metadata["eTag"].as_str().unwrap();
        assert!(etag.ends_with(etag_end) && etag.contains('-') == (size > 5 * MIB), "{etag}");
        let whole = f.get(&format!("/object/public/site/{name}")).send().await.expect(200);
        assert_eq!((whole.header("etag"), whole.header("content-length")), (Some(etag), Some(&*size.to_string())));
        assert!(whole.body == sent, "{name}");
        for (range, start, end) in [
            ("bytes=0-0".to_owned(), 0, 1),
            ("bytes=4000000-5000000".into(), 4_000_000, 5_000_001),
            (format!("bytes={}-", size - 7), size - 7, size),
            ("bytes=-9".into(), size - 9, size),
            ("bytes=5-99999999999".into(), 5, size),
        ] {
            let part = f.get(&format!("/object/public/site/{name}")).header("range", &range).send().await.expect(206);
            assert_eq!(part.header("content-range"), Some(&*format!("bytes {start}-{}/{size}", end - 1)));
            assert!(part.body == sent[start..end], "{name} {range}");
        }
        let beyond = format!("bytes={size}-");
        let refused = f.get(&format!("/object/public/site/{name}")).header("range", &beyond).send().await;
        assert_error(&refused, 416, "416", "InvalidRange", "invalid range provided");
    }
    f.has_files(3).await;
}

#[tokio::test]
async fn many_uploads_share_little_memory_for_their_parts() {
    let f = Files::with(|settings| {
        // One part at a time
        let BackendSettings::S3 { store, .. } = &mut settings.backend else { unreachable!("the backend is a store") };
        store.part_memory = 5 * 1024 * 1024;
    })
    .await;
    f.bucket("files", serde_json::json!({})).await;
    let contents: Vec<Vec<u8>> = (0..4).map(|seed| content(11 * MIB, seed)).collect();
    let uploads = contents
        .iter()
        .enumerate()
        .map(|(at, content)| f.service(f.post(&format!("/object/files/{at}")).body(body(content))).send());
    for stored in futures_util::future::join_all(uploads).await {
        stored.expect(200);
    }
    for (at, content) in contents.iter().enumerate() {
        let read = f.service(f.get(&format!("/object/files/{at}"))).send().await.expect(200);
        assert!(read.body == *content, "{at}");
    }
}

#[tokio::test]
async fn an_upload_that_fails_between_its_parts_is_aborted() {
    let f = Files::with(|settings| {
        settings.file_size_limit = 12 * 1024 * 1024;
        settings.idle_timeout = std::time::Duration::from_millis(500);
    })
    .await;
    f.bucket("files", serde_json::json!({})).await;
    let too_large = f.service(f.post("/object/files/a").body(body(&content(13 * MIB, 0)))).send().await;
    assert_error(&too_large, 400, "413", "EntityTooLarge", "The object exceeded the maximum allowed size");
    f.has_files(0).await;
    let stalled = stream::iter(vec![vec![b'x'; MIB]; 7]).chain(stream::pending());
    let stalled = f.service(f.post("/object/files/a").body(streamed(stalled))).send().await;
    assert_error(&stalled, 408, "408", "RequestTimeout", "The upload sent nothing for too long");
    f.has_files(0).await;
}

#[tokio::test]
async fn a_deletion_of_many_objects_deletes_their_content() {
    let f = Files::with_buckets().await;
    let names: Vec<String> = (0..20).map(|n| format!("f & <{n}>/a").replace(['<', '>'], "'")).collect();
    for name in &names {
        f.store(&format!("files/{}", name.replace(' ', "%20")), "x").await.expect(200);
    }
    f.has_files(20).await;
    let request = f.delete("/object/files").json(&serde_json::json!({ "prefixes": names }));
    assert_eq!(f.service(request).send().await.expect(200).json().as_array().unwrap().len(), 20);
    f.has_files(0).await;
}
