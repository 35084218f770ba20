//! Measures the storage service: downloads against nginx with `sendfile`, uploads against writing
//! and flushing the same bytes, lists against the bare SQL.

use std::borrow::Cow;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tokio::process::{Child, Command};

use crate::client::{Calls, Connection, Done, End, request};
use crate::limits;
use crate::report::Report;
use crate::rounds::{Compared, compare, practises};
use crate::server::{Server, Subject, folder};

const PORT: u16 = 55_361;
const NGINX_PORT: u16 = PORT + 7;
const ROUND: Duration = Duration::from_secs(3);
const CONNECTIONS: usize = 16;
/// The number of concurrent uploads whose memory is measured.
const UPLOADS: usize = 100;
const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// The objects, by name and size.
const OBJECTS: [(&str, &str, usize); 3] =
    [("small", "1 KiB", KIB), ("medium", "1 MiB", MIB), ("large", "100 MiB", 100 * MIB)];

/// The policies of the bench, and a bucket with a million objects in a thousand folders.
const POLICIES: &str = "
    create policy everyone_reads on storage.objects for select to anon using (bucket_id in ('private', 'public', 'list'));
    create policy everyone_writes on storage.objects for insert to anon with check (bucket_id = 'public');
    create policy everyone_replaces on storage.objects for update to anon using (bucket_id = 'public')";
const MILLION: &str = "
    insert into storage.buckets (id, name) values ('list', 'list');
    insert into storage.objects (bucket_id, name, metadata)
      select 'list', format('folder-%s/object-%s.txt', n % 1000, n), '{\"size\": 12, \"mimetype\": \"text/plain\"}'
        from generate_series(1, 1000000) as n;
    analyze storage.objects";
/// The bare SQL of a list: the rows and columns of the response, in its order, which is that of the
/// names in lower case.
const LIST_SCRIPT: &str = "
    select o.name, o.id, o.updated_at, o.created_at, o.last_accessed_at, o.metadata from storage.objects as o
      where o.bucket_id = 'list' and lower(o.name) collate \"C\" >= 'folder-7/' and lower(o.name) collate \"C\" < 'folder-70'
      order by lower(o.name) collate \"C\", o.name collate \"C\" limit 1000;";
/// The same rows, in an order that this form of listing does not have.
const SIMPLE_LIST_SCRIPT: &str = "
    select o.name, o.id, o.updated_at, o.created_at, o.last_accessed_at, o.metadata from storage.objects as o
      where o.bucket_id = 'list' and o.name collate \"C\" >= 'folder-7/' and o.name collate \"C\" < 'folder-70'
      order by o.name collate \"C\" limit 1000;";

/// Measures the selected parts.
pub async fn measure(report: &mut Report, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let settings = "[storage]\nenabled = true\nfile_size_limit = \"1GiB\"\n";
    let folder = folder(PORT, settings)?;
    let server = Server::start(folder.path(), PORT).await?;
    let outcome = measure_on(&server, folder.path(), report, wanted).await;
    server.stop(folder.path()).await?;
    outcome
}

async fn measure_on(server: &Server, folder: &Path, report: &mut Report, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let bench = Bench { subject: Subject::of(server, folder, PORT)?, secret: server.value("SECRET_KEY").to_owned() };
    bench.subject.postgres.connect_as("supabase_admin").await?.batch_execute(POLICIES).await?;
    for (bucket, public) in [("public", true), ("private", false)] {
        let body = format!(r#"{{"id":"{bucket}","name":"{bucket}","public":{public}}}"#);
        bench.ask("POST", "/bucket", &body).await?;
    }
    if wanted("storage-download") {
        bench.download(folder, report).await?;
    }
    if wanted("storage-upload") {
        bench.upload(folder, report).await?;
    }
    if wanted("storage-list") {
        bench.list(report).await?;
    }
    if wanted("storage-memory") {
        bench.memory(server, report).await?;
    }
    Ok(())
}

struct Bench {
    subject: Subject,
    secret: String,
}

/// The same request on every connection, or one for each of them, with the same body.
struct Transfer {
    requests: Vec<Vec<u8>>,
    body: Vec<u8>,
}

impl Calls for Transfer {
    fn request(&self, connection: usize, _: u64) -> Cow<'_, [u8]> {
        self.requests[connection % self.requests.len()].as_slice().into()
    }

    fn transferred(&self) -> Option<&[u8]> {
        Some(&self.body)
    }
}

fn get(path: &str, headers: &[(&str, &str)]) -> Arc<Transfer> {
    Arc::new(Transfer { requests: vec![request("GET", path, headers, "")], body: Vec::new() })
}

