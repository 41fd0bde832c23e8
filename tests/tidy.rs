//! The plan of the house, held by reading the sources: which room may import which, glommio behind one door, pure files apart
//! from shells, a head on every file, nothing left undone, no file too long to read.
//!
//! Each failure says which arrow, where, and why not. The order of the rooms is that of `src/lib.rs`; there is no second list.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Past this a file has a second duty, which moves to a sibling.
const LINES_MAX: usize = 900;
/// The head of a file says Pure or Shell in its first lines.
const HEAD_LINES: usize = 8;
/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["helpers", "utils", "util", "common", "misc", "manager", "impl", "base", "v2"];

/// What a measuring tool has no business with.
const SERVERS_ROOMS: &[&str] = &["rt", "log", "replica", "coordinator", "controller", "shard", "server", "control"];

/// Arrows beyond the order of the rooms: who, what it may not import, why not.
const FORBIDDEN: &[(&str, &[&str], &str)] = &[
    ("coordinator", &["controller"], "they stand beside each other; the shard speaks to both"),
    ("controller", &["coordinator"], "they stand beside each other; the shard speaks to both"),
    (
        "log",
        &["protocol::produce", "protocol::fetch", "protocol::admin", "protocol::groups", "protocol::operator"],
        "a log knows batches, not requests",
    ),
    (
        "client",
        &["rt", "metrics", "history", "log", "replica", "coordinator", "controller", "shard", "server", "control"],
        "a client is linked into other people's programs: types, protocol and config are all it may need",
    ),
    (
        "bench",
        SERVERS_ROOMS,
        "it measures any broker, over the wire; the history checker is all it shares with the tests of ours",
    ),
    ("compare", SERVERS_ROOMS, "it measures any broker, over the wire"),
    ("tune", SERVERS_ROOMS, "it measures any broker, over the wire"),
];

struct Source {
    /// `src/log/mod.rs`
    path: String,
    /// `["log"]`, `["log", "index"]`; empty for `lib.rs` and `main.rs`.
    module: Vec<String>,
    text: String,
}

/// One path of a `use` or of an expression.
#[derive(Debug, PartialEq, Eq)]
struct Import {
    line: usize,
    /// Without `crate`, `self` and `super`: from the root of the crate.
    path: Vec<String>,
    /// `pub use` of something.
    exported: bool,
    /// Within the tests at the end of a file.
    in_tests: bool,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    walk(&root.join("src"), &mut paths);
    paths.sort();
    let source = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("sources are text");
        let path = path.strip_prefix(root).expect("it was found below the root").to_string_lossy().into_owned();
        Source { module: module_of(&path), path, text }
    };
    paths.into_iter().map(source).collect()
}

