//! A program on a terminal of its own: what it draws, what is typed, and whether the terminal is as it was afterwards.
#![allow(dead_code, reason = "each program uses its own part")]

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, OutputModes, Termios, Winsize, tcgetattr, tcsetwinsize};

/// The terminal, and the program on it.
pub(crate) struct Terminal {
    keys: File,
    /// The program's end, kept open so that its settings can be looked at.
    other_end: File,
    before: Termios,
    drawn: Arc<Mutex<Vec<u8>>>,
    child: Child,
}

impl Terminal {
    /// Starts the program on a terminal of that size.
    pub(crate) fn start(command: &mut Command, columns: u16, rows: u16) -> Self {
        let master: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let other_end = OpenOptions::new().read(true).write(true).open(name).unwrap();
        tcsetwinsize(&master, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let before = tcgetattr(&other_end).unwrap();
        let end = || Stdio::from(other_end.try_clone().unwrap());
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let keys = File::from(master);
        let drawn = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, log) = (keys.try_clone().unwrap(), Arc::clone(&drawn));
        std::thread::spawn(move || {
            let mut buffer = [0; 4_096];
            while let Ok(count) = reader.read(&mut buffer) {
                log.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Self { keys, other_end, before, drawn, child }
    }

    /// Everything drawn so far, codes and all.
    pub(crate) fn raw(&self) -> String {
        String::from_utf8_lossy(&self.drawn.lock().unwrap()).into_owned()
    }

    /// The text of it.
    pub(crate) fn text(&self) -> String {
        without_codes(&self.raw())
    }

    pub(crate) fn press(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the program's end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Echo, line editing, signals and line ends are what they were.
    pub(crate) fn is_as_it_was(&self) -> bool {
        let now = tcgetattr(&self.other_end).unwrap();
        let modes =
            |termios: &Termios| -> (LocalModes, OutputModes) { (termios.local_modes, termios.output_modes) };
        modes(&now) == modes(&self.before) && now.input_modes == self.before.input_modes
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Only this test's own child; an error means it is gone already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The text without what moves the cursor and colours.
pub(crate) fn without_codes(raw: &str) -> String {
    let mut text = String::new();
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        if c != '\u{1b}' {
            text.push(c);
            continue;
        }
        if chars.next() == Some('[') {
            // A new place on the screen is as good as a new line.
            if chars.by_ref().find(|c| c.is_ascii_alphabetic()) == Some('H') {
                text.push('\n');
            }
        }
    }
    text
}
