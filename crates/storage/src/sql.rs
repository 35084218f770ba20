//! The statements, each once. Values of clients are parameters.
//!
//! Statements whose rows become JSON have one column with the JSON text of a row, but for those of
//! lists: their many rows are rendered by the server.

pub(crate) mod multipart;

pub(crate) use portico_database::quote::text_array;

/// Begins a transaction that reads.
pub(crate) const BEGIN_READ: &str = "begin isolation level read committed read only";
/// Begins a transaction that writes.
pub(crate) const BEGIN_WRITE: &str = "begin isolation level read committed read write";

/// Checks the constraints that are deferred, and runs their triggers.
pub(crate) const CHECK_CONSTRAINTS: &str = "set constraints all immediate";

/// Makes the commit wait until it is on disk. A stricter setting of the operator stays.
pub(crate) const SYNCHRONOUS_COMMIT: &str = "select case when pg_catalog.current_setting('synchronous_commit') = 'off' \
    then pg_catalog.set_config('synchronous_commit', 'local', true) end";

/// Sets something for the transaction.
macro_rules! set {
    ($name:literal, $value:literal) => {
        concat!("pg_catalog.set_config('", $name, "', ", $value, ", true)")
    };
}

/// Sets several settings in their order. The function around the calls is there for its result: a
/// number instead of all values.
macro_rules! set_all {
    ($($name:literal = $value:literal),+; $last:literal = $last_value:literal) => {
        concat!("select pg_catalog.num_nulls(", $(set!($name, $value), ", ",)+ set!($last, $last_value), ")")
    };
}

/// Sets the settings of a step for its transaction. `$1` role, `$2` token, `$3` subject, `$4`
/// claims, `$5` headers, `$6` method, `$7` path, `$8` operation.
pub(crate) const SET_REQUEST: &str = set_all!(
    "search_path" = "'storage, public, extensions'",
    "role" = "$1",
    "request.jwt.claim.role" = "$1",
    "request.jwt" = "$2",
    "request.jwt.claim.sub" = "$3",
    "request.jwt.claims" = "$4",
    "request.headers" = "$5",
    "request.method" = "$6",
    "request.path" = "$7",
    "storage.operation" = "$8",
    "storage.allow_delete_query" = "'true'",
    "statement_timeout" = "'30s'",
    "lock_timeout" = "'5s'";
    "timezone" = "'UTC'"
);

/// Sets the settings of a read as the service. `$1` role, `$2` claims, `$3` operation.
pub(crate) const SET_SERVICE: &str = set_all!(
    "search_path" = "'storage, public, extensions'",
    "role" = "$1",
    "request.jwt.claims" = "$2",
    "storage.operation" = "$3",
    "statement_timeout" = "'30s'",
    "lock_timeout" = "'5s'";
    "timezone" = "'UTC'"
);

/// A time as clients read it.
macro_rules! iso {
    ($column:literal) => {
        concat!("pg_catalog.to_char(", $column, " at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')")
    };
}

/// The fields of a bucket before and after its type.
macro_rules! bucket_json {
    ($type:literal) => {
        concat!(
            "pg_catalog.json_build_object('id', b.id, 'name', b.name, 'owner', coalesce(b.owner::text, ''), 'public', coalesce(b.public, false)",
            $type,
            ", 'file_size_limit', b.file_size_limit, 'allowed_mime_types', b.allowed_mime_types, 'created_at', ",
            iso!("b.created_at"),
            ", 'updated_at', ",
            iso!("b.updated_at"),
            ")::text"
        )
    };
}

/// A whole object.
macro_rules! object_json {
    () => {
        concat!(
            "pg_catalog.json_build_object('name', o.name, 'bucket_id', o.bucket_id, 'owner', coalesce(o.owner::text, ''), \
             'owner_id', coalesce(o.owner_id, ''), 'version', coalesce(o.version, ''), 'id', o.id, 'updated_at', ",
            iso!("o.updated_at"),
            ", 'created_at', ",
            iso!("o.created_at"),
            ", 'last_accessed_at', ",
            iso!("o.last_accessed_at"),
            ", 'metadata', o.metadata, 'user_metadata', o.user_metadata)::text"
        )
    };
}