fn walk(dir: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("the package has its sources") {
        let path = entry.expect("a directory can be listed").path();
        if path.is_dir() {
            walk(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

fn module_of(path: &str) -> Vec<String> {
    let inner = path.trim_start_matches("src/").trim_end_matches(".rs");
    let mut module: Vec<String> = inner.split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

impl Source {
    fn room(&self) -> Option<&str> {
        self.module.first().map(String::as_str)
    }

    fn is_tests(&self) -> bool {
        self.module.last().is_some_and(|name| name == "tests" || name.ends_with("_tests"))
    }

    /// The lines without comments, numbered from 1, with whether they belong to the tests at the end.
    fn code(&self) -> impl Iterator<Item = (usize, &str, bool)> {
        let mut in_tests = self.is_tests();
        let mut cfg_test = false;
        self.text.lines().enumerate().map(move |(index, line)| {
            let code = without_comment(line);
            if cfg_test && code.contains("mod ") && code.trim_end().ends_with('{') {
                in_tests = true;
            }
            cfg_test = code.trim() == "#[cfg(test)]";
            (index + 1, code, in_tests)
        })
    }

    /// `Pure` or `Shell`, whichever the head names first.
    fn kind(&self) -> Option<&'static str> {
        let head = self.text.lines().take(HEAD_LINES).take_while(|line| line.starts_with("//!"));
        head.flat_map(|line| line.split(|letter: char| !letter.is_ascii_alphabetic()))
            .find_map(|word| ["Pure", "Shell"].into_iter().find(|kind| *kind == word))
    }

    fn imports(&self) -> Vec<Import> {
        let mut imports = Vec::new();
        let mut statement: Option<(usize, bool, bool, String)> = None;
        for (line, code, in_tests) in self.code() {
            let trimmed = code.trim();
            let begins =
                ["use ", "pub use ", "pub(crate) use ", "pub(super) use "].iter().any(|word| trimmed.starts_with(word));
            if statement.is_none() && begins {
                let exported = trimmed.starts_with("pub");
                let tree = trimmed.split_once("use ").expect("it begins so").1;
                statement = Some((line, exported, in_tests, tree.to_owned()));
            } else if let Some((_, _, _, tree)) = &mut statement {
                tree.push_str(trimmed);
            } else {
                for path in inline_paths(code) {
                    imports.extend(self.absolute(path).map(|path| Import { line, path, exported: false, in_tests }));
                }
            }
            if statement.as_ref().is_some_and(|(_, _, _, tree)| tree.trim_end().ends_with(';')) {
                let (line, exported, in_tests, tree) = statement.take().expect("just looked at");
                let depth = usize::from(in_tests && !self.is_tests());
                for path in expand(tree.trim_end().trim_end_matches(';')) {
                    let path = self.absolute_from(path, depth);
                    imports.extend(path.map(|path| Import { line, path, exported, in_tests }));
                }
            }
        }
        imports
    }

    fn absolute(&self, path: Vec<String>) -> Option<Vec<String>> {
        self.absolute_from(path, 0)
    }

    /// `depth` inline modules lie between the file and the line.
    fn absolute_from(&self, path: Vec<String>, depth: usize) -> Option<Vec<String>> {
        let mut at = self.module.clone();
        at.extend((0..depth).map(|_| "tests".to_owned()));
        let mut rest = path.into_iter().peekable();
        match rest.peek().map(String::as_str) {
            Some("crate") => at.clear(),
            Some("self" | "super") => {}
            // A child of this module, or another crate.
            Some(_) => {
                return Some([self.module.clone(), rest.collect()].concat())
                    .filter(|path| path.len() > self.module.len());
            }
            None => return None,
        }
        for segment in rest {
            match segment.as_str() {
                "crate" | "self" => {}
                "super" => _ = at.pop(),
                _ => at.push(segment),
            }
        }
        Some(at)
    }
}

/// The line up to `//`, unless that follows a colon, as in an address.
fn without_comment(line: &str) -> &str {
    let mut from = 0;
    while let Some(found) = line[from..].find("//") {
        let at = from + found;
        if !line[..at].ends_with(':') {
            return &line[..at];
        }
        from = at + 2;
    }
    line
}

/// `a::{b, c::{d, e as f}, self}` as its paths.
fn expand(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let path = tree.split(" as ").next().expect("split gives one").trim();
        return vec![
            path.split("::").map(|segment| segment.trim().to_owned()).filter(|segment| !segment.is_empty()).collect(),
        ];
    };
    let prefix: Vec<String> = tree[..open]
        .split("::")
        .map(|segment| segment.trim().to_owned())
        .filter(|segment| !segment.is_empty())
        .collect();
    let inner = &tree[open + 1..tree.rfind('}').expect("braces are closed")];
    let mut paths = Vec::new();
    for branch in split_at_top(inner) {
        for path in expand(branch) {
            paths.push([prefix.clone(), path].concat());
        }
    }
    paths
}

fn split_at_top(inner: &str) -> Vec<&str> {
    let (mut depth, mut start, mut branches) = (0, 0, Vec::new());
    for (index, letter) in inner.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                branches.push(&inner[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    branches.push(&inner[start..]);
    branches.into_iter().filter(|branch| !branch.trim().is_empty()).collect()
}

/// `crate::…` and `super::…` within an expression.
fn inline_paths(code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for head in ["crate::", "super::"] {
        for (at, _) in code.match_indices(head) {
            let before = code[..at].chars().next_back();
            // In the middle of a longer path, or behind a macro's `$`.
            if before.is_some_and(|letter| letter == ':' || letter == '$' || letter == '_' || letter.is_alphanumeric())
            {
                continue;
            }
            let end = code[at..].find(|letter: char| letter != ':' && letter != '_' && !letter.is_alphanumeric());
            let path = &code[at..end.map_or(code.len(), |end| at + end)];
            paths.push(path.split("::").map(str::to_owned).filter(|segment| !segment.is_empty()).collect());
        }
    }
    paths
}

/// The rooms in the order of `src/lib.rs`.
fn rooms(sources: &[Source]) -> Vec<String> {
    let map = sources.iter().find(|source| source.path == "src/lib.rs").expect("the crate has a root");
    let room =
        |(_, code, _): (usize, &str, bool)| Some(code.trim().strip_prefix("pub mod ")?.strip_suffix(';')?.to_owned());
    map.code().filter_map(room).collect()
}

/// Where things are defined, through the re-exports of room heads.
struct Map<'a> {
    files: BTreeMap<&'a [String], &'a Source>,
    exports: BTreeMap<&'a [String], Vec<Vec<String>>>,
}

impl<'a> Map<'a> {
    fn of(sources: &'a [Source]) -> Self {
        let exports = |source: &'a Source| {
            let exported = source.imports().into_iter().filter(|import| import.exported).map(|import| import.path);
            (&source.module[..], exported.collect())
        };
        Self {
            files: sources.iter().map(|source| (&source.module[..], source)).collect(),
            exports: sources.iter().map(exports).collect(),
        }
    }

    /// The file that defines what `path` names.
    fn definition(&self, path: &[String]) -> Option<&'a Source> {
        let module = (1..=path.len()).rev().find(|length| self.files.contains_key(&path[..*length]))?;
        let (module, name) = path.split_at(module);
        let reexport = name.first().and_then(|name| {
            let exports = self.exports.get(module)?;
            exports.iter().find(|export| export.last() == Some(name) && export.len() > module.len())
        });
        match reexport {
            Some(export) if export[..] != *path => self.definition(export),
            _ => self.files.get(module).copied(),
        }
    }
}

fn report(what: &str, breaches: &[String]) {
    let mut text = String::new();
    for breach in breaches {
        _ = write!(text, "\n  {breach}");
    }
    assert!(breaches.is_empty(), "{what}{text}\n");
}

#[test]
fn rooms_import_only_rooms_above_them() {
    let sources = sources();
    let rooms = rooms(&sources);
    let place = |room: &str| rooms.iter().position(|known| known == room);
    let mut breaches = Vec::new();
    for source in &sources {
        let Some(room) = source.room() else { continue };
        let own = place(room).unwrap_or_else(|| panic!("{} belongs to no room of src/lib.rs", source.path));
        for import in source.imports() {
            let Some(other) = import.path.first().filter(|other| *other != room) else { continue };
            if place(other).is_some_and(|other| other > own) {
                breaches.push(format!(
                    "{}:{}: {room} -> {other}. {other} stands below {room} in src/lib.rs, and a room imports only rooms above it: \
                     pass what is needed as a parameter, or move the type up.",
                    source.path, import.line
                ));
            }
        }
    }
    report("an arrow between rooms points down:", &breaches);
}

#[test]
fn forbidden_arrows_are_not_drawn() {
    let mut breaches = Vec::new();
    for source in &sources() {
        for (room, others, why) in FORBIDDEN.iter().filter(|(room, ..)| source.room() == Some(room)) {
            for import in source.imports() {
                let path = import.path.join("::");
                for other in others.iter().filter(|other| path == **other || path.starts_with(&format!("{other}::"))) {
                    breaches.push(format!("{}:{}: {room} -> {other}. {why}.", source.path, import.line));
                }
            }
        }
    }
    report("an arrow that is never drawn:", &breaches);
}

#[test]
fn glommio_stays_behind_its_door() {
    let mut breaches = Vec::new();
    for source in sources().iter().filter(|source| source.room() != Some("rt")) {
        for (line, code, _) in
            source.code().filter(|(_, code, _)| code.contains("glommio::") || code.contains("use glommio"))
        {
            breaches.push(format!(
                "{}:{line}: `{}`. Only src/rt names glommio: its faults are guarded there, and another executor could take its place.",
                source.path,
                code.trim()
            ));
        }
    }
    report("glommio outside src/rt:", &breaches);
}

#[test]
fn pure_files_import_no_shell() {
    let sources = sources();
    let map = Map::of(&sources);
    let mut breaches = Vec::new();
    for source in sources.iter().filter(|source| source.kind() == Some("Pure") && !source.is_tests()) {
        for import in source.imports().iter().filter(|import| !import.in_tests && !import.exported) {
            let Some(defined) = map.definition(&import.path) else { continue };
            if defined.kind() == Some("Shell") && defined.path != source.path {
                breaches.push(format!(
                    "{}:{}: {} is defined in {}, a Shell. What a Pure file needs must be simulated with seeds: move plain types to a \
                     Pure sibling, or say Shell.",
                    source.path,
                    import.line,
                    import.path.join("::"),
                    defined.path
                ));
            }
        }
    }
    report("a Pure file imports a Shell:", &breaches);
}

#[test]
fn every_file_says_what_it_is() {
    let mut breaches = Vec::new();
    for source in &sources() {
        let first = source.text.lines().next().unwrap_or_default();
        if !first.starts_with("//! ") {
            breaches.push(format!("{}: the first line says in a sentence what the file is (`//! …`).", source.path));
        } else if source.kind().is_none() && source.room().is_some() && !source.is_tests() {
            breaches.push(format!("{}: the head says Pure or Shell within its first {HEAD_LINES} lines.", source.path));
        }
        let stem = source.module.last().map_or("", String::as_str);
        if EMPTY_NAMES.contains(&stem) {
            breaches
                .push(format!("{}: `{stem}` says nothing about what is inside; name the thing it owns.", source.path));
        }
    }
    report("a file without a head:", &breaches);
}

#[test]
fn nothing_is_left_undone() {
    let mut breaches = Vec::new();
    for source in &sources() {
        for (line, code, _) in source.code() {
            for macro_name in ["todo!", "unimplemented!", "dbg!"] {
                if code.contains(&format!("{macro_name}(")) {
                    breaches.push(format!("{}:{line}: {macro_name}: finish it, or take it out.", source.path));
                }
            }
        }
    }
    report("unfinished:", &breaches);
}

#[test]
fn files_can_be_read_in_one_sitting() {
    let mut breaches = Vec::new();
    for source in &sources() {
        let lines = source.text.lines().count();
        if lines > LINES_MAX {
            breaches.push(format!(
                "{}: {lines} lines, {LINES_MAX} at most: a second duty moves to a sibling.",
                source.path
            ));
        }
    }
    report("too long:", &breaches);
}

/// The reader of sources itself: a rule that cannot see is no rule.
mod reading {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), module: module_of(path), text: text.to_owned() }
    }

    fn paths(source: &Source) -> Vec<String> {
        source
            .imports()
            .into_iter()
            .map(|import| format!("{}{}", import.path.join("::"), if import.in_tests { " (tests)" } else { "" }))
            .collect()
    }

    #[test]
    fn imports_are_seen_in_all_their_shapes() {
        let text = "//! Pure. A file.\n\
            use crate::a::{self, b::{C, D as E}}; // use crate::not::seen\n\
            use super::sibling::F;\n\
            pub use child::G;\n\
            use std::fmt;\n\
            fn f() -> crate::h::I { super::j() }\n\
            // crate::not::seen\n\
            const URL: &str = \"http://crate::x\";\n\
            #[cfg(test)]\n\
            mod tests {\n\
                use super::*;\n\
                use crate::k::L;\n\
            }\n";
        let seen = paths(&source("src/room/file.rs", text));
        assert_eq!(
            seen,
            [
                "a",
                "a::b::C",
                "a::b::D",
                "room::sibling::F",
                "room::file::child::G",
                "room::file::std::fmt",
                "h::I",
                "room::j",
                "x",
                "room::file::* (tests)",
                "k::L (tests)"
            ]
        );
    }

    #[test]
    fn re_exports_lead_to_the_file_that_defines() {
        let sources = [
            source("src/log/mod.rs", "//! Shell. Head.\npub use words::Name;\npub struct Log;\n"),
            source("src/log/words.rs", "//! Pure. Words.\npub struct Name;\n"),
        ];
        let map = Map::of(&sources);
        let defined = |path: &str| {
            let path: Vec<String> = path.split("::").map(str::to_owned).collect();
            map.definition(&path).map(|source| source.path.as_str())
        };
        assert_eq!(defined("log::Name"), Some("src/log/words.rs"));
        assert_eq!(defined("log::Log"), Some("src/log/mod.rs"));
        assert_eq!(defined("log::words::Name"), Some("src/log/words.rs"));
        assert_eq!(defined("std::fmt"), None);
    }

    #[test]
    fn heads_name_their_kind() {
        assert_eq!(
            source("src/a/b.rs", "//! A thing.\n//!\n//! Shell: plain files. Not Pure.\n").kind(),
            Some("Shell")
        );
        assert_eq!(source("src/a/b.rs", "//! A thing that purely is.\n").kind(), None);
    }
}
