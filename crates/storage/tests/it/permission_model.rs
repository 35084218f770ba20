//! Row-level security under generated policies, callers and calls, compared with a model of what a
//! caller may see and change.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use portico_storage::ImageSettings;
use portico_testkit::{Request, TestResponse};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::helper::Files;
use super::s3::{Signed, request, start_with};

/// The number of generated policy sets.
const CASES: usize = 3;

/// The objects that a policy is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Nothing,
    /// The folder of the caller's id.
    OwnFolder,
    /// One folder for all.
    SharedFolder,
    Everything,
}

impl Rule {
    fn sql(self) -> &'static str {
        match self {
            Self::Nothing => "false",
            Self::OwnFolder => "(storage.foldername(name))[1] = (select auth.uid())::text",
            Self::SharedFolder => "name like 'shared/%'",
            Self::Everything => "true",
        }
    }
}

/// The policies on objects, one for each command.
#[derive(Debug, Clone, Copy)]
struct Policies {
    select: Rule,
    insert: Rule,
    update: Rule,
    delete: Rule,
    /// They are for visitors too.
    for_visitors: bool,
}

impl Policies {
    fn sql(self) -> String {
        let role = if self.for_visitors { "anon, authenticated" } else { "authenticated" };
        let policy = |command: &str, clause: &str, rule: Rule| {
            format!(
                "drop policy if exists model_{command} on storage.objects; \
                 create policy model_{command} on storage.objects for {command} to {role} {clause} ({});",
                rule.sql()
            )
        };
        [
            policy("select", "using", self.select),
            policy("insert", "with check", self.insert),
            policy("update", "using", self.update),
            policy("delete", "using", self.delete),
        ]
        .concat()
    }
}

fn policies() -> impl Strategy<Value = Policies> {
    let rule = || prop::sample::select(vec![Rule::Nothing, Rule::OwnFolder, Rule::SharedFolder, Rule::Everything]);
    (rule(), rule(), rule(), rule(), any::<bool>()).prop_map(|(select, insert, update, delete, for_visitors)| {
        Policies { select, insert, update, delete, for_visitors }
    })
}

/// A caller with policies.
struct Model<'a> {
    policies: Policies,
    /// The id of a user; `None`: a visitor.
    user: Option<&'a str>,
    token: &'a str,
}

impl Model<'_> {
    fn allows(&self, rule: Rule, name: &str) -> bool {
        let folder = name.split('/').next();
        (self.user.is_some() || self.policies.for_visitors)
            && match rule {
                Rule::Nothing => false,
                Rule::OwnFolder => folder == self.user,
                Rule::SharedFolder => folder == Some("shared"),
                Rule::Everything => true,
            }
    }

    fn sees(&self, name: &str) -> bool {
        self.allows(self.policies.select, name)
    }

    /// Returns true if the caller may write a name that it does not see: the response tells whether
    /// it is taken.
    fn may_learn(&self, name: &str) -> bool {
        self.allows(self.policies.insert, name) || self.allows(self.policies.update, name)
    }

    /// Checks what has become of the objects.
    fn check_changes(&self, before: &Rows, after: &Rows, call: &str) {
        for (name, row) in before.iter().filter(|(name, row)| after.get(*name) != Some(row)) {
            let may = self.allows(self.policies.update, name) || self.allows(self.policies.delete, name);
            assert!(self.sees(name) && may, "{call} changed {name}: {row:?} {:?}", self.policies);
        }
        for name in after.keys().filter(|name| !before.contains_key(*name)) {
            assert!(self.may_learn(name), "{call} made {name}: {:?}", self.policies);
        }
    }
}

/// The columns of the objects by their names.
type Rows = BTreeMap<String, (Option<String>, Option<String>, Value)>;

async fn rows(f: &Files) -> Rows {
    let rows = f.t.query("select name, version, owner_id, metadata from storage.objects").await;
    rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2), row.get(3)))).collect()
}

/// The two kinds of calls that name an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallKind {
    Reads,
    /// The policies for writing may decide before those for reading do.
    Writes,
}

