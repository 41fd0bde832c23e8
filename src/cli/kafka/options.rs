//! Kafka's ways with command lines: options with long names, `--name value` or `--name=value`, and what its tools say to wrong ones.
//!
//! Pure. Owns the reading of arguments against a table of flags and the page of help made of it. Two manners exist among
//! Kafka's tools, of the libraries they are built with: [`Manner::Plain`] (most) and [`Manner::Usage`] (perf producer, cluster,
//! verifiable clients), which differ in their messages. Always: an option is only known by its full name; an option that takes
//! a value takes the next word whatever it is. Source: the tools of Kafka 4.4, asked.

use std::fmt::Write as _;

/// Whether an option has a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Takes {
    /// It is there or not.
    Nothing,
    /// The next word is its value.
    Value(&'static str),
    /// The next word is its value unless it looks like an option.
    Maybe(&'static str),
    /// All words up to the next option are its values.
    Many(&'static str),
}

/// One option of a tool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flag {
    /// Without dashes.
    pub(super) name: &'static str,
    /// The letter that means the same, where the tool has one.
    pub(super) letter: Option<char>,
    pub(super) takes: Takes,
    /// For the help page.
    pub(super) doc: &'static str,
}

/// How a tool reads and complains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Manner {
    /// Unknown options and missing values, in the words of most tools; words that are no options are passed over.
    Plain,
    /// The words of the tools that print `usage:`; words that are no options are refused.
    Usage,
}

/// An option that is there or not.
pub(super) const fn switch(name: &'static str, doc: &'static str) -> Flag {
    Flag { name, letter: None, takes: Takes::Nothing, doc }
}

/// An option with a value.
pub(super) const fn value(name: &'static str, kind: &'static str, doc: &'static str) -> Flag {
    Flag { name, letter: None, takes: Takes::Value(kind), doc }
}

/// An option whose value may be left out.
pub(super) const fn maybe(name: &'static str, kind: &'static str, doc: &'static str) -> Flag {
    Flag { name, letter: None, takes: Takes::Maybe(kind), doc }
}

/// An option with any number of values.
pub(super) const fn many(name: &'static str, kind: &'static str, doc: &'static str) -> Flag {
    Flag { name, letter: None, takes: Takes::Many(kind), doc }
}

impl Flag {
    pub(super) const fn or(mut self, letter: char) -> Self {
        self.letter = Some(letter);
        self
    }
}

/// What was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    given: Vec<(&'static str, Option<String>)>,
    /// Words that belong to no option.
    pub(super) free: Vec<String>,
}

/// Reads `args`. The error is what the tool would say.
pub(super) fn parse(flags: &[Flag], manner: Manner, args: &[String]) -> Result<Words, String> {
    let mut words = Words::default();
    let mut rest = args.iter().peekable();
    while let Some(word) = rest.next() {
        let (name, joined) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (word.as_str(), None),
        };
        if word == "--" && manner == Manner::Plain {
            words.free.extend(rest.by_ref().cloned());
            break;
        }
        let Some(flag) = find(flags, name) else {
            if looks_like_an_option(word) {
                return Err(unknown(name, manner, flags));
            }
            words.free.push(word.clone());
            continue;
        };
        let next_is_value = |next: &&String| match manner {
            Manner::Plain => !looks_like_an_option(next),
            Manner::Usage => !looks_like_an_option(next) || next.parse::<f64>().is_ok(),
        };
        match (flag.takes, joined) {
            (Takes::Nothing, None) => words.given.push((flag.name, None)),
            (Takes::Nothing, Some(value)) => {
                return Err(match manner {
                    Manner::Plain => format!("Option {} does not take an argument", flag.name),
                    Manner::Usage => format!("argument --{}: ignored explicit argument '{value}'", flag.name),
                });
            }
            (_, Some(value)) => words.given.push((flag.name, Some(value))),
            (Takes::Value(_), None) => {
                let taken = match manner {
                    Manner::Plain => rest.next(),
                    Manner::Usage => rest.next_if(next_is_value),
                };
                let Some(value) = taken else {
                    return Err(match manner {
                        Manner::Plain => format!("Option {} requires an argument", flag.name),
                        Manner::Usage => format!("argument {}: expected one argument", both_names(flag)),
                    });
                };
                words.given.push((flag.name, Some(value.clone())));
            }
            (Takes::Maybe(_), None) => {
                let value = rest.next_if(next_is_value).cloned();
                words.given.push((flag.name, value));
            }
            (Takes::Many(_), None) => {
                let before = words.given.len();
                while let Some(value) = rest.next_if(next_is_value) {
                    words.given.push((flag.name, Some(value.clone())));
                }
                if words.given.len() == before {
                    return Err(format!("argument {}: expected at least one argument", both_names(flag)));
                }
            }
        }
    }
    match (manner, words.free.is_empty()) {
        (Manner::Usage, false) => Err(format!("unrecognized arguments: '{}'", words.free.join(" "))),
        _ => Ok(words),
    }
}

