//! The README's commands, run as they stand there against a real server.

use crate::docs::page::{Block, Session, agrees, blocks, root};
use crate::harness::TIDEWHEEL;

/// Runs a block's commands, which have to succeed.
fn run(session: &mut Session, commands: &str) -> String {
    let (code, printed) = session.run(commands);
    assert_eq!(code, 0, "{commands}: {printed}");
    printed
}

fn assert_prints(shown: &Block, printed: &str) {
    assert!(
        agrees(&shown.text, printed, false),
        "{}\nshould print\n{}\nbut prints\n{printed}",
        shown.place,
        shown.text
    );
}

#[test]
fn the_quick_start_does_what_it_says() {
    let readme = blocks(&root().join("README.md"));
    let of = |language: &str| readme.iter().filter(|block| block.language == language).collect::<Vec<_>>();
    let commands = of("sh");
    assert_eq!(commands[0].text.trim(), "cargo run --release -- serve");
    let mut session = Session::start();
    let answer = run(&mut session, &commands[1].text);
    assert_prints(of("json")[0], &answer);
    let id = answer.split('"').find(|word| word.starts_with("job_")).unwrap();
    let named = commands[2].text.split_whitespace().find(|word| word.starts_with("job_")).unwrap();
    let watch = commands[2].text.replace(named, id).replace("target/release/tidewheel", TIDEWHEEL);
    let watched = run(&mut session, &watch);
    // Whoever looks between the due instant and the start sees that as well; most do not.
    let without_the_turn: String =
        watched.split_inclusive('\n').filter(|line| !line.contains("  ready  ")).collect();
    assert_prints(of("text")[0], &without_the_turn);
}