/// An object as far as its content and its description need it.
macro_rules! object_row_json {
    () => {
        concat!(
            "pg_catalog.json_build_object('id', o.id, 'version', o.version, 'created_at', ",
            iso!("o.created_at"),
            ", 'updated_at', ",
            iso!("o.updated_at"),
            ", 'metadata', o.metadata, 'user_metadata', o.user_metadata)"
        )
    };
}

/// The same as columns.
macro_rules! object_columns {
    () => {
        "o.id, o.version, o.created_at, o.updated_at, o.metadata, o.user_metadata"
    };
}

/// `$1` id, `$2` name, `$3` owner, `$4` owner id, `$5` public, `$6` size limit, `$7` content types.
pub(crate) const INSERT_BUCKET: &str = "insert into storage.buckets \
    (id, name, owner, owner_id, public, file_size_limit, allowed_mime_types) values ($1, $2, $3, $4, $5, $6, $7)";

/// Returns the statement of an order: `$1` pattern of the name, `$2` limit, `$3` offset.
pub(crate) fn list_buckets(column: &str, descending: bool, has_type: bool) -> String {
    let direction = if descending { "desc" } else { "asc" };
    let fields = if has_type { bucket_json!(", 'type', b.type") } else { bucket_json!("") };
    format!(
        "select {fields} from storage.buckets as b where b.type = 'STANDARD' and b.name ilike $1 \
         order by b.{column} {direction}, b.id limit $2::bigint offset $3::bigint"
    )
}

/// `$1` id.
pub(crate) const FIND_BUCKET: &str = concat!("select ", bucket_json!(""), " from storage.buckets as b where b.id = $1");

/// `$1` id, `$2` and `$3` whether and which public, `$4` and `$5` size limit, `$6` and `$7` content
/// types.
pub(crate) const UPDATE_BUCKET: &str = "update storage.buckets as b set \
    public = case when $2::boolean then $3::boolean else b.public end, \
    file_size_limit = case when $4::boolean then $5::bigint else b.file_size_limit end, \
    allowed_mime_types = case when $6::boolean then $7::text[] else b.allowed_mime_types end, \
    updated_at = pg_catalog.now() where b.id = $1 returning b.id";

/// `$1` id.
pub(crate) const DELETE_BUCKET: &str = "delete from storage.buckets as b where b.id = $1 returning b.id";

/// The rules for uploads to a bucket. `$1` id.
pub(crate) const BUCKET_RULES: &str = "select pg_catalog.json_build_object('file_size_limit', b.file_size_limit, \
    'allowed_mime_types', b.allowed_mime_types)::text from storage.buckets as b where b.id = $1";

/// Like [`BUCKET_RULES`], with the version of an object's row (null where there is no object) and
/// the version of its content. `$1` bucket, `$2` name.
pub(crate) const BUCKET_RULES_AND_OBJECT: &str = "select pg_catalog.json_build_object('file_size_limit', b.file_size_limit, \
    'allowed_mime_types', b.allowed_mime_types)::text, o.xmin, o.version from storage.buckets as b \
    left join only storage.objects as o on o.bucket_id = b.id and o.name = $2 where b.id = $1";

/// The number of objects, counted up to a limit. `$1` bucket, `$2` limit.
pub(crate) const COUNT_OBJECTS: &str = "select pg_catalog.json_build_object('count', pg_catalog.count(*), 'until', pg_catalog.now())::text from \
    (select from storage.objects as o where o.bucket_id = $1 limit $2::bigint) as counted";

/// The names of objects that were there at a time, in order. `$1` bucket, `$2` time, `$3` limit,
/// `$4` the name behind which they begin.
pub(crate) const NAME_SOME: &str = "select pg_catalog.to_json(o.name)::text from storage.objects as o \
    where o.bucket_id = $1 and o.created_at <= $2::timestamptz and o.name collate \"C\" > $4 \
    order by o.name collate \"C\" limit $3::bigint";

