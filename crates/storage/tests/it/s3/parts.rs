//! Uploads in parts over the S3 protocol.

use std::time::Duration;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;

use super::super::helper::Files;
use super::{Signed, assert_refused, begin, complete, etag_of, hash, put, request, start, upload_id};

#[tokio::test]
async fn abandoned_uploads_in_parts_are_ended() {
    let f = start().await;
    let id = begin(&f).await;
    let query = format!("partNumber=1&uploadId={id}");
    Signed { query: &query, ..put("/files/a", "part") }.send(&f).await.expect(200);
    f.has_files(1).await;
    let storage = f.t.storage();
    assert_eq!(storage.end_abandoned_uploads(Duration::from_secs(3600)).await, Ok(Vec::new()));
    storage.clean_up(Duration::ZERO).await;
    f.has_files(1).await;
    f.t.execute("update storage.s3_multipart_uploads set created_at = now() - interval '2 hours'").await;
    // A part has arrived since
    assert_eq!(storage.end_abandoned_uploads(Duration::from_secs(3600)).await, Ok(Vec::new()));
    f.t.execute("update storage.s3_multipart_uploads_parts set created_at = now() - interval '2 hours'").await;
    f.t.execute(
        "create function public.keep() returns trigger language plpgsql as 'begin return null; end'; \
         create trigger keep before delete on storage.s3_multipart_uploads for each row execute function public.keep()",
    )
    .await;
    assert_eq!(storage.end_abandoned_uploads(Duration::from_secs(3600)).await, Ok(Vec::new()));
    f.has_files(1).await;
    f.t.execute("drop trigger keep on storage.s3_multipart_uploads").await;
    let ended = storage.end_abandoned_uploads(Duration::from_secs(3600)).await;
    assert_eq!(ended, Ok(vec!["files/a".to_owned()]));
    f.has_files(0).await;
    let late = Signed { query: &query, ..put("/files/a", "part") }.send(&f).await;
    assert_refused(&late, 404, "NoSuchUpload");
    assert_eq!(f.t.count("select count(*) from storage.s3_multipart_uploads_parts").await, 0);
    f.has_files(0).await;
}

#[tokio::test]
async fn parts_become_one_object_in_the_order_of_their_numbers() {
    let f = start().await;
    f.store("files/a", "before").await.expect(200);
    let id = begin(&f).await;
    let first = "a".repeat(5 * 1024 * 1024);
    for (number, content) in [(2, "end"), (1, "replaced"), (1, first.as_str())] {
        let query = format!("partNumber={number}&uploadId={id}");
        Signed { query: &query, ..put("/files/a", content) }.send(&f).await.expect(200);
    }
    assert_eq!(f.content("files/a").await, "before");
    let query = format!("uploadId={id}");
    let (first_tag, end_tag) = (etag_of(&f, 1).await, etag_of(&f, 2).await);
    let content = format!("{first}end");
    let whole = STANDARD.encode(digest::digest(&digest::SHA256, content.as_bytes()));
    let complete_with = |headers| Signed { headers, ..complete(&query, &[(1, &first_tag), (2, &end_tag)]) };
    for headers in [
        &[("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-checksum-type", "FULL_OBJECT")][..],
        &[("x-amz-checksum-crc64nvme", "AAAAAAAAAAA=")],
    ] {
        assert_refused(&complete_with(headers).send(&f).await, 400, "BadDigest");
    }
    assert_refused(&complete_with(&[("x-amz-checksum-crc64nvme", "-")]).send(&f).await, 400, "InvalidArgument");
    assert_eq!(f.content("files/a").await, "before");
    let headers = &[("x-amz-checksum-sha256", whole.as_str()), ("x-amz-checksum-type", "FULL_OBJECT")];
    let completed = complete_with(headers).send(&f).await.expect(200).text();
    assert!(completed.contains("-2"), "{completed}");
    assert!(f.content("files/a").await == content);
    f.has_files(1).await;
}

