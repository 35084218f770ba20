//! Tests that the listings of schema storage return and read the right objects, with and without
//! row security.

use tokio_postgres::Client;

use super::bootstrap::{column, majors, ready, value};

/// Returns the objects of the bucket `list`: folders with many files, and names that differ in
/// case.
fn names() -> Vec<String> {
    let folders = (0..20).flat_map(|folder| (0..300).map(move |file| format!("folder-{folder}/file-{file:03}.txt")));
    let odd = [
        "A",
        "a",
        "a-b",
        "a/x",
        "a/y",
        "a.b",
        "a0",
        "B/one",
        "b/TWO",
        "FOLDER-1/upper.txt",
        "Folder-1/file-005.txt",
        "folder-1/sub/deep/x",
        "folder-1/sub.txt",
        "z%_",
        "ä/ö",
        "Ä/ö",
        "q\u{10ffff}/x",
        "Q\u{10ffff}/x",
    ];
    folders.chain(odd.map(str::to_owned)).collect()
}

/// Returns the entries below a prefix by name: those of the folders end with a slash.
fn expected(names: &[String], prefix: &str, search: &str, descending: bool) -> Vec<String> {
    let wanted = format!("{prefix}{search}").to_lowercase();
    let mut found: Vec<(String, String)> = Vec::new();
    let mut sorted: Vec<_> = names.iter().map(|name| (name.to_lowercase(), name)).collect();
    sorted.sort();
    for (lower, name) in sorted {
        let Some(rest) = lower.strip_prefix(&wanted) else { continue };
        match rest.find('/') {
            Some(slash) => {
                let end = wanted.len() + slash;
                let folder = (lower[..=end].to_owned(), name[prefix.len()..=end].to_owned());
                if !found.contains(&folder) {
                    found.push(folder);
                }
            }
            None => found.push((lower, name[prefix.len()..].to_owned())),
        }
    }
    found.sort();
    if descending {
        found.reverse();
    }
    found.into_iter().map(|(_, entry)| entry).collect()
}

/// Returns how many objects this transaction and those shortly before it have read.
async fn rows_read(client: &Client) -> usize {
    let read = value(
        client,
        "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where relid = 'storage.objects'::regclass",
    );
    read.await.parse().unwrap()
}

/// Stores the objects, and others in another bucket. PostgreSQL has no statistics about them yet,
/// as after a bulk load.
async fn store(client: &Client, names: &[String]) {
    let values: Vec<_> = names.iter().map(|name| format!("('list', '{name}')")).collect();
    client
        .batch_execute(&format!(
            "insert into storage.buckets (id, name) values ('list', 'list'), ('other', 'other');
             insert into storage.objects (bucket_id, name) values {};
             insert into storage.objects (bucket_id, name) select 'other', n::text from generate_series(1, 3000) as n;
             create policy lists on storage.objects for select to anon using (bucket_id = 'list')",
            values.join(", ")
        ))
        .await
        .unwrap();
}

/// Returns the entries below a prefix behind a name, up to a delimiter.
fn expected_by_delimiter(
    names: &[String],
    prefix: &str,
    delimiter: &str,
    after: &str,
    descending: bool,
) -> Vec<String> {
    let mut sorted: Vec<_> = names.iter().filter(|name| name.starts_with(prefix)).collect();
    sorted.sort();
    if descending {
        sorted.reverse();
    }
    let entry = |name: &String| match name[prefix.len()..].find(delimiter).filter(|_| !delimiter.is_empty()) {
        Some(end) => name[..prefix.len() + end].to_owned(),
        None => name.clone(),
    };
    let mut entries: Vec<_> = sorted.into_iter().map(entry).collect();
    entries.dedup();
    match entries.iter().position(|entry| entry == after) {
        Some(position) => entries.split_off(position + 1),
        None => entries,
    }
}

/// Returns the first column of a list that a role reads, and how many objects were read for it.
async fn list_as(client: &Client, role: &str, list: &str) -> (Vec<String>, usize) {
    client.batch_execute("begin").await.unwrap();
    let before = rows_read(client).await;
    let found = column(client, &format!("set local role {role}; {list}; reset role")).await;
    let read = rows_read(client).await - before;
    client.batch_execute("rollback").await.unwrap();
    (found, read)
}