/// An object and the visibility of its bucket, without regard to row security. `$1` bucket, `$2`
/// name.
pub(crate) const FIND_OBJECT_AND_BUCKET: &str = concat!(
    "select pg_catalog.json_build_object('public', coalesce(b.public, false), 'object', case when o.id is not null then ",
    object_row_json!(),
    " end)::text from storage.buckets as b left join storage.objects as o on o.bucket_id = b.id and o.name = $2 where b.id = $1"
);

/// The role that owns the tables.
pub(crate) const OWNER: &str = "supabase_storage_admin";

/// Finds many objects and their buckets, without regard to row security: a row for each, in their
/// order. Its columns: whether the bucket is public, null where there is no bucket; the object,
/// null where it does not exist. It runs as the owner of the tables: every name is qualified, and
/// tables of others that inherit are left out. `$1` buckets, `$2` names.
pub(crate) const FIND_OBJECTS_AS_OWNER: &str = concat!(
    "select found.* from rows from (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[])) \
     with ordinality as wanted (bucket, name, place) left join lateral (select coalesce(b.public, false), ",
    object_columns!(),
    " from only storage.buckets as b left join only storage.objects as o on o.bucket_id operator(pg_catalog.=) wanted.bucket \
     and o.name operator(pg_catalog.=) wanted.name \
     where b.id operator(pg_catalog.=) wanted.bucket limit 1) as found on true order by wanted.place"
);

/// `$1` bucket, `$2` name.
pub(crate) const FIND_OBJECT: &str =
    concat!("select ", object_columns!(), " from storage.objects as o where o.bucket_id = $1 and o.name = $2");

/// Like [`FIND_OBJECT`], as JSON.
pub(crate) const FIND_OBJECT_JSON: &str =
    concat!("select ", object_row_json!(), "::text from storage.objects as o where o.bucket_id = $1 and o.name = $2");

/// The names of those of many objects that exist, as JSON texts. `$1` bucket, `$2` names.
pub(crate) const FIND_NAMES: &str =
    "select pg_catalog.to_json(o.name)::text from storage.objects as o where o.bucket_id = $1 and o.name = any ($2)";

/// `$1` bucket, `$2` name, `$3` owner, `$4` owner id, `$5` version, `$6` metadata, `$7` user
/// metadata. Without `returning`, so that the row need not be visible to its writer.
pub(crate) const TEST_INSERT: &str = "insert into storage.objects \
    (bucket_id, name, owner, owner_id, version, metadata, user_metadata) values ($1, $2, $3, $4, $5, $6, $7)";

/// The columns that an upsert sets in a row that is there.
macro_rules! upserted_columns {
    () => {
        "owner = excluded.owner, owner_id = excluded.owner_id, version = excluded.version, \
         metadata = excluded.metadata, user_metadata = excluded.user_metadata"
    };
}

/// Writes a row, whether or not it is there.
macro_rules! upsert {
    ($returning:expr) => {
        concat!(
            "insert into storage.objects as o (bucket_id, name, owner, owner_id, version, metadata, user_metadata) \
             values ($1, $2, $3, $4, $5, $6, $7) on conflict (name, bucket_id) do update set ",
            upserted_columns!(),
            " returning ",
            $returning
        )
    };
}

/// Like [`TEST_INSERT`]. The whole row is returned, so that the caller needs the right to read it.
/// That a value is computed from it spares PostgreSQL to write out each column.
pub(crate) const TEST_UPSERT: &str = upsert!("o is null");

/// Waits for the right to write a key. `$1` bucket, `$2` name.
pub(crate) const LOCK_KEY: &str = "select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(pg_catalog.concat($1::text, '/', $2::text), 0))";

/// The version that a write replaces. `$1` bucket, `$2` name.
pub(crate) const LOCK_OBJECT: &str =
    "select o.version from storage.objects as o where o.bucket_id = $1 and o.name = $2 for update";

