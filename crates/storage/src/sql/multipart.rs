//! The statements about uploads in parts. All of them run as the service.

/// Begins an upload, unless its requester has too many unfinished ones. Returns 1 if it may begin,
/// else 0. `$1` id, `$2` bucket, `$3` key, `$4` version, `$5` owner id, `$6` metadata, `$7` user
/// metadata, `$8` the most unfinished uploads of the requester in the metadata, or none.
///
/// Runs behind a lock of the requester. The signature is empty: the size in progress is computed
/// from the parts, behind a lock.
pub(crate) const INSERT_UPLOAD: &str = "with room as (select from (values (1)) as one where $8::bigint is null or $8::bigint > \
    (select pg_catalog.count(*) from storage.s3_multipart_uploads as u where u.metadata ->> 'requester' = $6::jsonb ->> 'requester')), \
    added as (insert into storage.s3_multipart_uploads \
    (id, upload_signature, bucket_id, key, version, owner_id, metadata, user_metadata) \
    select $1::text, '', $2::text, $3::text, $4::text, $5::text, $6::jsonb, $7::jsonb from room) \
    select pg_catalog.count(*)::text from room";

/// An upload, with the size of its parts besides one. `$1` id, `$2` bucket, `$3` key, `$4` number
/// of a part.
pub(crate) const FIND_UPLOAD: &str = "select pg_catalog.json_build_object('id', u.id, 'bucket', u.bucket_id, 'key', u.key, \
    'version', u.version, 'owner_id', u.owner_id, 'metadata', u.metadata, 'user_metadata', u.user_metadata, \
    'other_size', (select coalesce(pg_catalog.sum(p.size), 0) from storage.s3_multipart_uploads_parts as p \
    where p.upload_id = u.id and p.part_number <> $4::integer))::text \
    from storage.s3_multipart_uploads as u where u.id = $1 and u.bucket_id = $2 and u.key = $3";

/// Locks an upload until the end of the transaction. `$1` id.
pub(crate) const LOCK_UPLOAD: &str = "select u.id from storage.s3_multipart_uploads as u where u.id = $1 for update";

/// Writes a part in place of those with its number, if all parts together have at most a size.
/// Returns the number of written rows, and the ids of the replaced ones as a JSON list. `$1` id,
/// `$2` number, `$3` size, `$4` ETag, `$5` largest size of all parts, `$6` id of the part.
///
/// Runs behind [`LOCK_UPLOAD`], so that it sees the parts that others have added.
pub(crate) const PUT_PART: &str = "with upload as (select u.id, u.bucket_id, u.key, u.version, u.owner_id, \
    (select coalesce(pg_catalog.sum(p.size), 0) from storage.s3_multipart_uploads_parts as p \
    where p.upload_id = u.id and p.part_number <> $2::integer) + $3::bigint as size \
    from storage.s3_multipart_uploads as u where u.id = $1), \
    fitting as (select * from upload where upload.size <= $5::bigint), \
    replaced as (delete from storage.s3_multipart_uploads_parts as p using fitting as f where p.upload_id = f.id and p.part_number = $2::integer \
    returning p.id), \
    added as (insert into storage.s3_multipart_uploads_parts (id, upload_id, size, part_number, bucket_id, key, etag, owner_id, version) \
    select $6::uuid, f.id, $3::bigint, $2::integer, f.bucket_id, f.key, $4, f.owner_id, f.version from fitting as f), \
    grown as (update storage.s3_multipart_uploads as u set in_progress_size = f.size from fitting as f where u.id = f.id) \
    select (select pg_catalog.count(*) from fitting)::text, \
    (select coalesce(pg_catalog.json_agg(r.id), '[]') from replaced as r)::text";

/// The parts of an upload in their order. `$1` id, `$2` the number before the first one, `$3`
/// limit.
pub(crate) const LIST_PARTS: &str = "select pg_catalog.json_build_object('id', p.id, 'number', p.part_number, 'etag', p.etag, 'size', p.size, \
    'created_at', pg_catalog.to_char(p.created_at at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'))::text \
    from (select distinct on (p.part_number) p.part_number, p.id, p.etag, p.size, p.created_at from storage.s3_multipart_uploads_parts as p \
    where p.upload_id = $1 and p.part_number > $2::integer order by p.part_number, p.created_at desc, p.id limit $3::integer) as p \
    order by p.part_number";

/// Ends an upload, with its parts. `$1` id.
pub(crate) const DELETE_UPLOAD: &str = "delete from storage.s3_multipart_uploads as u where u.id = $1 returning u.id";

/// Like [`DELETE_UPLOAD`]; the transaction fails with
/// [`CONDITION_FAILED`](super::CONDITION_FAILED) if the upload has ended.
pub(crate) const CONSUME_UPLOAD: &str = "with ended as (delete from storage.s3_multipart_uploads as u where u.id = $1 returning u.id) \
    select 1 / pg_catalog.count(*) from ended";

/// The uploads to a bucket in the order of keys and ids. `$1` bucket, `$2` prefix, `$3` the first
/// key beyond it, `$4` and `$5` key and id before the first one, `$6` whether all are listed, `$7`
/// the owner otherwise, `$8` limit. Without an id, all uploads of the key before are skipped.
pub(crate) const LIST_UPLOADS: &str = "select pg_catalog.json_build_object('id', u.id, 'key', u.key, \
    'created_at', pg_catalog.to_char(u.created_at at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'))::text \
    from storage.s3_multipart_uploads as u where u.bucket_id = $1 and u.key collate \"C\" >= $2 \
    and ($3::text is null or u.key collate \"C\" < $3::text) \
    and ($4::text is null or u.key collate \"C\" > $4::text or (u.key = $4::text and u.id collate \"C\" > $5::text)) \
    and ($6::boolean or u.owner_id = $7) order by u.key collate \"C\", u.id collate \"C\" limit $8::integer";

/// The uploads that were begun, and have received their last part, before a time. `$1` seconds.
pub(crate) const OLD_UPLOADS: &str = "select pg_catalog.json_build_object('id', u.id, 'bucket', u.bucket_id, 'key', u.key, \
    'version', u.version, 'owner_id', u.owner_id, 'metadata', u.metadata, 'user_metadata', u.user_metadata, 'other_size', u.in_progress_size)::text \
    from storage.s3_multipart_uploads as u where u.created_at < pg_catalog.now() - pg_catalog.make_interval(secs => $1::double precision) \
    and not exists (select from storage.s3_multipart_uploads_parts as p where p.upload_id = u.id \
    and p.created_at >= pg_catalog.now() - pg_catalog.make_interval(secs => $1::double precision)) limit 1000";

/// The ids of all uploads.
pub(crate) const ALL_UPLOADS: &str = "select pg_catalog.to_json(u.id)::text from storage.s3_multipart_uploads as u";
