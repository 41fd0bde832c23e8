//! How results look: aligned columns, or JSON.
//!
//! Pure. Owns the flag `-o`, tables and their layout. Does not own what is in them. Always: a table's last column is not padded
//! and no line ends in blanks; JSON is one document whose field names stay as they are. Source: the tables of rpk.

use std::fmt::Write as _;
use std::io::{self, Write};

use serde::Serialize;

/// How results are written.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Output {
    /// Columns for people.
    #[default]
    Table,
    /// More columns.
    Wide,
    /// One JSON document, for scripts.
    Json,
}

/// The flag `-o`.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(super) struct OutputArgs {
    /// How results are written
    #[arg(
        short = 'o',
        long,
        value_name = "FORMAT",
        value_enum,
        default_value_t,
        global = true,
        help_heading = "Output"
    )]
    pub(super) output: Output,
}

/// Rows under a head.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
    /// Which columns are numbers: they are set to the right.
    right: Vec<bool>,
}

impl Table {
    /// Columns in the order they are shown; names that begin with `#` are columns of numbers.
    pub(super) fn new(head: &[&str]) -> Self {
        Self {
            rows: vec![head.iter().map(|name| name.trim_start_matches('#').to_owned()).collect()],
            right: head.iter().map(|name| name.starts_with('#')).collect(),
        }
    }

    /// One more row, of as many cells as the head has.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Whether there is nothing under the head.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.len() <= 1
    }

    /// The lines, two blanks between columns.
    pub(super) fn render(&self) -> String {
        let columns = self.right.len();
        let widths: Vec<usize> = (0..columns)
            .map(|column| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max().unwrap_or(0))
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                if column > 0 {
                    line.push_str("  ");
                }
                let blanks = " ".repeat(widths[column].saturating_sub(width(cell)));
                if self.right[column] {
                    _ = write!(line, "{blanks}{cell}");
                } else {
                    _ = write!(line, "{cell}{blanks}");
                }
            }
            _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}

/// How wide text is on a terminal, near enough: one column a letter.
fn width(text: &str) -> usize {
    text.chars().count()
}

/// Writes one JSON document.
pub(super) fn write_json(out: &mut dyn Write, document: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string_pretty(document).map_err(io::Error::other)?;
    writeln!(out, "{text}")
}

/// `-` for what is not there.
pub(super) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// With its first letter large. Users write what they like: a first letter may have more than one byte.
pub(super) fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}", first.to_ascii_uppercase(), letters.as_str()))
}

/// `1,2,3`
pub(super) fn joined<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    values.into_iter().map(|value| value.to_string()).collect::<Vec<_>>().join(",")
}

/// `1.5 MiB`
pub(super) fn bytes(count: i64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value.abs() >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// The one of `names` that `wrong` was meant to be, if one is near.
pub(super) fn nearest<'n>(wrong: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let rated = names.into_iter().map(|name| (strsim::jaro_winkler(wrong, name), name));
    rated.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(likeness, _)| *likeness > 0.8).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_with_their_text() {
        let mut table = Table::new(&["NAME", "#PARTITIONS", "CONFIGS"]);
        assert!(table.is_empty());
        table.row(["orders".to_owned(), "12".to_owned(), String::new()]);
        table.row(["größe".to_owned(), "3".to_owned(), "a=b".to_owned()]);
        assert_eq!(
            table.render(),
            "NAME    PARTITIONS  CONFIGS\n\
             orders          12\n\
             größe            3  a=b\n"
        );
    }

    #[test]
    fn near_names_are_found_and_far_ones_not() {
        assert_eq!(nearest("oders", ["orders", "payments"]), Some("orders"));
        assert_eq!(nearest("x", ["orders", "payments"]), None);
    }

    #[test]
    fn sizes_are_for_people() {
        assert_eq!([bytes(512), bytes(1536), bytes(-1)], ["512 B", "1.5 KiB", "-1 B"]);
    }
}
