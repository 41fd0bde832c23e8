//! The text of a `.properties` file as entries with their lines.
//!
//! Pure. Owns duplicates and the `${provider:key}` notation; the grammar is the crate java-properties'. Does not own what keys
//! mean, nor where `${…}` finds its values. Source: `java.util.Properties`; KIP-297 (config providers).

use std::collections::BTreeMap;

use java_properties::{LineContent, PropertiesIter};

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) value: String,
    /// 1-based.
    pub(super) line: usize,
    /// The line of an earlier entry of that key, which this one replaces.
    pub(super) replaces: Option<usize>,
}

/// The entries in the order of the text, the last of each key only. The error is a line and what is wrong there.
pub(super) fn parse(text: &[u8]) -> Result<Vec<Entry>, (Option<usize>, String)> {
    // The crate assumes Latin-1, as Java once did; Kafka's files are UTF-8 today. Text outside ASCII is written as \u escapes
    // first, so that both say the same.
    let text = std::str::from_utf8(text).map_err(|error| {
        let line = text[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
        (Some(line), "not UTF-8 text".to_owned())
    })?;
    let mut entries: Vec<Entry> = Vec::new();
    for line in PropertiesIter::new(escape_non_ascii(text).as_bytes()) {
        let line = line.map_err(|error| (error.line_number(), error.to_string()))?;
        let number = line.line_number();
        if let LineContent::KVPair(key, value) = line.consume_content() {
            if key.is_empty() {
                return Err((Some(number), "a value without a key".to_owned()));
            }
            let replaces = entries.iter().position(|entry| entry.key == key).map(|index| entries.remove(index).line);
            entries.push(Entry { key, value, line: number, replaces });
        }
    }
    Ok(entries)
}

fn escape_non_ascii(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.trim_start_matches('\u{feff}').chars() {
        if letter.is_ascii() {
            escaped.push(letter);
        } else {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    escaped
}

/// Where a `${…}` points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reference<'a> {
    /// `${env:NAME}`
    Env(&'a str),
    /// `${file:/path:key}`
    File { path: &'a str, key: &'a str },
}

/// Replaces each `${env:…}` and `${file:…:…}` by what `find` says. Other `${…}` stay as they are, as in Kafka.
pub(super) fn expand(
    value: &str,
    mut find: impl FnMut(Reference<'_>) -> Result<String, String>,
) -> Result<String, String> {
    let mut expanded = String::new();
    let mut rest = value;
    while let Some(start) = rest.find("${") {
        let (before, from) = rest.split_at(start);
        expanded.push_str(before);
        let Some(end) = from.find('}') else {
            rest = from;
            break;
        };
        let (whole, after) = from.split_at(end + 1);
        match reference(&whole[2..end]) {
            Some(reference) => expanded.push_str(&find(reference)?),
            None => expanded.push_str(whole),
        }
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn reference(inside: &str) -> Option<Reference<'_>> {
    match inside.split_once(':')? {
        ("env", name) => Some(Reference::Env(name)),
        ("file", place) => place.rsplit_once(':').map(|(path, key)| Reference::File { path, key }),
        _ => None,
    }
}

/// The value of `key` in a properties text.
pub(super) fn lookup(text: &[u8], key: &str) -> Option<String> {
    let entries: BTreeMap<String, String> =
        parse(text).ok()?.into_iter().map(|entry| (entry.key, entry.value)).collect();
    entries.get(key).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_lines_and_the_last_of_a_key_wins() {
        let text = "# a comment\nnode.id=1\n! another\nlog.dirs = /a,\\\n   /b\n\nbroker.rack: größe\nnode.id 2\n";
        let entry =
            |key: &str, value: &str, line, replaces| Entry { key: key.into(), value: value.into(), line, replaces };
        assert_eq!(
            parse(text.as_bytes()),
            Ok(vec![
                entry("log.dirs", "/a,/b", 4, None),
                entry("broker.rack", "größe", 7, None),
                entry("node.id", "2", 8, Some(2)),
            ])
        );
    }

    #[test]
    fn bad_text_is_refused_with_its_line() {
        assert_eq!(parse(b"a=1\nb=\xff\n").map_err(|(line, _)| line), Err(Some(2)));
        assert_eq!(parse(b"a=1\n\nb=\\u12\n").map_err(|(line, _)| line), Err(Some(3)));
        assert_eq!(parse(b"=1\n").map_err(|(line, _)| line), Err(Some(1)));
    }

    #[test]
    fn references_are_replaced_and_others_left() {
        let find = |reference: Reference<'_>| match reference {
            Reference::Env("HOME") => Ok("/h".to_owned()),
            Reference::File { path: "/run/s", key: "k" } => Ok("v".to_owned()),
            other => Err(format!("{other:?}")),
        };
        assert_eq!(
            expand("${env:HOME}/data-${file:/run/s:k}-${vault:x:y}-${open", find),
            Ok("/h/data-v-${vault:x:y}-${open".to_owned())
        );
        assert_eq!(expand("${env:NOT}", find), Err("Env(\"NOT\")".to_owned()));
    }
}