#[tokio::test]
async fn a_checksum_of_the_checksums_of_parts_is_not_compared() {
    let f = start().await;
    let id = begin(&f).await;
    let query = format!("partNumber=1&uploadId={id}");
    Signed { query: &query, ..put("/files/a", "part") }.send(&f).await.expect(200);
    let (query, etag) = (format!("uploadId={id}"), etag_of(&f, 1).await);
    let headers = &[("x-amz-checksum-crc32", "AAAAAA==-1"), ("x-amz-checksum-type", "COMPOSITE")];
    Signed { headers, ..complete(&query, &[(1, &etag)]) }.send(&f).await.expect(200);
}

#[tokio::test]
async fn an_upload_is_completed_once_and_repeats_its_answer() {
    let mut f = start().await;
    f.t.execute(
        "create table public.writes (at serial); \
         create function public.count() returns trigger language plpgsql security definer as \
         'begin insert into public.writes default values; return new; end'; \
         create trigger count after insert or update on storage.objects for each row execute function public.count()",
    )
    .await;
    let id = begin(&f).await;
    let query = format!("partNumber=1&uploadId={id}");
    Signed { query: &query, ..put("/files/a", "part") }.send(&f).await.expect(200);
    let etag = etag_of(&f, 1).await;
    let query = format!("uploadId={id}");
    let complete = complete(&query, &[(1, &etag)]);
    let outcomes = futures_util::future::join_all((0..6).map(|_| complete.send(&f))).await;
    let first = outcomes.iter().find(|response| response.status == 200).unwrap().text();
    for outcome in &outcomes {
        match outcome.status {
            200 => assert_eq!(outcome.text(), first),
            _ => assert_refused(outcome, 409, "OperationAborted"),
        }
    }
    // The client has lost the response
    assert_eq!(complete.send(&f).await.expect(200).text(), first);
    f.t.restart().await;
    assert_eq!(complete.send(&f).await.expect(200).text(), first);
    let version = "select version from storage.objects where name = 'a'";
    let made: String = f.t.query(version).await[0].get(0);
    assert_eq!(f.t.count("select count(*) from public.writes").await, 1);
    f.t.storage().clean_up(Duration::ZERO).await;
    assert_eq!(f.content("files/a").await, "part");
    f.has_files(1).await;

    // Other parts, another upload and another key are other requests
    assert_refused(&self::complete(&query, &[(1, "x")]).send(&f).await, 404, "NoSuchUpload");
    assert_refused(&self::complete(&query, &[(2, &etag)]).send(&f).await, 404, "NoSuchUpload");
    assert_refused(&self::complete("uploadId=x", &[(1, &etag)]).send(&f).await, 404, "NoSuchUpload");
    let elsewhere = Signed { path: "/files/b", ..complete.clone() };
    assert_refused(&elsewhere.send(&f).await, 404, "NoSuchUpload");
    assert_eq!(f.t.query(version).await[0].get::<_, String>(0), made);
    put("/files/a", "replaced").send(&f).await.expect(200);
    assert_refused(&complete.send(&f).await, 404, "NoSuchUpload");
    assert_eq!(f.content("files/a").await, "replaced");
}

#[tokio::test]
async fn only_the_last_part_may_be_small() {
    let f = start().await;
    let id = begin(&f).await;
    let least = "a".repeat(5 * 1024 * 1024);
    for (number, content) in [(1, &least[1..]), (2, &least), (3, "end")] {
        let query = format!("partNumber={number}&uploadId={id}");
        Signed { query: &query, ..put("/files/a", content) }.send(&f).await.expect(200);
    }
    let (first, second, third) = (etag_of(&f, 1).await, etag_of(&f, 2).await, etag_of(&f, 3).await);
    let query = format!("uploadId={id}");
    let refused = complete(&query, &[(1, &first), (2, &second), (3, &third)]).send(&f).await;
    assert_refused(&refused, 400, "EntityTooSmall");
    assert_refused(&complete(&query, &[(1, &first), (3, &third)]).send(&f).await, 400, "EntityTooSmall");
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 0);
    // The upload stays
    complete(&query, &[(2, &second), (3, &third)]).send(&f).await.expect(200);
    assert!(f.content("files/a").await == format!("{least}end"));
    f.has_files(1).await;
}

