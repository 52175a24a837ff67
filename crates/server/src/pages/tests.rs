//! Holds the list of files to what is there, and the files to the policy they are served under.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;

fn files(folder: &Path, prefix: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            found.extend(files(&entry.path(), &format!("{name}/")));
        } else {
            found.insert(name);
        }
    }
    found
}

fn text(asset: &Asset) -> &'static str {
    std::str::from_utf8(asset.bytes).unwrap()
}

#[test]
fn every_file_is_served_and_nothing_else() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/pages/assets");
    let mut served: BTreeSet<_> = ASSETS.iter().map(|asset| asset.name.to_owned()).collect();
    assert_eq!(served.len(), ASSETS.len(), "a file is there twice");
    served.insert(SHELL.name.to_owned());
    assert_eq!(files(&folder, ""), served);
}

#[test]
fn whatever_a_file_loads_is_served() {
    let served: BTreeSet<_> = ASSETS.iter().map(|asset| format!("/assets/{}", asset.name)).collect();
    let mut loaded = 0;
    for asset in ASSETS.iter().chain([&SHELL]) {
        for part in text(asset).split('"').filter(|part| part.starts_with("/assets/")) {
            assert!(served.contains(part), "{} loads {part}, which is not served", asset.name);
            loaded += 1;
        }
    }
    assert!(loaded > ASSETS.len());
}

/// What is shown is put into the document as text. A script that could make markup of it has no place here, nor has
/// anything the policy would refuse.
#[test]
fn no_file_makes_markup_of_text_or_breaks_the_policy() {
    let forbidden = [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "DOMParser",
        "createContextualFragment",
        "srcdoc",
        "eval(",
        "new Function",
        "javascript:",
        " style=",
        " onclick=",
        "<script>",
        "<style",
        "http://",
        "https://",
    ];
    for asset in ASSETS.iter().chain([&SHELL]) {
        let text = text(asset).replace("http://www.w3.org/2000/svg", "");
        for word in forbidden {
            assert!(!text.contains(word), "{} has {word}", asset.name);
        }
    }
}

#[test]
fn a_tag_changes_with_the_content_and_only_with_it() {
    assert_eq!(tag_of(b"a"), tag_of(b"a"));
    assert_ne!(tag_of(b"a"), tag_of(b"b"));
    assert_eq!(tag_of(b"a").len(), TAG_DIGITS + 2);
}

#[test]
fn known_content_is_not_sent_again() {
    let tag = tag_of(SHELL.bytes);
    let asked = |known: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(IF_NONE_MATCH, HeaderValue::try_from(known).unwrap());
        answer(&SHELL, &tag, &headers).status()
    };
    assert_eq!(answer(&SHELL, &tag, &HeaderMap::new()).status(), StatusCode::OK);
    assert_eq!(asked("\"other\""), StatusCode::OK);
    assert_eq!(asked(&format!("\"other\", {}", tag.to_str().unwrap())), StatusCode::NOT_MODIFIED);
    assert_eq!(asked(&format!("W/{}", tag.to_str().unwrap())), StatusCode::NOT_MODIFIED);
}