/// Returns content that is not the same in each block, so that nothing on the way can shorten it.
fn content(size: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

impl Bench {
    /// Sends a request of the service role.
    async fn ask(&self, method: &str, path: &str, body: &str) -> Result<String> {
        let mut connection = Connection::open(&self.subject.address).await?;
        let bytes = request(method, &format!("/storage/v1{path}"), &[("apikey", &self.secret)], body);
        let answer = connection.succeed(&bytes).await.with_context(|| format!("{method} {path}"))?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }

    /// Returns a load that stores content under a name for each connection.
    fn uploads(&self, connections: usize, size: usize) -> Arc<Transfer> {
        let upload = |number: usize| {
            let path = format!("/storage/v1/object/public/upload-{number}");
            format!(
                "POST {path} HTTP/1.1\r\nhost: bench\r\napikey: {}\r\nx-upsert: true\r\ncontent-type: application/octet-stream\r\n\
                 content-length: {size}\r\n\r\n",
                self.subject.key
            )
            .into_bytes()
        };
        Arc::new(Transfer { requests: (0..connections).map(upload).collect(), body: content(size) })
    }

    async fn download(&self, folder: &Path, report: &mut Report) -> Result<()> {
        let files = folder.join("nginx");
        std::fs::create_dir(&files)?;
        std::fs::create_dir(files.join("files"))?;
        let nginx = if practises() { None } else { Some(Nginx::start(&files).await?) };
        let limit_address = nginx.as_ref().map_or("", |nginx| &nginx.address);
        for (name, size_name, size) in OBJECTS {
            std::fs::write(files.join("files").join(name), content(size))?;
            for bucket in ["public", "private"] {
                let mut connection = Connection::open(&self.subject.address).await?;
                let path = format!("/storage/v1/object/{bucket}/{name}");
                let mut upload = format!(
                    "POST {path} HTTP/1.1\r\nhost: bench\r\napikey: {}\r\ncontent-type: application/octet-stream\r\n\
                     content-length: {size}\r\n\r\n",
                    self.secret
                )
                .into_bytes();
                upload.extend(content(size));
                connection.succeed(&upload).await?;
            }
            let signed = self.ask("POST", &format!("/object/sign/private/{name}"), r#"{"expiresIn":36000}"#).await?;
            let signed = signed.split('"').find(|part| part.starts_with('/')).context("a signed URL")?;
            let key = [("apikey", self.subject.key.as_str())];
            let bar = |smallest: &'static str| if size < MIB { smallest } else { "≥ 0.8" };
            for (access, bar, calls) in [
                ("public", bar("≥ 0.35"), get(&format!("/storage/v1/object/public/public/{name}"), &[])),
                ("signed", bar(""), get(&format!("/storage/v1{signed}"), &[])),
                ("under RLS", bar(""), get(&format!("/storage/v1/object/authenticated/private/{name}"), &key)),
            ] {
                let end = End::After(ROUND);
                let limit = get(&format!("/{name}"), &[]);
                let found = compare(
                    self.subject.watch,
                    async || self.subject.load(CONNECTIONS, end, &calls).await,
                    async || crate::client::load(limit_address, CONNECTIONS, end, limit.clone()).await,
                )
                .await?;
                let what = format!("Download of {size_name}, {access}, {CONNECTIONS} connections");
                show(&found, report, &what, "nginx", bar);
            }
        }
        Ok(())
    }

    async fn upload(&self, folder: &Path, report: &mut Report) -> Result<()> {
        let files = folder.join("written");
        std::fs::create_dir(&files)?;
        let objects = folder.join(".portico/storage/objects");
        for (_, size_name, size) in &OBJECTS[1..] {
            let calls = self.uploads(CONNECTIONS, *size);
            let end = End::After(ROUND);
            let found = compare(
                self.subject.watch,
                async || {
                    let started = Instant::now();
                    let Done { calls, .. } = self.subject.load(CONNECTIONS, end, &calls).await?;
                    // The limit has deleted what it has replaced, so this has to as well
                    while has_replaced(&objects)? {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    Ok(Done { calls, per_second: calls as f64 / started.elapsed().as_secs_f64() })
                },
                async || write_and_flush(&files, &calls.body).await,
            )
            .await?;
            let what = format!("Upload of {size_name}, {CONNECTIONS} connections");
            show(&found, report, &what, "write and flush", "≥ 0.8");
        }
        Ok(())
    }

    async fn list(&self, report: &mut Report) -> Result<()> {
        let admin = self.subject.postgres.connect_as("supabase_admin").await?;
        admin.batch_execute(MILLION).await?;
        let body = r#"{"prefix":"folder-7","limit":1000,"offset":0,"sortBy":{"column":"name","order":"asc"}}"#;
        let bytes = request("POST", "/storage/v1/object/list/list", &[("apikey", &self.subject.key)], body);
        let answer = Connection::open(&self.subject.address).await?.succeed(&bytes).await?;
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&answer.body)?;
        if rows.len() != 1000 {
            bail!("a list of {} objects", rows.len());
        }
        let end = End::After(ROUND);
        let calls = Arc::new(Transfer { requests: vec![bytes], body: Vec::new() });
        let what = format!("List of 1,000 of a million objects, {CONNECTIONS} connections");
        for (order, script) in [("", LIST_SCRIPT), ("; limit in a simpler order", SIMPLE_LIST_SCRIPT)] {
            let found = compare(
                self.subject.watch,
                async || self.subject.load(CONNECTIONS, end, &calls).await,
                async || {
                    let postgres = &self.subject.postgres;
                    limits::pgbench_as(postgres, "supabase_admin", script, &[], CONNECTIONS, end).await
                },
            )
            .await?;
            show(&found, report, &format!("{what}{order}"), "pgbench", "≥ 0.5");
        }
        Ok(())
    }

    /// Measures the memory of concurrent uploads.
    async fn memory(&self, server: &Server, report: &mut Report) -> Result<()> {
        let size = OBJECTS[2].2;
        // Connections, statements and buffers of the first upload are there already
        self.subject.load(CONNECTIONS, End::Calls(1), &self.uploads(CONNECTIONS, MIB)).await?;
        let before = server.resident()? as f64 / MIB as f64;
        server.forget_peak()?;
        self.subject.load(UPLOADS, End::Calls(1), &self.uploads(UPLOADS, size)).await?;
        let grown = server.peak()? as f64 / MIB as f64 - before;
        report.row(
            &format!("{UPLOADS} concurrent uploads of 100 MiB: resident memory grows by"),
            format!("{grown:.1} MiB"),
            String::new(),
            "bar: ≤ 8 MiB".into(),
        );
        Ok(())
    }
}

fn show(found: &Compared, report: &mut Report, what: &str, limit: &str, bar: &str) {
    found.rates(report, what, limit, bar);
    found.processor(report, what);
}

/// Returns true if an object has more than one version in a folder or below it.
fn has_replaced(folder: &Path) -> Result<bool> {
    let mut versions = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            versions += 1;
        } else if has_replaced(&entry.path())? {
            return Ok(true);
        }
    }
    Ok(versions > 1)
}