fn find<'f>(flags: &'f [Flag], word: &str) -> Option<&'f Flag> {
    if let Some(name) = word.strip_prefix("--") {
        return flags.iter().find(|flag| flag.name == name);
    }
    let mut letters = word.strip_prefix('-')?.chars();
    let letter = letters.next().filter(|_| letters.next().is_none())?;
    flags.iter().find(|flag| flag.letter == Some(letter))
}

fn looks_like_an_option(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-')
}

fn unknown(name: &str, manner: Manner, flags: &[Flag]) -> String {
    let bare = name.trim_start_matches('-');
    let near = flags
        .iter()
        .map(|flag| (strsim::jaro_winkler(bare, flag.name), flag.name))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(likeness, _)| *likeness > 0.85)
        .map(|(_, name)| format!("\nDid you mean --{name}?"))
        .unwrap_or_default();
    match manner {
        Manner::Plain => format!("{bare} is not a recognized option{near}"),
        Manner::Usage => format!("unrecognized arguments: '{name}'{near}"),
    }
}

/// `--id/-i`
pub(super) fn both_names(flag: &Flag) -> String {
    match flag.letter {
        Some(letter) => format!("--{}/-{letter}", flag.name),
        None => format!("--{}", flag.name),
    }
}

impl Words {
    /// Whether the option was given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| *given == name)
    }

    /// Its values in order.
    pub(super) fn values<'w, 'n>(&'w self, name: &'n str) -> impl Iterator<Item = &'w str> + use<'w, 'n> {
        self.given.iter().filter(move |(given, _)| *given == name).filter_map(|(_, value)| value.as_deref())
    }

    /// Its only value.
    pub(super) fn value(&self, name: &str) -> Result<Option<&str>, String> {
        let mut values = self.values(name);
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(format!("Found multiple arguments for option {name}, but you asked for only one")),
            (first, None) => Ok(first),
        }
    }

    /// Its only value, as a number.
    pub(super) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, String> {
        let Some(text) = self.value(name)? else { return Ok(None) };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(format!("Cannot parse argument '{text}' of option {name}")),
        }
    }

    /// Refuses `name` without all of `required`.
    pub(super) fn require(&self, required: &[&str]) -> Result<(), String> {
        match required.iter().find(|name| !self.has(name)) {
            Some(missing) => Err(format!("Missing required argument \"[{missing}]\"")),
            None => Ok(()),
        }
    }

    /// Refuses `used` beside any of `others`.
    pub(super) fn refuse_beside(&self, used: &str, others: &[&str]) -> Result<(), String> {
        match others.iter().find(|other| **other != used && self.has(other)) {
            Some(other) if self.has(used) => {
                Err(format!("Option \"[{used}]\" can't be used with option \"[{other}]\""))
            }
            _ => Ok(()),
        }
    }

    /// Refuses unless just one of `names` was given.
    pub(super) fn exactly_one<'n>(&self, names: &[&'n str]) -> Result<&'n str, String> {
        let mut given = names.iter().filter(|name| self.has(name));
        match (given.next(), given.next()) {
            (Some(only), None) => Ok(only),
            _ => Err(format!(
                "Exactly one of the following arguments is required: {}",
                names.iter().map(|name| format!("[{name}]")).collect::<Vec<_>>().join(", ")
            )),
        }
    }
}

/// The page of help: what the tool is for, then the options in the order of the alphabet.
pub(super) fn help(about: &str, flags: &[Flag]) -> String {
    const COLUMN_MAX: usize = 38;
    const WIDTH: usize = 100;
    let mut rows: Vec<(String, &str)> = flags.iter().map(|flag| (shown(flag), flag.doc)).collect();
    rows.sort();
    let column = rows.iter().map(|(name, _)| name.len()).filter(|length| *length <= COLUMN_MAX).max().unwrap_or(0);
    let mut text = format!("{about}\n{:column$}  Description\n{:column$}  -----------\n", "Option", "------");
    for (name, doc) in rows {
        let mut left = name.as_str();
        if left.len() > column {
            _ = writeln!(text, "{left}");
            left = "";
        }
        for line in wrapped(doc, WIDTH - column - 2) {
            _ = writeln!(text, "{left:column$}  {line}");
            left = "";
        }
    }
    text
}