#[tokio::test]
async fn parts_that_are_replaced_or_refused_keep_no_space() {
    let f = start().await;
    let id = begin(&f).await;
    let query = format!("partNumber=1&uploadId={id}");
    for content in ["one", "two", "three", "three"] {
        Signed { query: &query, ..put("/files/a", content) }.send(&f).await.expect(200);
    }
    f.has_files(1).await;
    // A refusal that comes with the row
    f.t.execute(
        "create function public.refuse() returns trigger language plpgsql as 'begin raise exception ''no''; end'; \
         create trigger refuse before insert on storage.s3_multipart_uploads_parts for each row execute function public.refuse()",
    )
    .await;
    let refused = Signed { query: &query, ..put("/files/a", "four") }.send(&f).await;
    assert!(refused.status >= 400, "{}", refused.text());
    let wrong = Signed { query: &query, hash: Some(&hash(b"other")), ..put("/files/a", "five") }.send(&f).await;
    assert_refused(&wrong, 400, "XAmzContentSHA256Mismatch");
    f.has_files(1).await;
    f.t.execute("drop trigger refuse on storage.s3_multipart_uploads_parts").await;
    let query = format!("uploadId={id}");
    complete(&query, &[(1, &etag_of(&f, 1).await)]).send(&f).await.expect(200);
    assert_eq!(f.content("files/a").await, "three");
    f.has_files(1).await;
}

#[tokio::test]
async fn an_upload_in_parts_belongs_to_the_caller_who_began_it() {
    let f = start().await;
    // Policies that let every caller write every object
    f.t.migrate("create policy everything on storage.objects for all using (true) with check (true)").await;
    let (alice, bob) = (f.t.member("alice@example.com").await, f.t.member("bob@example.com").await);
    let visitor = f.t.api_keys().anon_jwt().to_owned();
    let tokens = [Some(alice.access_token()), Some(bob.access_token()), Some(visitor.as_str()), None];
    let mut begun = Vec::new();
    for token in tokens {
        let begin = Signed { query: "uploads=", token, ..request(Method::POST, "/files/a") };
        let id = upload_id(&begin.send(&f).await.expect(200));
        let query = format!("partNumber=1&uploadId={id}");
        Signed { query: &query, token, ..put("/files/a", "own") }.send(&f).await.expect(200);
        begun.push(id);
    }
    let etag = etag_of(&f, 1).await;
    let users = 0..3;
    for (at, id) in begun.iter().enumerate() {
        for other in users.clone().filter(|other| *other != at) {
            let token = tokens[other];
            let (named, part) = (format!("uploadId={id}"), format!("partNumber=1&uploadId={id}"));
            for foreign in [
                Signed { query: &part, token, ..put("/files/a", "foreign") },
                Signed {
                    query: &part,
                    token,
                    headers: &[("x-amz-copy-source", "files/a")],
                    ..request(Method::PUT, "/files/a")
                },
                Signed { query: &named, token, ..request(Method::GET, "/files/a") },
                Signed { token, ..complete(&named, &[(1, &etag)]) },
                Signed { query: &named, token, ..request(Method::DELETE, "/files/a") },
            ] {
                assert_refused(&foreign.send(&f).await, 404, "NoSuchUpload");
            }
            let list = Signed { query: "uploads=", token, ..request(Method::GET, "/files") };
            assert!(!list.send(&f).await.expect(200).text().contains(id.as_str()), "{other} lists the upload of {at}");
        }
    }
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 0);
    assert_eq!(f.t.count("select count(*) from storage.s3_multipart_uploads_parts").await, 4);
}

/// Returns a request with other headers.
fn with_headers<'a>(signed: &Signed<'a>, headers: &'a [(&'a str, &'a str)]) -> Signed<'a> {
    Signed { headers, ..signed.clone() }
}

