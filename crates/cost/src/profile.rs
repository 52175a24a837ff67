//! What callgrind wrote down: how many instructions were executed, and how often the allocator was called.

use std::collections::HashMap;

use anyhow::{Context, ensure};

/// What hands out memory. A call between two of these is the allocator's own business.
const ALLOCATORS: [&str; 15] = [
    "mi_malloc",
    "mi_malloc_small",
    "mi_malloc_aligned",
    "mi_zalloc",
    "mi_zalloc_small",
    "mi_zalloc_aligned",
    "mi_calloc",
    "mi_realloc",
    "mi_realloc_aligned",
    "malloc",
    "calloc",
    "realloc",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
];

/// The sums of one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Profile {
    /// Instructions, of all threads.
    pub(crate) instructions: u64,
    /// Pieces of memory asked for, or asked to be moved into a larger one.
    pub(crate) allocations: u64,
}

impl Profile {
    /// Reads callgrind's own format. A line of costs belongs to the function that was named last, unless a call was named
    /// right before it: then it says what the call cost, which the callee's own lines say as well.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut names: HashMap<&str, &str> = HashMap::new();
        let (mut caller, mut callee) = ("", "");
        let (mut found, mut is_call) = (Self::default(), false);
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("fn=") {
                caller = named(&mut names, name);
            } else if let Some(name) = line.strip_prefix("cfn=") {
                callee = named(&mut names, name);
            } else if let Some(call) = line.strip_prefix("calls=") {
                if is_allocator(callee) && !is_allocators_own(caller) {
                    let count = call.split(' ').next().unwrap_or_default();
                    found.allocations +=
                        count.parse::<u64>().with_context(|| format!("a call of {line:?}"))?;
                }
                is_call = true;
            } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
                if !is_call {
                    let cost = line.rsplit(' ').next().unwrap_or_default();
                    found.instructions +=
                        cost.parse::<u64>().with_context(|| format!("a cost of {line:?}"))?;
                }
                is_call = false;
            }
        }
        ensure!(text.contains("\ntotals: "), "it is not whole");
        Ok(found)
    }
}

/// A name is written out once, behind a number that stands for it afterwards.
fn named<'a>(names: &mut HashMap<&'a str, &'a str>, text: &'a str) -> &'a str {
    match text.split_once(' ') {
        Some((number, name)) => {
            names.insert(number, name);
            name
        }
        None => names.get(text).copied().unwrap_or(text),
    }
}

/// Callgrind adds the depth to the name of a function that calls itself.
fn plain(name: &str) -> &str {
    name.split('\'').next().unwrap_or(name)
}

fn is_allocator(name: &str) -> bool {
    ALLOCATORS.contains(&plain(name))
}

fn is_allocators_own(name: &str) -> bool {
    is_allocator(name) || name.starts_with("mi_") || name.starts_with("_mi_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "version: 1\nevents: Ir\nsummary: 9\n\nfl=(1) a.rs\nfn=(1) work\n0 100\n\
        cfn=(2) mi_malloc_aligned\ncalls=7 0\n0 70\ncfn=(3) rest\ncalls=2 0\n0 5\n+3 11\n\n\
        fn=(2)\n0 50\ncfn=(4) mi_malloc\ncalls=7 0\n0 20\n\nfn=(4)\n0 20\n\nfn=(3)\n0 5\n\
        cfn=(2)\ncalls=1 0\n0 10\ntotals: 186\n";

    #[test]
    fn costs_of_calls_are_not_counted_twice() {
        assert_eq!(Profile::parse(TEXT).unwrap().instructions, 100 + 11 + 50 + 20 + 5);
    }

    #[test]
    fn the_allocator_is_counted_where_others_call_it() {
        assert_eq!(Profile::parse(TEXT).unwrap().allocations, 7 + 1);
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        assert!(Profile::parse("events: Ir\nfn=(1) work\n0 100\n").is_err());
    }
}
