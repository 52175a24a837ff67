//! The code made from `proto/` stands in the source tree, so that a build needs no compiler of protocol buffers. This test
//! makes it anew and compares. `TIDEWHEEL_GENERATE=1 cargo test -p tidewheel-api --test it generated` writes it.

use std::fs;
use std::path::Path;

use super::generate;

#[test]
fn the_code_in_the_tree_is_that_of_the_protos() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let kept = root.join("src/proto/generated");
    let made = tempfile::tempdir().unwrap();
    generate::run(&root.join("proto"), made.path());
    let names = |folder: &Path| {
        let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
        let mut names: Vec<_> = files.collect();
        names.sort();
        names
    };
    let write = std::env::var_os("TIDEWHEEL_GENERATE").is_some();
    for name in names(made.path()) {
        let new = fs::read(made.path().join(&name)).unwrap();
        if write {
            fs::write(kept.join(&name), new).unwrap();
        } else if fs::read(kept.join(&name)).ok().is_none_or(|old| old != new) {
            panic!(
                "{} is not what proto/ makes: run TIDEWHEEL_GENERATE=1 cargo test -p tidewheel-api --test it generated",
                kept.join(&name).display()
            );
        }
    }
    assert_eq!(names(&kept), names(made.path()), "a file that nothing makes any more");
}
