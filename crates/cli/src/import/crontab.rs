//! A user's crontab, line by line: entries with the environment they stand under, and what is no entry.
//!
//! As cron has it: a line whose first character is `#` is a comment; `NAME = value` sets the environment of the
//! entries below; everything else is five fields, or a nickname, and a command to the end of the line, in which `%`
//! is a line break unless it stands after a backslash.

use std::collections::BTreeMap;

/// What became of a crontab.
#[derive(Debug, Default)]
pub(super) struct Crontab {
    /// Its entries.
    pub(super) entries: Vec<CronLine>,
    /// Lines that mean something that is not carried over.
    pub(super) lost: Vec<Lost>,
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CronLine {
    /// Which line, from 1.
    pub(super) line: usize,
    /// The line itself.
    pub(super) text: String,
    /// When: five fields, or a nickname.
    pub(super) cron: String,
    /// What.
    pub(super) command: String,
    /// The environment it runs in.
    pub(super) env: BTreeMap<String, String>,
    /// The zone its times are in, if a line above says so.
    pub(super) timezone: Option<String>,
    /// Minutes its start may be put off, if a line above says so.
    pub(super) random_delay_minutes: Option<u32>,
}

/// A line that is not carried over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lost {
    /// Which line, from 1.
    pub(super) line: usize,
    /// The line itself.
    pub(super) text: String,
    /// Why, and what to do about it.
    pub(super) why: String,
}

/// Sets the zone of the entries below.
const ZONE: &str = "CRON_TZ";
/// Puts off the entries below by up to so many minutes.
const RANDOM_DELAY: &str = "RANDOM_DELAY";
/// What runs the commands below.
const SHELL: &str = "SHELL";
/// Where cron sends what commands print, and how.
const MAIL: [&str; 4] = ["MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING"];
/// What other crons know beside the usual nicknames.
const EVERY_MINUTE: (&str, &str) = ("@every_minute", "* * * * *");
/// Accounts that a system's crontab names between times and command, where a user's has none; only such as are no
/// commands, too.
const ACCOUNTS: [&str; 5] = ["root", "www-data", "nobody", "daemon", "postgres"];

/// Whose crontab it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A user's, as `crontab -l` shows it.
    User,
    /// The system's, in which each entry says who runs it.
    System,
}

#[derive(Debug, Default, Clone)]
struct Setting {
    env: BTreeMap<String, String>,
    timezone: Option<String>,
    random_delay_minutes: Option<u32>,
}

/// Reads a crontab.
pub(super) fn read(text: &str, owner: Owner) -> Crontab {
    let mut crontab = Crontab::default();
    let mut setting = Setting::default();
    for (index, text) in text.lines().enumerate() {
        let (line, trimmed) = (index + 1, text.trim());
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        let result = match assignment(trimmed) {
            Some((name, value)) => setting.set(&name, value),
            None => entry(trimmed, owner).map(|(cron, command)| {
                let Setting { env, timezone, random_delay_minutes } = setting.clone();
                let text = trimmed.to_owned();
                crontab.entries.push(CronLine {
                    line,
                    text,
                    cron,
                    command,
                    env,
                    timezone,
                    random_delay_minutes,
                });
            }),
        };
        if let Err(why) = result {
            crontab.lost.push(Lost { line, text: trimmed.to_owned(), why });
        }
    }
    crontab
}

impl Setting {
    fn set(&mut self, name: &str, value: String) -> Result<(), String> {
        if MAIL.contains(&name) {
            // No mail is what happens anyway.
            if name == MAIL[0] && value.is_empty() {
                return Ok(());
            }
            return Err("no mail is sent: watch the jobs, or let the command send it".to_owned());
        }
        if name == ZONE {
            self.timezone = (!value.is_empty()).then_some(value);
            return Ok(());
        }
        if name == RANDOM_DELAY {
            let minutes = value.parse().map_err(|_| "the delay is not a number of minutes".to_owned())?;
            self.random_delay_minutes = Some(minutes).filter(|minutes| *minutes > 0);
            return Ok(());
        }
        if name == SHELL && !value.starts_with('/') {
            return Err(
                "a shell is named by its whole path, such as /bin/bash; without it, /bin/sh runs the commands"
                    .to_owned(),
            );
        }
        self.env.insert(name.to_owned(), value);
        Ok(())
    }
}