/// Fails with [`ETAG_DIFFERS`] unless the object exists and has an ETag; `*` is every ETag. `$1`
/// bucket, `$2` name, `$3` ETag without quotes.
pub(crate) const REQUIRE_ETAG: &str = "select pg_catalog.ln(pg_catalog.count(*)::double precision) from storage.objects as o \
    where o.bucket_id = $1 and o.name = $2 and ($3::text = '*' or pg_catalog.btrim(o.metadata ->> 'eTag', '\"') = $3::text)";

/// The SQLSTATE of a condition of a write that is not met: `division_by_zero`.
pub(crate) const CONDITION_FAILED: &str = "22012";

/// The SQLSTATE of a condition on the ETag that is not met: `invalid_argument_for_logarithm`.
pub(crate) const ETAG_DIFFERS: &str = "2201E";

/// A new row.
macro_rules! insert {
    ($returning:expr) => {
        concat!(
            "insert into storage.objects as o (bucket_id, name, owner, owner_id, version, metadata, user_metadata) \
             values ($1, $2, $3, $4, $5, $6, $7) returning ",
            $returning
        )
    };
}

/// The columns of a written row that the responses to uploads need.
macro_rules! written_json {
    () => {
        "pg_catalog.json_build_object('id', o.id, 'metadata', o.metadata)::text"
    };
}

/// Inserts a row, with the parameters of [`TEST_INSERT`]. Returns its id and its metadata.
pub(crate) const INSERT_OBJECT: &str = insert!(written_json!());

/// Like [`INSERT_OBJECT`], and replaces a row that is there.
pub(crate) const UPSERT_OBJECT: &str = upsert!(written_json!());

/// Like [`UPSERT_OBJECT`], but only replaces a row: the one with the version `$8` of the row. It
/// fails with [`CONDITION_FAILED`] if no row was written. The row is locked, so that nothing can
/// delete it before the conflict with it is found.
pub(crate) const REPLACE_OBJECT: &str = concat!(
    "with written as (insert into storage.objects as o (bucket_id, name, owner, owner_id, version, metadata, user_metadata) \
     select $1::text, $2::text, $3::uuid, $4::text, $5::text, $6::jsonb, $7::jsonb from (select from only storage.objects as r \
     where r.bucket_id = $1::text and r.name = $2::text and r.xmin = $8::xid for update) as replaced \
     on conflict (name, bucket_id) do update set ",
    upserted_columns!(),
    " where o.xmin = $8::xid returning ",
    written_json!(),
    " as row) select (select w.row from written as w), 1 / (select pg_catalog.count(*) from written)"
);

/// Like [`INSERT_OBJECT`], but returns the whole row.
pub(crate) const INSERT_WHOLE_OBJECT: &str = insert!(object_json!());

/// Like [`UPSERT_OBJECT`], but returns the whole row.
pub(crate) const UPSERT_WHOLE_OBJECT: &str = upsert!(object_json!());

/// `$1` bucket, `$2` name, then the new `$3` bucket, `$4` name, `$5` owner, `$6` owner id, `$7`
/// version.
pub(crate) const TEST_MOVE: &str = "update storage.objects as o set bucket_id = $3, name = $4, owner = $5, owner_id = $6, version = $7 \
    where o.bucket_id = $1 and o.name = $2 returning o.id";

/// Like [`TEST_MOVE`], and `$8` metadata, `$9` the version that is replaced.
pub(crate) const MOVE_OBJECT: &str = "update storage.objects as o set bucket_id = $3, name = $4, owner = $5, owner_id = $6, version = $7, \
    metadata = $8 where o.bucket_id = $1 and o.name = $2 and o.version is not distinct from $9 returning o.id";

/// `$1` bucket, `$2` name.
pub(crate) const SEE_OBJECT: &str = "select o.id from storage.objects as o where o.bucket_id = $1 and o.name = $2";

/// Like [`SEE_OBJECT`], and returns the ETag without quotes.
pub(crate) const SEE_ETAG: &str = "select o.id, pg_catalog.btrim(o.metadata ->> 'eTag', '\"') \
    from storage.objects as o where o.bucket_id = $1 and o.name = $2";