/// Returns every call that names an object, besides others in the folder of a user.
fn calls(f: &Files, token: &str, name: &str, own: &str) -> Vec<(&'static str, CallKind, Request)> {
    use CallKind::{Reads, Writes};
    let path = format!("files/{name}");
    let both = |source: &str, destination: &str| json!({ "bucketId": "files", "sourceKey": source, "destinationKey": destination });
    let upload = |request: Request| request.header("content-type", "text/plain").body("overwritten");
    let sign = json!({ "expiresIn": 60, "paths": [name] });
    let rest = [
        ("get", Reads, f.get(&format!("/object/{path}"))),
        ("authenticated", Reads, f.get(&format!("/object/authenticated/{path}"))),
        ("head", Reads, f.head(&format!("/object/{path}"))),
        ("info", Reads, f.get(&format!("/object/info/{path}"))),
        ("public", Reads, f.get(&format!("/object/public/{path}"))),
        ("render", Reads, f.get(&format!("/render/image/authenticated/{path}?width=10"))),
        ("sign", Reads, f.post(&format!("/object/sign/{path}")).json(&json!({ "expiresIn": 60 }))),
        ("sign many", Reads, f.post("/object/sign/files").json(&sign)),
        ("delete", Reads, f.delete(&format!("/object/{path}"))),
        ("delete many", Reads, f.delete("/object/files").json(&json!({ "prefixes": [name] }))),
        ("move", Reads, f.post("/object/move").json(&both(name, &format!("{own}/moved")))),
        ("copy", Reads, f.post("/object/copy").json(&both(name, &format!("{own}/copied")))),
        ("upload", Writes, upload(f.post(&format!("/object/{path}")))),
        ("upsert", Writes, upload(f.post(&format!("/object/{path}")).header("x-upsert", "true"))),
        ("put", Writes, upload(f.put(&format!("/object/{path}")))),
        ("sign upload", Writes, f.post(&format!("/object/upload/sign/{path}")).header("x-upsert", "true")),
        ("move onto", Writes, f.post("/object/move").json(&both(&format!("{own}/1"), name))),
        ("copy onto", Writes, f.post("/object/copy").header("x-upsert", "true").json(&both(&format!("{own}/1"), name))),
        ("resumable", Writes, f.creation(name, 5)),
    ];
    let mut calls: Vec<_> = rest.map(|(call, kind, request)| (call, kind, request.bearer(token))).into();
    let (object, source) = (format!("/files/{name}"), format!("files/{own}/1"));
    let copied = format!("/files/{own}/copied");
    let document = format!("<Delete><Object><Key>{name}</Key></Object></Delete>");
    for (call, kind, signed) in [
        ("S3 get", Reads, request(Method::GET, &object)),
        ("S3 head", Reads, request(Method::HEAD, &object)),
        ("S3 copy", Reads, Signed { headers: &[("x-amz-copy-source", &path)], ..request(Method::PUT, &copied) }),
        ("S3 delete", Reads, request(Method::DELETE, &object)),
        (
            "S3 delete many",
            Reads,
            Signed { query: "delete=", body: document.into_bytes(), ..request(Method::POST, "/files") },
        ),
        ("S3 put", Writes, Signed { body: b"overwritten".to_vec(), ..request(Method::PUT, &object) }),
        (
            "S3 copy onto",
            Writes,
            Signed { headers: &[("x-amz-copy-source", &source)], ..request(Method::PUT, &object) },
        ),
        ("S3 begin", Writes, Signed { query: "uploads=", ..request(Method::POST, &object) }),
    ] {
        calls.push((call, kind, Signed { token: Some(token), ..signed }.sign(f)));
    }
    calls
}

/// Stores the objects that every call begins with, and nothing else.
async fn restore(f: &Files, names: &[String]) {
    let present: Vec<String> = rows(f).await.into_keys().collect();
    if !present.is_empty() {
        f.service(f.delete("/object/files").json(&json!({ "prefixes": present }))).send().await.expect(200);
    }
    for name in names {
        f.store(&format!("files/{name}"), &format!("content of {name}")).await.expect(200);
    }
}

/// Returns what a caller learns from a response about an object.
fn learned(response: &TestResponse, name: &str) -> String {
    let headers = ["etag", "last-modified", "content-length", "content-type"].map(|header| response.header(header));
    format!("{} {headers:?} {}", response.status, response.text().replace(name, "NAME"))
}