fn shown(flag: &Flag) -> String {
    let letter = flag.letter.map(|letter| format!(", -{letter}")).unwrap_or_default();
    match flag.takes {
        Takes::Nothing => format!("--{}{letter}", flag.name),
        Takes::Value(kind) => format!("--{}{letter} <{kind}>", flag.name),
        Takes::Maybe(kind) => format!("--{}{letter} [{kind}]", flag.name),
        Takes::Many(kind) => format!("--{}{letter} <{kind} ...>", flag.name),
    }
}

/// Lines of whole words, `width` letters at most where words allow.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: &[Flag] = &[
        value("topic", "topic", "Which topic."),
        value("time", "when", "Since when."),
        switch("list", "Lists."),
        maybe("state", "states", "Only those."),
        many("props", "k=v", "Settings."),
        value("id", "id", "Whose.").or('i'),
    ];

    fn args(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn plain(line: &str) -> Result<Words, String> {
        parse(FLAGS, Manner::Plain, &args(line))
    }

    fn usage(line: &str) -> Result<Words, String> {
        parse(FLAGS, Manner::Usage, &args(line))
    }

    #[test]
    fn values_follow_or_are_joined_and_may_begin_with_a_dash() {
        let words = plain("--topic a --time -1 --list --topic=b extra").unwrap();
        assert_eq!(words.values("topic").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(words.number::<i64>("time"), Ok(Some(-1)));
        assert!(words.has("list") && !words.has("state"));
        assert_eq!(words.free, ["extra"]);
        assert_eq!(
            words.value("topic").unwrap_err(),
            "Found multiple arguments for option topic, but you asked for only one"
        );
    }

    #[test]
    fn values_that_may_be_left_out_are_not_taken_from_the_next_option() {
        let words = plain("--state --list").unwrap();
        assert!(words.has("state") && words.has("list"));
        assert_eq!(words.value("state"), Ok(None));
        assert_eq!(plain("--state stable").unwrap().value("state"), Ok(Some("stable")));
    }

    #[test]
    fn wrong_lines_are_refused_in_the_tools_words() {
        assert_eq!(plain("--foo").unwrap_err(), "foo is not a recognized option");
        assert_eq!(plain("--topi x").unwrap_err(), "topi is not a recognized option\nDid you mean --topic?");
        assert_eq!(plain("--topic").unwrap_err(), "Option topic requires an argument");
        assert_eq!(plain("--list=x").unwrap_err(), "Option list does not take an argument");
        let words = plain("--time abc").unwrap();
        assert_eq!(words.number::<i64>("time").unwrap_err(), "Cannot parse argument 'abc' of option time");
        assert_eq!(words.require(&["topic"]).unwrap_err(), "Missing required argument \"[topic]\"");
        assert_eq!(
            words.exactly_one(&["topic", "list"]).unwrap_err(),
            "Exactly one of the following arguments is required: [topic], [list]"
        );
        assert_eq!(
            plain("--topic a --list").unwrap().refuse_beside("topic", &["list"]).unwrap_err(),
            "Option \"[topic]\" can't be used with option \"[list]\""
        );
    }

    #[test]
    fn the_tools_with_usage_lines_have_words_of_their_own() {
        let words = usage("--props a=b c=d -i 7 --time -1").unwrap();
        assert_eq!(words.values("props").collect::<Vec<_>>(), ["a=b", "c=d"]);
        assert_eq!(words.value("id"), Ok(Some("7")));
        assert_eq!(usage("--id --list").unwrap_err(), "argument --id/-i: expected one argument");
        assert_eq!(usage("--foo").unwrap_err(), "unrecognized arguments: '--foo'");
        assert_eq!(usage("a b").unwrap_err(), "unrecognized arguments: 'a b'");
        assert_eq!(usage("--props --list").unwrap_err(), "argument --props: expected at least one argument");
    }

    #[test]
    fn help_lists_every_option_in_columns() {
        let text = help("Does things.", &FLAGS[..3]);
        assert_eq!(
            text,
            "Does things.\n\
             Option           Description\n\
             ------           -----------\n\
             --list           Lists.\n\
             --time <when>    Since when.\n\
             --topic <topic>  Which topic.\n"
        );
    }
}