/// `$1` bucket, `$2` names.
pub(crate) const DELETE_OBJECTS: &str = concat!(
    "delete from storage.objects as o where o.bucket_id = $1 and o.name = any ($2) returning ",
    object_json!(),
    ", pg_catalog.json_build_object('name', o.name, 'version', o.version)::text"
);

/// Like [`DELETE_OBJECTS`], as far as the objects have an ETag, `$3` without quotes; `*` is every
/// ETag.
pub(crate) const DELETE_OBJECTS_WITH_ETAG: &str = concat!(
    "delete from storage.objects as o where o.bucket_id = $1 and o.name = any ($2) \
     and ($3::text = '*' or pg_catalog.btrim(o.metadata ->> 'eTag', '\"') = $3::text) returning ",
    object_json!(),
    ", pg_catalog.json_build_object('name', o.name, 'version', o.version)::text"
);

/// Like [`DELETE_OBJECTS`], as far as the objects were there at a time: `$3`.
pub(crate) const DELETE_OBJECTS_UNTIL: &str = concat!(
    "delete from storage.objects as o where o.bucket_id = $1 and o.name = any ($2) and o.created_at <= $3::timestamptz returning ",
    object_json!(),
    ", pg_catalog.json_build_object('name', o.name, 'version', o.version)::text"
);

/// `$1` prefix, `$2` bucket, `$3` limit, `$4` levels, `$5` offset, `$6` search, `$7` column, `$8`
/// order.
pub(crate) const LIST: &str = "select o.name, o.id, o.updated_at, o.created_at, o.last_accessed_at, o.metadata \
    from storage.search($1, $2, $3, $4, $5, $6, $7, $8) as o";

/// `$1` bucket, `$2` prefix, `$3` the name before the first one.
pub(crate) const LIST_RESERVED: &str = "select pg_catalog.json_build_object('name', o.name, 'age', \
    extract(epoch from pg_catalog.now() - coalesce(o.created_at, o.updated_at, 'epoch')))::text from storage.objects as o \
    where o.bucket_id = $1 and pg_catalog.starts_with(o.name, $2) and o.name collate \"C\" > greatest($2, $3 collate \"C\") \
    order by o.name collate \"C\" limit 1000";

/// The versions that rows refer to, of the objects with some names. `$1` bucket, `$2` names.
pub(crate) const CURRENT_VERSIONS: &str = "select pg_catalog.json_build_object('name', o.name, 'version', o.version)::text \
    from storage.objects as o where o.bucket_id = $1 and o.name = any ($2)";

/// Reads what names the content of all objects, in the order of their ids. `$1` the last id of the
/// page before, `$2` limit.
pub(crate) const CONTENT_ROWS: &str = "select pg_catalog.json_build_object('id', o.id, 'bucket', o.bucket_id, 'name', o.name, \
    'version', o.version)::text from storage.objects as o where $1::uuid is null or o.id > $1::uuid order by o.id limit $2::bigint";

/// Deletes rows that still have a version. `$1` ids, `$2` the version of each; empty: none.
pub(crate) const DELETE_LOST_ROWS: &str = "delete from storage.objects as o \
    using rows from (pg_catalog.unnest($1::uuid[]), pg_catalog.unnest($2::text[])) as lost (id, version) \
    where o.id = lost.id and coalesce(o.version, '') = lost.version returning o.id";

/// Selects a constant, to see that the database answers.
pub(crate) const PING: &str = "select '1'";

/// Finds the next entry behind a bound, and the bound of the one after it.
macro_rules! walk_step {
    ($bound:literal, $from:literal, $order:literal, $next_folder:literal, $next_object:literal) => {
        concat!(
            "select found.*, case when found.folder is not null then ", $next_folder, " else ", $next_object, " end as next from \
             (select o.name, o.id, o.updated_at, o.created_at, o.last_accessed_at, o.metadata, \
             case when pg_catalog.strpos(pg_catalog.substr(o.name, $6::int + 1), $5::text) > 0 then \
             pg_catalog.left(o.name, $6::int - 1 + pg_catalog.length($5::text) + pg_catalog.strpos(pg_catalog.substr(o.name, $6::int + 1), $5::text)) end as folder \
             from storage.objects as o where o.bucket_id = $1 and ",
            $from, " ", $bound, ") and o.name collate \"C\" >= $2 and o.name collate \"C\" < $3::text \
             order by o.name collate \"C\" ", $order, " limit 1) as found"
        )
    };
}