#[tokio::test]
async fn a_completion_obeys_the_condition_on_the_object_that_it_replaces() {
    let f = start().await;
    let id = begin(&f).await;
    let query = format!("partNumber=1&uploadId={id}");
    Signed { query: &query, ..put("/files/a", "part") }.send(&f).await.expect(200);
    let (query, part) = (format!("uploadId={id}"), etag_of(&f, 1).await);
    let completion = complete(&query, &[(1, &part)]);
    assert_refused(&with_headers(&completion, &[("if-match", "*")]).send(&f).await, 404, "NoSuchKey");
    let before = put("/files/a", "before").send(&f).await.expect(200).header("etag").unwrap().to_owned();
    for (condition, status, code) in [
        (("if-none-match", "*"), 412, "PreconditionFailed"),
        (("if-match", "\"0\""), 412, "PreconditionFailed"),
        (("if-none-match", "\"0\""), 501, "NotImplemented"),
    ] {
        assert_refused(&with_headers(&completion, &[condition]).send(&f).await, status, code);
        assert_eq!(f.content("files/a").await, "before", "{condition:?}");
    }
    // The conditions hold in the transaction that commits, too
    let (lock, unlock) = Files::lock_of("files/a");
    f.t.execute(&lock).await;
    let changed = format!("update storage.objects set metadata = metadata || '{{\"eTag\":\"0\"}}'; {unlock}");
    let refused = f.send_during(with_headers(&completion, &[("if-match", &before)]).sign(&f), &changed).await;
    assert_refused(&refused, 412, "PreconditionFailed");
    request(Method::DELETE, "/files/a").send(&f).await.expect(204);
    f.t.execute(&lock).await;
    let taken = format!("insert into storage.objects (bucket_id, name) values ('files', 'a'); {unlock}");
    let refused = f.send_during(with_headers(&completion, &[("if-none-match", "*")]).sign(&f), &taken).await;
    assert_refused(&refused, 412, "PreconditionFailed");
    // The upload stays
    request(Method::DELETE, "/files/a").send(&f).await.expect(204);
    let headers = [("if-none-match", "*")];
    let completed = with_headers(&completion, &headers);
    let first = completed.send(&f).await.expect(200).text();
    assert_eq!(f.content("files/a").await, "part");
    assert_eq!(completed.send(&f).await.expect(200).text(), first, "the client has lost the response");
    f.has_files(1).await;
}

#[tokio::test]
async fn a_source_that_is_replaced_while_it_is_opened_is_copied_as_it_is_then() {
    let f = start().await;
    put("/files/source", "one").send(&f).await.expect(200);
    f.t.migrate(
        "create function public.waits() returns boolean language plpgsql as 'begin \
         if current_setting(''storage.operation'') = ''storage.s3.upload.part_copy'' then \
         perform pg_advisory_xact_lock_shared(7); end if; return true; end'; \
         create policy reading on storage.objects for select using (public.waits()); \
         create policy adding on storage.objects for insert with check (true); \
         create policy replacing on storage.objects for update using (true)",
    )
    .await;
    let alice = f.t.member("alice@example.com").await;
    let token = Some(alice.access_token());
    let id = upload_id(&Signed { query: "uploads=", token, ..request(Method::POST, "/files/a") }.send(&f).await);
    // The row of the source is read, and the policy waits
    f.t.execute("select pg_advisory_lock(7)").await;
    let query = format!("partNumber=1&uploadId={id}");
    let headers = &[("x-amz-copy-source", "files/source")];
    let copy = Signed { query: &query, token, headers, ..request(Method::PUT, "/files/a") };
    let replace = async {
        f.waits_for_lock().await;
        put("/files/source", "other").send(&f).await.expect(200);
        f.has_files(1).await;
        f.t.execute("select pg_advisory_unlock(7)").await;
    };
    tokio::join!(copy.send(&f), replace).0.expect(200);
    let (query, etag) = (format!("uploadId={id}"), etag_of(&f, 1).await);
    Signed { token, ..complete(&query, &[(1, &etag)]) }.send(&f).await.expect(200);
    assert_eq!(f.content("files/a").await, "other");
}
