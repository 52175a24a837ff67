//! Laying out JSON without reading it: every number, escape and key stays byte for byte what the server sent.

/// Spreads a document over lines, two spaces per level.
pub(crate) fn pretty(document: &str) -> String {
    lay_out(document, true)
}

/// Brings a document onto one line.
pub(crate) fn compact(document: &str) -> String {
    lay_out(document, false)
}

fn lay_out(document: &str, spread: bool) -> String {
    let mut text = String::with_capacity(document.len() * 2);
    let mut depth = 0_usize;
    // Just after an opening bracket: whether a line follows depends on what comes next.
    let mut opened = false;
    let mut chars = document.chars();
    while let Some(c) = chars.next() {
        if c.is_ascii_whitespace() {
            continue;
        }
        let closes = matches!(c, '}' | ']');
        if closes {
            depth = depth.saturating_sub(1);
        }
        if opened != closes {
            break_line(&mut text, depth, spread);
        }
        opened = matches!(c, '{' | '[');
        text.push(c);
        match c {
            '"' => copy_string(&mut chars, &mut text),
            '{' | '[' => depth += 1,
            ',' => break_line(&mut text, depth, spread),
            ':' if spread => text.push(' '),
            _ => {}
        }
    }
    text
}

/// Copies the rest of a string, up to and with its closing quote.
fn copy_string(chars: &mut std::str::Chars<'_>, text: &mut String) {
    while let Some(c) = chars.next() {
        text.push(c);
        match c {
            '\\' => text.extend(chars.next()),
            '"' => return,
            _ => {}
        }
    }
}

fn break_line(text: &mut String, depth: usize, spread: bool) {
    if spread {
        text.push('\n');
        text.extend(std::iter::repeat_n("  ", depth));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_space_changes() {
        let document = r#"{ "b":[1.50,1e400 , {}], "a\"{":"x : ,\\", "e" : [ ] }"#;
        let spread = "{\n  \"b\": [\n    1.50,\n    1e400,\n    {}\n  ],\n  \"a\\\"{\": \"x : ,\\\\\",\n  \"e\": []\n}";
        assert_eq!(pretty(document), spread);
        assert_eq!(compact(document), r#"{"b":[1.50,1e400,{}],"a\"{":"x : ,\\","e":[]}"#);
        assert_eq!(compact(spread), compact(document));
    }
}
