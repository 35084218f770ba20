//! Lists of buckets.

use http::Method;
use serde_json::json;

use super::{Signed, assert_refused, request, start};

#[tokio::test]
async fn buckets_are_listed_in_pages_by_their_prefix() {
    let f = start().await;
    for name in ["a-1", "a-2", "B", "a-3"] {
        f.bucket(name, json!({})).await;
    }
    let list = async |query: &str| Signed { query, ..request(Method::GET, "/") }.send(&f).await.expect(200).text();
    let names = |text: &str| -> Vec<String> {
        text.split("<Name>").skip(1).map(|part| part.split('<').next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&list("").await), ["B", "a-1", "a-2", "a-3", "files"]);
    // To the end, also where it is the end of a page
    for (size, pages) in [(2, 2), (3, 1)] {
        let (mut found, mut token, mut count) = (Vec::new(), String::new(), 0);
        loop {
            let page = list(&format!("continuation-token={token}&max-buckets={size}&prefix=a-")).await;
            assert!(page.contains("<Prefix>a-</Prefix>"), "{page}");
            found.extend(names(&page));
            count += 1;
            let Some((_, next)) = page.split_once("<ContinuationToken>") else { break };
            token = next.split('<').next().unwrap().replace('=', "%3D").replace('+', "%2B").replace('/', "%2F");
        }
        assert_eq!((found, count), (vec!["a-1".to_owned(), "a-2".into(), "a-3".into()], pages));
    }
    assert!(names(&list("bucket-region=elsewhere").await).is_empty());
    for query in ["max-buckets=0", "max-buckets=x"] {
        let refused = Signed { query, ..request(Method::GET, "/") }.send(&f).await;
        assert_refused(&refused, 400, "InvalidArgument");
    }
}