#[tokio::test]
async fn a_list_by_a_delimiter_reads_what_it_returns_with_any_plan() {
    let names = names();
    for major in majors() {
        let database = ready(major).await;
        let client = database.administrator().await.unwrap();
        store(&client, &names).await;
        for (plans, statistics) in [
            ("force_generic_plan", ""),
            ("force_custom_plan", ""),
            ("force_generic_plan", "; analyze storage.objects"),
            ("force_custom_plan", ""),
        ] {
            client.batch_execute(&format!("set plan_cache_mode = {plans}{statistics}")).await.unwrap();
            for role in ["anon", "service_role"] {
                for (prefix, delimiter, after) in [
                    ("", "/", ""),
                    ("folder-1/", "/", ""),
                    ("folder-1/", "/", "folder-1/file-100.txt"),
                    ("", "/", "folder-12"),
                    ("a", "/", ""),
                    ("folder-1", "", ""),
                    ("none/", "/", ""),
                ] {
                    for descending in [false, true] {
                        let all = expected_by_delimiter(&names, prefix, delimiter, after, descending);
                        for limit in [1, 7, 100, 1000] {
                            let order = if descending { "desc" } else { "asc" };
                            let list = format!(
                                "select name from storage.list_objects_with_delimiter(
                                   'list', '{prefix}', '{delimiter}', {limit}, '{after}', '', '{order}')"
                            );
                            let (found, read) = list_as(&client, role, &list).await;
                            let page: Vec<_> = all.iter().take(limit).cloned().collect();
                            let case = format!("{prefix} {delimiter} {after} {order} {limit} {role} {plans} {major}");
                            assert_eq!(found, page, "{case}");
                            let bound = 4 * page.len() + 50;
                            assert!(read <= bound, "{read} rows, {bound} at most: {case}");
                        }
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn a_list_reads_what_it_returns_whatever_row_security_checks() {
    let names = names();
    for major in majors() {
        let database = ready(major).await;
        let client = database.administrator().await.unwrap();
        store(&client, &names).await;
        assert_eq!(
            value(&client, "select proleakproof from pg_proc where oid = 'lower(text)'::regprocedure").await,
            "t"
        );
        // As where no superuser has declared it
        for (leakproof, statistics) in
            [("leakproof", ""), ("leakproof", "; analyze storage.objects"), ("not leakproof", "")]
        {
            client.batch_execute(&format!("alter function lower(text) {leakproof}{statistics}")).await.unwrap();
            for role in ["anon", "service_role"] {
                for (prefix, search) in [
                    ("", ""),
                    ("folder-1/", ""),
                    ("FOLDER-1/", "s"),
                    ("", "fol"),
                    ("", "A"),
                    ("folder-1/", "sub/"),
                    ("none/", ""),
                ] {
                    for descending in [false, true] {
                        let all = expected(&names, prefix, search, descending);
                        for (limit, offset) in [(100, 0), (1000, 0), (7, 3), (1, 400)] {
                            let levels = prefix.split('/').count();
                            let order = if descending { "desc" } else { "asc" };
                            let list = format!(
                                "select case when id is null then name || '/' else name end
                                   from storage.search('{prefix}', 'list', {limit}, {levels}, {offset}, '{search}', 'name', '{order}')"
                            );
                            let (found, read) = list_as(&client, role, &list).await;
                            let page: Vec<_> = all.iter().skip(offset).take(limit).cloned().collect();
                            assert_eq!(
                                found, page,
                                "{prefix} {search} {order} {limit} {offset} {role} {leakproof} {major}"
                            );
                            // Without a leakproof `lower` each object once, and otherwise a few for
                            // each entry that is returned or skipped, and for each letter of a
                            // folder that others begin with in another case.
                            let entries = all.iter().take(offset + limit);
                            let letters: usize = entries
                                .map(
                                    |entry| {
                                        if entry.to_lowercase().starts_with("folder-") { 2 * entry.len() } else { 0 }
                                    },
                                )
                                .sum();
                            let bound = if role == "anon" && leakproof == "not leakproof" {
                                names.len() + 3000
                            } else {
                                4 * all.len().min(offset + limit) + letters + 50
                            };
                            assert!(
                                read <= bound,
                                "{read} rows, {bound} at most: {prefix} {search} {order} {limit} {offset} {role} {leakproof} {major}"
                            );
                        }
                    }
                }
            }
        }
    }
}
