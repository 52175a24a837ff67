//! Rules of the repository that no compiler checks.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && name != "target" && name != "node_modules" {
            found.extend(files(&path, ending));
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn core_is_pure() {
    let core = root().join("crates/core");
    let manifest = read(&core.join("Cargo.toml"));
    let dependencies = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    for runtime in ["tokio", "async", "futures", "hyper", "axum", "fjall", "getrandom", "rand"] {
        assert!(!dependencies.contains(runtime), "core depends on {runtime}");
    }
    for path in files(&core.join("src"), ".rs") {
        let text = read(&path);
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for word in
                ["async fn", "async move", ".await", "std::fs", "std::net", "std::thread", "SystemTime"]
            {
                assert!(!line.contains(word), "{}: {line}", path.display());
            }
        }
    }
}

#[test]
fn the_server_names_no_store() {
    let manifest = read(&root().join("crates/server/Cargo.toml"));
    let stores = manifest.lines().filter(|line| line.starts_with("tidewheel-store-"));
    let named: Vec<_> = stores.filter(|line| !line.starts_with("tidewheel-store-testkit")).collect();
    assert!(named.is_empty(), "the server takes a Store; the binary chooses one: {named:?}");
}

#[test]
fn links_in_the_documents_resolve() {
    let root = root();
    for path in files(&root, ".md") {
        let text = read(&path);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap();
            if target.is_empty() || target.contains("://") || target.contains(' ') {
                continue;
            }
            let file = path.parent().unwrap().join(target);
            assert!(file.exists(), "{} links to {link}, which is not there", path.display());
        }
    }
}

#[test]
fn every_promise_names_a_test_that_exists() {
    let root = root();
    let tests: Vec<(String, String)> = files(&root.join("crates"), ".rs")
        .iter()
        .map(|path| (path.strip_prefix(&root).unwrap().display().to_string(), read(path)))
        .collect();
    let [guarantees, security] =
        ["docs/guarantees.md", "docs/security.md"].map(|page| read(&root.join(page)));
    let tried = security.split("\n## ").find(|part| part.starts_with("What has been tried\n")).unwrap();
    let rows = |page| str::lines(page).filter(|line| line.starts_with('|')).skip(2);
    let mut named = 0;
    for row in rows(&guarantees).chain(rows(tried)) {
        let cell = row.trim_end_matches('|').rsplit('|').next().unwrap();
        let names: Vec<&str> =
            cell.split('`').skip(1).step_by(2).filter(|name| name.contains("::")).collect();
        assert!(!names.is_empty(), "no test is named: {row}");
        for name in names {
            let (modules, function) = name.rsplit_once("::").unwrap();
            let start = format!("fn {function}(");
            let is_it = |(path, text): &(String, String)| {
                let parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
                modules.split("::").all(|module| parts.contains(&module)) && text.contains(&start)
            };
            assert!(tests.iter().any(is_it), "there is no test {name}: {row}");
            named += 1;
        }
    }
    assert!(named > 10);
}

/// The page is made from the codes themselves; `INSTA_UPDATE=always` writes it anew.
#[test]
fn every_error_code_has_its_paragraph() {
    use std::fmt::Write as _;
    let path = root().join("docs/errors.md");
    let mut page = String::from(
        "# Errors\n\nEvery refusal is a problem document (RFC 9457) with one of these codes in `code`. Codes are stable.\n",
    );
    for code in tidewheel_api::wire::fault::Code::ALL {
        let (name, status) = (code.as_str(), code.status());
        write!(page, "\n## `{name}`\n\n{status}: {}. {}\n", code.title(), code.explanation().trim()).unwrap();
    }
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        fs::write(&path, &page).unwrap();
    }
    assert_eq!(read(&path), page, "make it anew: INSTA_UPDATE=always cargo test --test it tidy");
}

#[test]
fn the_readme_is_short_and_the_code_has_no_loose_ends() {
    let root = root();
    assert!(read(&root.join("README.md")).lines().count() <= 120);
    let loose = ["TODO", "FIXME", "XXX", "todo!(", "unimplemented!("];
    for path in files(&root.join("crates"), ".rs") {
        if path.ends_with("tidy.rs") {
            continue;
        }
        let text = read(&path);
        for word in loose {
            assert!(!text.contains(word), "{} has a {word}", path.display());
        }
    }
}