/// `NAME = value`, either in quotes or not.
fn assignment(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once('=')?;
    let name = unquoted(name.trim());
    let plain =
        |(index, c): (usize, char)| c == '_' || c.is_ascii_alphabetic() || index > 0 && c.is_ascii_digit();
    let is_name = !name.is_empty() && name.char_indices().all(plain);
    is_name.then(|| (name.to_owned(), unquoted(value.trim()).to_owned()))
}

fn unquoted(text: &str) -> &str {
    let inner = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

/// When, and what.
fn entry(line: &str, owner: Owner) -> Result<(String, String), String> {
    // Some crons take a dash for "do not log this".
    let line = line.strip_prefix('-').unwrap_or(line);
    let (cron, command) = if line.starts_with('@') {
        let (nickname, command) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        (nickname_meaning(nickname)?, command.trim_start())
    } else {
        five_fields(line)?
    };
    if command.is_empty() {
        return Err("there is no command".to_owned());
    }
    if owner == Owner::System || begins_with_account(command) {
        return Err(
            "a user stands before the command, as in a system's crontab: take it out; who runs a command is \
                    up to the worker of its queue"
                .to_owned(),
        );
    }
    let command = unescaped(command)?;
    Ok((cron, command))
}

fn begins_with_account(command: &str) -> bool {
    let mut words = command.split_whitespace();
    let is_account = words.next().is_some_and(|word| ACCOUNTS.contains(&word));
    // What is followed by an option is a command after all.
    is_account && words.next().is_some_and(|word| !word.starts_with('-'))
}

fn nickname_meaning(nickname: &str) -> Result<String, String> {
    if nickname.eq_ignore_ascii_case("@reboot") {
        return Err("a schedule knows no start of a machine: let the machine's own services do it".to_owned());
    }
    if nickname.eq_ignore_ascii_case(EVERY_MINUTE.0) {
        return Ok(EVERY_MINUTE.1.to_owned());
    }
    Ok(nickname.to_ascii_lowercase())
}

/// The first five words, and what follows them.
fn five_fields(line: &str) -> Result<(String, &str), String> {
    let mut rest = line;
    let mut fields = Vec::new();
    for _ in 0..5 {
        let (field, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        if field.is_empty() {
            return Err("there are fewer than five fields".to_owned());
        }
        fields.push(field);
        rest = after.trim_start();
    }
    if let [_, _, day, _, weekday] = fields.as_slice()
        && days_are_anded(day, weekday)
    {
        return Err(
            "cron fires here when day of month and day of week both match, because one begins with *; a \
                    schedule fires when either does: name the days"
                .to_owned(),
        );
    }
    Ok((fields.join(" "), rest))
}

/// Cron ands the two day fields when one begins with `*`, schedules only when one is all days: where the two
/// differ, an entry would change its meaning without a word.
fn days_are_anded(day: &str, weekday: &str) -> bool {
    let is_all = |field: &str| field.split(',').any(|item| matches!(item, "*" | "*/1"));
    let starred = |field: &str| field.starts_with('*');
    (starred(day) || starred(weekday)) && !is_all(day) && !is_all(weekday)
}

/// The command as the shell gets it. What stands after a bare `%` is the command's input.
fn unescaped(command: &str) -> Result<String, String> {
    let mut text = String::with_capacity(command.len());
    let mut chars = command.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek() == Some(&'%') => text.extend(chars.next()),
            '%' => {
                return Err(
                    "% gives the command an input, which is not carried over: write \\% for the character, \
                            or let the shell pipe the input in"
                        .to_owned(),
                );
            }
            c => text.push(c),
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
# m h dom mon dow command
SHELL=/bin/bash
PATH = \"/usr/bin:/bin\"
MAILTO=ops@example.com

  17 *  * * *   cd / && ./hourly   # not a comment for cron
CRON_TZ=America/New_York
0 9 * * MON-FRI\t/usr/local/bin/report --day \"$(date +\\%F)\" A=B
TZ=Asia/Tokyo
@Daily backup.sh
@reboot start.sh
@every_minute tick
0 0 */2 * 1 odd-mondays
30 4 1,15 * 5 either
5 5 * * * cat%input
10 5 * * * root run-parts /etc/cron.daily
1 2 3
MAILTO=\"\"
RANDOM_DELAY=30
0 1 * * * late
";

    #[test]
    fn entries_carry_the_environment_above_them() {
        let crontab = read(SAMPLE, Owner::User);
        let seen: Vec<(usize, &str, &str)> =
            crontab.entries.iter().map(|e| (e.line, e.cron.as_str(), e.command.as_str())).collect();
        assert_eq!(
            seen,
            [
                (6, "17 * * * *", "cd / && ./hourly   # not a comment for cron"),
                (8, "0 9 * * MON-FRI", "/usr/local/bin/report --day \"$(date +%F)\" A=B"),
                (10, "@daily", "backup.sh"),
                (12, "* * * * *", "tick"),
                (14, "30 4 1,15 * 5", "either"),
                (20, "0 1 * * *", "late"),
            ]
        );
        let [first, second, third, ..] = crontab.entries.as_slice() else { panic!("{crontab:?}") };
        assert_eq!(first.env.get("PATH").map(String::as_str), Some("/usr/bin:/bin"));
        assert_eq!((first.timezone.as_deref(), first.env.contains_key("TZ")), (None, false));
        assert_eq!(second.timezone.as_deref(), Some("America/New_York"));
        // As in cron, TZ is the command's, and moves no entry.
        assert_eq!(third.timezone.as_deref(), Some("America/New_York"));
        assert_eq!(third.env.get("TZ").map(String::as_str), Some("Asia/Tokyo"));
        assert_eq!(crontab.entries.last().and_then(|last| last.random_delay_minutes), Some(30));
    }

    #[test]
    fn what_is_lost_is_told_with_its_line() {
        let lost: Vec<(usize, String)> =
            read(SAMPLE, Owner::User).lost.into_iter().map(|lost| (lost.line, lost.why)).collect();
        let lines: Vec<usize> = lost.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [4, 11, 13, 15, 16, 17], "{lost:?}");
        for (line, word) in [
            (4, "mail"),
            (11, "start of a machine"),
            (13, "both match"),
            (15, "input"),
            (16, "a user stands"),
        ] {
            assert!(
                lost.iter().any(|(at, why)| *at == line && why.contains(word)),
                "{line} {word}: {lost:?}"
            );
        }
    }

    #[test]
    fn a_shell_is_carried_over_if_a_worker_can_find_it() {
        let crontab = read("SHELL=/bin/bash\nSHELL=fish\n@daily x\n", Owner::User);
        let lines: Vec<usize> = crontab.lost.iter().map(|lost| lost.line).collect();
        assert_eq!(lines, [2], "{crontab:?}");
        assert_eq!(crontab.entries[0].env.get(SHELL).map(String::as_str), Some("/bin/bash"));
    }

    #[test]
    fn a_command_is_not_taken_for_a_user() {
        let fine = "@daily backup all\n@daily mysql -e x\n@daily root -b\n@daily root\n@daily git gc\n@daily nginx -s reload\n";
        let user = read(fine, Owner::User);
        assert_eq!((user.entries.len(), user.lost), (6, Vec::new()));
        assert_eq!(read(fine, Owner::System).lost.len(), 6, "there, the first word is a user whatever it is");
    }

    #[test]
    fn every_line_is_an_entry_a_setting_or_lost() {
        for text in
            ["@", "=", "= x", "1 2 3 4 5", "* * * * *", "%", "@daily", "\u{feff}x", "\0", "-", "''=1", "é=1"]
        {
            let crontab = read(text, Owner::User);
            assert_eq!(crontab.entries.len() + crontab.lost.len(), 1, "{text:?}: {crontab:?}");
        }
        assert!(read("A=1\n'B' = 2\n#x\n\n", Owner::User).lost.is_empty());
    }
}
