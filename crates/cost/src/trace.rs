//! What valgrind wrote down of a process's system calls.
//!
//! Every thread's calls stand in one file. A call that may block is written in two lines, what it is and how it ended, and
//! those of other threads may stand between them.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Counts of one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Calls {
    /// All of them but those for the time, which only a process under valgrind makes.
    pub(crate) all: u64,
    /// Waits for the disk.
    pub(crate) syncs: u64,
    /// Bytes written to files; what goes into sockets does not count.
    pub(crate) file_bytes: u64,
}

/// Outside of valgrind these are answered without a system call.
const CLOCKS: [&str; 3] = ["sys_clock_gettime", "sys_gettimeofday", "sys_time"];
const SYNCS: [&str; 4] = ["sys_fsync", "sys_fdatasync", "sys_sync_file_range", "sys_msync"];
const OPENS: [&str; 3] = ["sys_open", "sys_openat", "sys_creat"];
const WRITES: [&str; 5] = ["sys_write", "sys_pwrite64", "sys_writev", "sys_pwritev", "sys_pwritev2"];
/// `F_DUPFD` and `F_DUPFD_CLOEXEC`.
const COPY: [&str; 2] = ["0", "1030"];
const PREFIX: &str = "SYSCALL[";

/// A call that has not ended.
struct Open<'a> {
    name: &'a str,
    /// Its first argument, as a descriptor.
    descriptor: u64,
    /// Whether it makes another descriptor of the same file.
    is_copy: bool,
    counts: bool,
}

impl Calls {
    /// Reads the file from its start, to know which descriptors are files, and counts what stands in `window`.
    pub(crate) fn parse(text: &str, window: Range<usize>) -> Self {
        let mut found = Self::default();
        let mut open: HashMap<&str, Open<'_>> = HashMap::new();
        let mut files: HashSet<u64> = HashSet::new();
        let (mut at, mut thread) = (0, "");
        for line in text.split_inclusive('\n') {
            let counts = window.contains(&at);
            at += line.len();
            if let Some((who, what)) = line.strip_prefix(PREFIX).and_then(|rest| rest.split_once(')')) {
                thread = who.split(']').next().unwrap_or_default();
                let what = what.trim_start();
                if !what.starts_with("...") {
                    let call = begun(what, counts);
                    found.begin(&call);
                    open.insert(thread, call);
                }
            }
            if let Some(result) = success(line)
                && let Some(call) = open.remove(thread)
            {
                found.end(&call, result, &mut files);
            }
        }
        found
    }

    fn begin(&mut self, call: &Open<'_>) {
        if call.counts && !CLOCKS.contains(&call.name) {
            self.all += 1;
            self.syncs += u64::from(SYNCS.contains(&call.name));
        }
    }

    fn end(&mut self, call: &Open<'_>, result: u64, files: &mut HashSet<u64>) {
        let of_file = files.contains(&call.descriptor);
        if OPENS.contains(&call.name) || (of_file && call.is_copy) {
            files.insert(result);
        } else if call.name == "sys_close" {
            files.remove(&call.descriptor);
        } else if of_file && call.counts && WRITES.contains(&call.name) {
            self.file_bytes += result;
        }
    }
}

/// `sys_write ( 12, 0x54fbcb0, 63 ) --> …`
fn begun(what: &str, counts: bool) -> Open<'_> {
    let (name, rest) = what.split_once('(').unwrap_or((what, ""));
    let mut arguments = rest.split([',', ')']).map(str::trim);
    let descriptor = arguments.next().and_then(|first| first.parse().ok()).unwrap_or(u64::MAX);
    let name = name.trim();
    let is_copy =
        name.starts_with("sys_fcntl") && arguments.next().is_some_and(|second| COPY.contains(&second));
    Open { name, descriptor, is_copy, counts }
}

/// `… Success(0x3f)`; the result is in hexadecimal.
fn success(line: &str) -> Option<u64> {
    let (_, rest) = line.rsplit_once("Success(0x")?;
    u64::from_str_radix(rest.split([')', ':']).next()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str = "==1== Callgrind\n\
        SYSCALL[1,1](257) sys_openat ( 4294967196, 0x4036(/data/journal), 524288 ) --> [async] ... \n\
        SYSCALL[1,1](257) ... [async] --> Success(0x5) \n\
        SYSCALL[1,1](41) sys_socket ( 2, 1, 0 )[sync] --> Success(0x6) \n";
    const WINDOW: &str = "SYSCALL[1,2](1) sys_write ( 5, 0x54fb, 64 ) --> [async] ... \n\
        SYSCALL[1,3](1) sys_write ( 6, 0x54fb, 16 ) --> [async] ... \n\
        SYSCALL[1,2](1) ... [async] --> Success(0x40) \n\
        SYSCALL[1,3](1) ... [async] --> Success(0x10) \n\
        SYSCALL[1,2](228) sys_clock_gettime( 0, 0x64eb )[sync] --> Success(0x0) \n\
        SYSCALL[1,2](75) sys_fdatasync ( 5 ) --> [async] ... \n\
        SYSCALL[1,2](75) ... [async] --> Success(0x0) \n\
        SYSCALL[1,1](7) sys_poll ( 0x4f98, 1, 500 )\n --> [async] ... \n";

    #[test]
    fn files_are_told_from_sockets_and_clocks_do_not_count() {
        let text = format!("{START}{WINDOW}{WINDOW}");
        let window = START.len()..START.len() + WINDOW.len();
        assert_eq!(Calls::parse(&text, window), Calls { all: 4, syncs: 1, file_bytes: 64 });
    }

    #[test]
    fn a_descriptor_that_was_closed_is_no_file() {
        let closed = "SYSCALL[1,1](3) sys_close ( 5 )[sync] --> Success(0x0) \n";
        let text = format!("{START}{closed}{WINDOW}");
        assert_eq!(Calls::parse(&text, START.len()..text.len()).file_bytes, 0);
    }

    #[test]
    fn a_copy_of_a_descriptor_is_a_file_too() {
        let copied = "SYSCALL[1,1](72) sys_fcntl[ARG3=='arg'] ( 5, 1030, 3 )[sync] --> Success(0x6) \n";
        let text = format!("{START}{copied}{WINDOW}");
        assert_eq!(Calls::parse(&text, START.len()..text.len()).file_bytes, 64 + 16);
    }
}