/// The columns of an entry of a page: name, id, times, metadata, moment.
macro_rules! walk {
    ($start:literal, $from:literal, $order:literal, $next_folder:literal, $next_object:literal) => {
        concat!(
            "with recursive entry as ((select step.* from (values (",
            $start,
            ")) as origin (next), lateral (",
            walk_step!("origin.next", $from, $order, $next_folder, $next_object),
            ") as step) union all (select step.* from entry, lateral (",
            walk_step!("entry.next", $from, $order, $next_folder, $next_object),
            ") as step)) select coalesce(e.folder, e.name), case when e.folder is null then e.id end, \
             case when e.folder is null then e.updated_at end, case when e.folder is null then e.created_at end, \
             case when e.folder is null then e.last_accessed_at end, case when e.folder is null then e.metadata end, \
             null::timestamptz from entry as e limit $7::bigint"
        )
    };
}

/// A page in the order of names, from name to name: a folder costs one step, however many objects
/// it has. `$1` bucket, `$2` prefix, `$3` a name beyond it, `$4` the first name of the
/// page, `$5` the delimiter that ends the names of folders, or none, `$6` length of the prefix,
/// `$7` limit, `$8` the first text beyond the delimiter.
///
/// A name with `\x01` appended is the least one that is greater.
pub(crate) const WALK_UP: &str = walk!(
    "$4::text",
    "(o.name collate \"C\" >=",
    "asc",
    "pg_catalog.left(found.folder, -pg_catalog.length($5::text)) || $8::text",
    "found.name || pg_catalog.chr(1)"
);

/// Like [`WALK_UP`], but downwards and without `$8`. `$4` is greater than all names of the page.
pub(crate) const WALK_DOWN: &str = walk!("$4::text", "(o.name collate \"C\" <", "desc", "found.folder", "found.name");

/// Returns the statement for a page in the order of a time. `$1` bucket, `$2` prefix, `$3` the
/// first name beyond it, `$4` and `$5` name and time of the last entry of the page before, `$6` by
/// folder, `$7` length of the prefix, `$8` limit. A folder has the time of its oldest object.
pub(crate) fn list_by_time(column: &str, descending: bool) -> String {
    let (direction, comparison) = if descending { ("desc", "<") } else { ("asc", ">") };
    format!(
        "with found as (select o.name, o.id, o.updated_at, o.created_at, o.last_accessed_at, o.metadata, \
         case when $6::boolean and pg_catalog.strpos(pg_catalog.substr(o.name, $7::int + 1), '/') > 0 then \
         pg_catalog.left(o.name, $7::int + pg_catalog.strpos(pg_catalog.substr(o.name, $7::int + 1), '/')) end as folder \
         from storage.objects as o where o.bucket_id = $1 and o.name collate \"C\" >= $2 \
         and o.name collate \"C\" < $3::text), \
         entry as (select f.folder as name, null::uuid as id, min(f.created_at) as updated_at, min(f.created_at) as created_at, \
         null::timestamptz as last_accessed_at, null::jsonb as metadata from found as f where f.folder is not null group by f.folder \
         union all select f.name, f.id, f.updated_at, f.created_at, f.last_accessed_at, f.metadata from found as f where f.folder is null), \
         timed as (select e.*, pg_catalog.date_trunc('milliseconds', coalesce(e.{column}, 'epoch'::timestamptz)) as moment from entry as e) \
         select t.name, t.id, t.updated_at, t.created_at, t.last_accessed_at, t.metadata, t.moment from timed as t \
         where $4::text is null or (t.moment, t.name collate \"C\") {comparison} ($5::timestamptz, $4::text) \
         order by t.moment {direction}, t.name collate \"C\" {direction} limit $8::bigint"
    )
}
