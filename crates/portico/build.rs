//! Embeds the built web app: `web/dist`, if it exists, becomes a list of paths and bytes.
//!
//! The server builds and works without it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let dist = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or(io::ErrorKind::NotFound)?).join("../../web/dist");
    // A path that does not exist yet counts as changed at each build, so a later build of the web
    // app is picked up
    println!("cargo:rerun-if-changed={}", dist.display());
    println!("cargo:rerun-if-changed=build.rs");
    let mut files = Vec::new();
    if dist.join("index.html").is_file() {
        collect(&dist, &mut files)?;
    }
    files.sort();
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    // Copies, because the folder may be rebuilt while the program is being compiled
    let copies = out.join("web");
    if copies.exists() {
        fs::remove_dir_all(&copies)?;
    }
    let mut source = String::from("&[\n");
    for file in &files {
        let name = file.strip_prefix(&dist).map_err(io::Error::other)?;
        let copy = copies.join(name);
        fs::create_dir_all(copy.parent().unwrap_or(&copies))?;
        fs::copy(file, &copy)?;
        let _ = writeln!(source, "    ({:?}, include_bytes!({:?}) as &[u8]),", name.display().to_string(), copy);
    }
    source.push_str("]\n");
    fs::write(out.join("web_files.rs"), source)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if hidden {
            continue;
        }
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