/// Writes content to new files, flushes each and moves it over the one before, on as many threads
/// as there are connections.
async fn write_and_flush(folder: &Path, content: &[u8]) -> Result<Done> {
    let started = Instant::now();
    let over = AtomicBool::new(false);
    let write = |number: usize| {
        let (draft, name) = (folder.join(format!("draft-{number}")), folder.join(format!("{number}")));
        let mut written = 0_u64;
        while !over.load(Ordering::Relaxed) {
            let mut file = File::create(&draft)?;
            for piece in content.chunks(256 * KIB) {
                file.write_all(piece)?;
            }
            file.sync_data()?;
            std::fs::rename(&draft, &name)?;
            written += 1;
            if started.elapsed() >= ROUND {
                over.store(true, Ordering::Relaxed);
            }
        }
        anyhow::Ok(written)
    };
    let calls = tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..CONNECTIONS).map(|number| scope.spawn(move || write(number))).collect();
            let results = writers.into_iter().map(|writer| writer.join().unwrap_or_else(|_| bail!("a writer failed")));
            results.sum::<Result<u64>>()
        })
    })?;
    Ok(Done { calls, per_second: calls as f64 / started.elapsed().as_secs_f64() })
}

/// nginx, which serves files with `sendfile`.
struct Nginx {
    address: String,
    child: Child,
}

impl Drop for Nginx {
    /// Ends the workers too, which would stay if their parent were killed.
    fn drop(&mut self) {
        if let Some(pid) = self.child.id() {
            let _ = std::process::Command::new("kill").arg(pid.to_string()).status();
        }
    }
}

impl Nginx {
    /// Starts it in a folder; its files are in `files` there.
    async fn start(folder: &Path) -> Result<Self> {
        let config = format!(
            "daemon off; worker_processes auto; pid {0}/pid; error_log {0}/log; user root;\n\
             events {{ worker_connections 1024; }}\n\
             http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; default_type application/octet-stream;\n\
             client_body_temp_path {0}/a; proxy_temp_path {0}/b; fastcgi_temp_path {0}/c; uwsgi_temp_path {0}/d; scgi_temp_path {0}/e;\n\
             server {{ listen 127.0.0.1:{NGINX_PORT}; root {0}/files; }} }}\n",
            folder.display()
        );
        std::fs::write(folder.join("nginx.conf"), config)?;
        let path = std::env::var("PATH").unwrap_or_default();
        let child = Command::new("nginx")
            .arg("-p")
            .arg(folder)
            .arg("-c")
            .arg(folder.join("nginx.conf"))
            .env("PATH", format!("{path}:/usr/sbin"))
            .stderr(Stdio::null())
            .spawn()
            .context("nginx is missing: scripts/setup bench installs it")?;
        let nginx = Self { address: format!("127.0.0.1:{NGINX_PORT}"), child };
        let started = Instant::now();
        while Connection::open(&nginx.address).await.is_err() {
            if started.elapsed() > Duration::from_secs(10) {
                bail!("nginx did not start: {}", std::fs::read_to_string(folder.join("log")).unwrap_or_default());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(nginx)
    }
}
