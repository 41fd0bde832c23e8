//! From words to settings: gathering, checking each by its row, and handing them to whoever assembles a type of them.
//!
//! Pure. Owns [`Builder`] and [`Desk`]. Does not own the table of keys (`config::client_rows`) nor the rules between keys, which
//! stand with the settings they are about. Always: the later one of a key wins; every problem is told, not the first alone.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use super::LONGEST;
use crate::client::error::ClientError;
use crate::config::client_rows::{ClientRole, Meaning, client_properties, client_row, meaning};
use crate::config::{Problem, Severity};

/// Settings a [`Builder`] can build.
pub trait Settings: Sized {
    /// Whose they are.
    const ROLE: ClientRole;

    /// From checked words; problems between keys go into the desk.
    #[doc(hidden)]
    fn assemble(desk: &mut Desk) -> Self;

    /// Nothing given yet.
    fn builder() -> Builder<Self> {
        Builder { given: Vec::new(), problems: Vec::new(), kind: PhantomData }
    }

    /// From the text of a properties file; `place` names it in problems. Errors: everything that is wrong with it.
    fn from_properties(text: &[u8], place: &str) -> Result<Self, ClientError> {
        Self::builder().properties(text, place).build()
    }
}

/// Gathers words; the later one of a key wins.
#[derive(Clone, Debug)]
pub struct Builder<S> {
    /// Key, value, place.
    given: Vec<(String, String, String)>,
    problems: Vec<Problem>,
    kind: PhantomData<fn() -> S>,
}

impl<S: Settings> Builder<S> {
    /// One key, in Kafka's or librdkafka's words.
    #[must_use]
    pub fn set(self, key: &str, value: impl ToString) -> Self {
        self.set_at(key, value, "settings")
    }

    /// One key, and where it was given (`-X`), for problems.
    #[must_use]
    pub fn set_at(mut self, key: &str, value: impl ToString, place: &str) -> Self {
        self.given.push((key.to_owned(), value.to_string(), place.to_owned()));
        self
    }

    /// The text of a properties file; `place` names it in problems.
    #[must_use]
    pub fn properties(mut self, text: &[u8], place: &str) -> Self {
        match client_properties(text) {
            Ok(entries) => self
                .given
                .extend(entries.into_iter().map(|entry| (entry.key, entry.value, format!("{place}:{}", entry.line)))),
            Err((line, message)) => self.problems.push(Problem {
                severity: Severity::Error,
                place: line.map_or_else(|| place.to_owned(), |line| format!("{place}:{line}")),
                message,
                help: None,
            }),
        }
        self
    }

    /// Checks all of it. Errors: every problem that was found, notes beside them.
    pub fn build(self) -> Result<S, ClientError> {
        let mut desk = Desk { values: BTreeMap::new(), problems: self.problems };
        for (key, value, place) in self.given {
            desk.admit(S::ROLE, &key, &value, place);
        }
        let settings = S::assemble(&mut desk);
        if desk.problems.iter().any(|problem| problem.severity == Severity::Error) {
            desk.problems.retain(|problem| problem.severity != Severity::Note);
            return Err(ClientError::Settings(desk.problems));
        }
        Ok(settings)
    }
}

/// Words that passed the check of their row, and what was found so far.
#[derive(Debug)]
pub struct Desk {
    /// By Kafka's name: value and place.
    values: BTreeMap<&'static str, (String, String)>,
    pub(super) problems: Vec<Problem>,
}

impl Desk {
    fn admit(&mut self, role: ClientRole, key: &str, value: &str, place: String) {
        match meaning(role, key, value) {
            Meaning::Setting { name, value } => _ = self.values.insert(name, (value, place)),
            Meaning::Nothing(why) => self.problems.push(Problem {
                severity: Severity::Note,
                place,
                message: format!("{key} has no effect here"),
                help: Some(why),
            }),
            Meaning::Wrong { message, help } => {
                self.problems.push(Problem { severity: Severity::Error, place, message, help });
            }
        }
    }

    pub(super) fn wrong(&mut self, name: &'static str, message: String, help: &str) {
        let place = self.values.get(name).map_or_else(|| "settings".to_owned(), |(_, place)| place.clone());
        self.problems.push(Problem { severity: Severity::Error, place, message, help: Some(help.to_owned()) });
    }

    pub(super) fn given(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|(value, _)| value.as_str())
    }

    /// The value, given or default; empty where the default is null.
    pub(super) fn text(&self, name: &'static str) -> &str {
        let default = || client_row(name).and_then(|row| row.row.default).unwrap_or_default();
        self.given(name).unwrap_or_else(default)
    }

    pub(super) fn optional(&self, name: &'static str) -> Option<String> {
        Some(self.text(name)).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    pub(super) fn number(&self, name: &'static str) -> i64 {
        self.text(name).parse().expect("the row of this key checks that it is a number")
    }

    pub(super) fn int(&self, name: &'static str) -> i32 {
        self.text(name).parse().expect("the row of this key checks that it is an INT")
    }

    /// For rows whose range begins at 0 or 1.
    pub(super) fn size(&self, name: &'static str) -> usize {
        usize::try_from(self.number(name)).expect("the row of this key checks that it is not negative")
    }

    pub(super) fn millis(&self, name: &'static str) -> Duration {
        let ms = u64::try_from(self.number(name)).expect("the row of this key checks that it is not negative");
        Duration::from_millis(ms).min(LONGEST)
    }

    pub(super) fn flag(&self, name: &'static str) -> bool {
        self.text(name).eq_ignore_ascii_case("true")
    }

    pub(super) fn not_negative(&self, name: &'static str) -> Option<u32> {
        u32::try_from(self.number(name)).ok()
    }
}