/// Checks that lists have the names that the caller sees, and no others.
async fn check_lists(f: &Files, model: &Model<'_>, names: &[String]) {
    let visible: BTreeSet<String> = names.iter().filter(|name| model.sees(name)).cloned().collect();
    let page = f.post("/object/list-v2/files").json(&json!({})).bearer(model.token).send().await.expect(200).json();
    let listed = page["objects"].as_array().unwrap().iter().map(|object| object["name"].as_str().unwrap().to_owned());
    assert_eq!(listed.collect::<BTreeSet<_>>(), visible, "{:?}", model.policies);

    let list = Signed { query: "list-type=2", token: Some(model.token), ..request(Method::GET, "/files") };
    let text = list.send(f).await.expect(200).text();
    let listed = text.split("<Key>").skip(1).map(|rest| rest.split('<').next().unwrap().to_owned());
    assert_eq!(listed.collect::<BTreeSet<_>>(), visible, "{:?}", model.policies);

    let folder_of = |name: &String| name.split('/').next().unwrap().to_owned();
    let folders: BTreeSet<String> = visible.iter().map(folder_of).collect();
    let list = f.post("/object/list/files").json(&json!({ "prefix": "" })).bearer(model.token);
    let list = list.send().await.expect(200).json();
    let listed = list.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap().to_owned());
    assert_eq!(listed.collect::<BTreeSet<_>>(), folders, "{:?}", model.policies);
}

#[tokio::test]
async fn no_call_under_any_policies_reveals_or_changes_more_than_they_allow() {
    let images = tempfile::tempdir().unwrap();
    let f = start_with(|settings| settings.images = Some(ImageSettings::in_folder(images.path()))).await;
    let (alice, bob) = (f.t.member("alice@example.com").await, f.t.member("bob@example.com").await);
    let names = [alice.id(), bob.id(), "shared", "other"].map(|folder| format!("{folder}/1"));
    let visitor = f.t.api_keys().anon_jwt().to_owned();
    restore(&f, &names).await;
    let mut before = rows(&f).await;
    let (mut hidden, mut visible) = (0, 0);
    let mut runner = TestRunner::deterministic();
    let mut generated = || (policies(), any::<bool>()).new_tree(&mut runner).unwrap().current();
    let own = Rule::OwnFolder;
    let usual = Policies { select: own, insert: own, update: own, delete: own, for_visitors: false };
    for case in 0..=CASES {
        let (policies, is_user) = if case == 0 { (usual, true) } else { generated() };
        f.t.migrate(&policies.sql()).await;
        let (user, token) = if is_user { (Some(alice.id()), alice.access_token()) } else { (None, visitor.as_str()) };
        let model = Model { policies, user, token };
        check_lists(&f, &model, &names).await;
        for name in &names {
            let content = format!("content of {name}");
            if model.sees(name) {
                let response = f.get(&format!("/object/files/{name}")).bearer(token).send().await;
                assert_eq!(response.expect(200).text(), content);
                visible += 1;
            }
            // No object has this name, which all policies treat alike
            let missing = name.replace("/1", "/2");
            let both = calls(&f, token, name, alice.id()).into_iter().zip(calls(&f, token, &missing, alice.id()));
            for ((call, kind, existing), (_, _, of_missing)) in both {
                let mut responses = Vec::new();
                for (name, request) in [(name, existing), (&missing, of_missing)] {
                    let response = request.send().await;
                    let after = rows(&f).await;
                    model.check_changes(&before, &after, call);
                    if after != before {
                        restore(&f, &names).await;
                        before = rows(&f).await;
                    }
                    responses.push((learned(&response, name), response));
                }
                if model.sees(name) {
                    continue;
                }
                hidden += 1;
                let (of_hidden, response) = &responses[0];
                assert!(!response.text().contains(&content), "{call}: {of_hidden}");
                if kind == CallKind::Reads || !model.may_learn(name) {
                    assert_eq!(of_hidden, &responses[1].0, "{call} {policies:?}");
                }
            }
        }
    }
    assert!(hidden > 80 && visible > 0, "{hidden} {visible}");
}
