//! Figures that are no lines: bars, columns side by side, heat maps, forests of ratios.
//!
//! Pure. Owns their drawing in the style of [`super::svg`]. Always true: every mark carries its number in words, as a label
//! or a tooltip; a colour is never the only bearer of a value.

use std::fmt::Write as _;

use super::stats::{Finding, Interval, finding};
use super::svg::{WIDTH, escape, legend, open};

/// A row of a bar chart.
#[derive(Clone, Debug)]
pub struct Bar {
    /// What it is.
    pub name: String,
    /// Its length; negative ones are drawn as nothing.
    pub value: f64,
    /// The number as people read it.
    pub text: String,
    /// Which colour.
    pub style: usize,
}

/// Horizontal bars from zero to the largest, or to `full` where that is more.
pub fn bars(title: &str, rows: &[Bar], full: Option<f64>) -> String {
    const ROW: f64 = 30.0;
    const NAMES: f64 = 250.0;
    const NUMBERS: f64 = 150.0;
    let height = 10.0 + ROW * rows.len() as f64;
    let largest = rows.iter().map(|row| row.value).fold(full.unwrap_or(0.0), f64::max).max(f64::MIN_POSITIVE);
    let mut out = open(title, height);
    for (row, index) in rows.iter().zip(0u32..) {
        let top = 5.0 + ROW * f64::from(index);
        let room = WIDTH - NAMES - NUMBERS;
        let width = (row.value.max(0.0) / largest * room).max(0.0);
        _ = write!(
            out,
            "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text><rect class=\"band\" x=\"{NAMES}\" y=\"{top:.1}\" \
             width=\"{room}\" height=\"20\" rx=\"3\"/><rect class=\"f{}\" x=\"{NAMES}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"20\" rx=\"3\">\
             <title>{}: {}</title></rect><text class=\"tick name\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            NAMES - 12.0,
            top + 14.5,
            escape(&row.name),
            row.style % super::svg::STYLES,
            escape(&row.name),
            escape(&row.text),
            WIDTH - NUMBERS + 12.0,
            top + 14.5,
            escape(&row.text)
        );
    }
    out.push_str("</svg>");
    out
}

/// A row of parts that add up.
#[derive(Clone, Debug)]
pub struct Stack {
    /// What it is.
    pub name: String,
    /// From the left. Their names are said in tooltips.
    pub parts: Vec<Bar>,
    /// What stands beside it.
    pub text: String,
}

/// Horizontal bars of parts. The rows of each group share a scale, from zero to the longest of them; `parts` names the parts and
/// their colours.
pub fn stacks(title: &str, parts: &[(&str, usize)], groups: &[Vec<Stack>]) -> String {
    const ROW: f64 = 30.0;
    const GAP: f64 = 12.0;
    const NAMES: f64 = 200.0;
    const NUMBERS: f64 = 220.0;
    const ROOM: f64 = WIDTH - NAMES - NUMBERS;
    const LETTER: f64 = 6.6;
    let (legend, legend_height) = legend(parts);
    let rows: usize = groups.iter().map(Vec::len).sum();
    let height = legend_height + 8.0 + ROW * rows as f64 + GAP * groups.len().saturating_sub(1) as f64;
    let mut out = open(title, height);
    out.push_str(&legend);
    let mut top = legend_height + 8.0;
    for group in groups {
        let long = |stack: &Stack| stack.parts.iter().map(|part| part.value.max(0.0)).sum::<f64>();
        let longest = group.iter().map(long).fold(f64::MIN_POSITIVE, f64::max);
        for stack in group {
            _ = write!(
                out,
                "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text><rect class=\"band\" x=\"{NAMES}\" y=\"{top:.1}\" \
                 width=\"{ROOM}\" height=\"20\"/><text class=\"tick name\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                NAMES - 12.0,
                top + 14.5,
                escape(&stack.name),
                WIDTH - NUMBERS + 12.0,
                top + 14.5,
                escape(&stack.text)
            );
            let mut left = NAMES;
            for part in &stack.parts {
                let wide = part.value.max(0.0) / longest * ROOM;
                _ = write!(
                    out,
                    "<rect class=\"f{}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"20\"><title>{}: {}</title></rect>",
                    part.style % super::svg::STYLES,
                    escape(&part.name),
                    escape(&part.text)
                );
                if part.text.chars().count() as f64 * LETTER + 8.0 < wide {
                    _ = write!(
                        out,
                        "<text class=\"tick\" style=\"fill:var(--paper)\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                        left + wide / 2.0,
                        top + 14.0,
                        escape(&part.text)
                    );
                }
                left += wide;
            }
            top += ROW;
        }
        top += GAP;
    }
    out.push_str("</svg>");
    out
}

/// One quantity of several things, each an upright bar, on a scale of its own.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What is counted.
    pub name: String,
    /// Groups apart from each other, of a short name and a bar each. The bar's own name is said in its tooltip.
    pub groups: Vec<Vec<(String, Bar)>>,
}

/// Panels in a row, and what lies between two of them.
const PANELS_IN_ROW: usize = 3;
const PANEL_GAP: f64 = 30.0;
const PANEL_WIDTH: f64 = (WIDTH - PANEL_GAP * (PANELS_IN_ROW - 1) as f64) / PANELS_IN_ROW as f64;

/// Panels beside and below each other, three in a row: the same things by one quantity each. `groups` names the groups and
/// their colours in a legend; none is drawn when it is empty.
pub fn panels(title: &str, groups: &[(&str, usize)], panels: &[Panel]) -> String {
    const ROW: f64 = 156.0;
    let (legend, legend_height) = legend(groups);
    let legend_height = if groups.is_empty() { 0.0 } else { legend_height + 8.0 };
    let height = legend_height + ROW * panels.len().div_ceil(PANELS_IN_ROW) as f64;
    let mut out = open(title, height);
    out.push_str(&legend);
    for (index, panel) in panels.iter().enumerate() {
        let left = (PANEL_WIDTH + PANEL_GAP) * (index % PANELS_IN_ROW) as f64;
        let top = legend_height + ROW * (index / PANELS_IN_ROW) as f64;
        panel.draw(&mut out, left, top);
    }
    out.push_str("</svg>");
    out
}

impl Panel {
    /// Its name, its bars, and the line they stand on.
    fn draw(&self, out: &mut String, left: f64, top: f64) {
        const NAME: f64 = 20.0;
        let bottom = top + NAME + PanelBars::PLOT;
        let bars = PanelBars::of(self, left, bottom);
        _ = write!(out, "<text class=\"name\" x=\"{left:.1}\" y=\"{:.1}\">{}</text>", top + 13.0, escape(&self.name));
        let most = self.all().max_by(|a, b| a.1.value.total_cmp(&b.1.value));
        if let Some((_, most)) = most.filter(|_| !bars.numbers_fit) {
            _ = write!(
                out,
                "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">at most {}</text>",
                left + PANEL_WIDTH,
                top + 13.0,
                escape(&most.text)
            );
        }
        let mut place = 0;
        for group in &self.groups {
            for (nth, (tick, bar)) in group.iter().enumerate() {
                bars.draw(out, place, bar);
                if nth % bars.ticks_apart == 0 {
                    bars.draw_tick(out, place, tick);
                }
                place += 1;
            }
            place += 1;
        }
        _ = write!(out, "<path class=\"base\" d=\"M{left:.1} {bottom:.1}h{PANEL_WIDTH:.1}\"/>");
    }

    fn all(&self) -> impl Iterator<Item = &(String, Bar)> {
        self.groups.iter().flatten()
    }
}

/// Where the bars of a panel stand, and what there is room for beside them.
struct PanelBars {
    left: f64,
    bottom: f64,
    /// What the tallest bar stands for.
    largest: f64,
    /// From one place to the next.
    pitch: f64,
    /// Whether each bar's number fits over it.
    numbers_fit: bool,
    /// Every how many bars a short name fits below.
    ticks_apart: usize,
}

impl PanelBars {
    const PLOT: f64 = 96.0;
    /// Over the tallest bar, for its number.
    const NUMBER: f64 = 16.0;
    const LETTER: f64 = 6.6;

    fn of(panel: &Panel, left: f64, bottom: f64) -> Self {
        let largest = panel.all().map(|(_, bar)| bar.value).fold(f64::MIN_POSITIVE, f64::max);
        // One empty place between two groups.
        let places = panel.all().count() + panel.groups.len().saturating_sub(1);
        let pitch = PANEL_WIDTH / places.max(1) as f64;
        let longest =
            |length: fn(&(String, Bar)) -> usize| panel.all().map(length).max().unwrap_or(0) as f64 * Self::LETTER;
        let numbers_fit = longest(|(_, bar)| bar.text.chars().count()) + 6.0 < pitch;
        let ticks_apart = ((longest(|(tick, _)| tick.chars().count()) + 6.0) / pitch).ceil().max(1.0) as usize;
        Self { left, bottom, largest, pitch, numbers_fit, ticks_apart }
    }

    fn middle(&self, place: usize) -> f64 {
        self.left + self.pitch * (place as f64 + 0.5)
    }

    fn draw(&self, out: &mut String, place: usize, bar: &Bar) {
        let middle = self.middle(place);
        let tall = (bar.value.max(0.0) / self.largest * (Self::PLOT - Self::NUMBER)).max(0.0);
        let wide = (self.pitch * 0.76).min(56.0);
        _ = write!(
            out,
            "<rect class=\"f{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{tall:.1}\"><title>{}: {}</title></rect>",
            bar.style % super::svg::STYLES,
            middle - wide / 2.0,
            self.bottom - tall,
            escape(&bar.name),
            escape(&bar.text)
        );
        if self.numbers_fit {
            _ = write!(
                out,
                "<text class=\"tick name\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                self.bottom - tall - 4.0,
                escape(&bar.text)
            );
        }
    }

    fn draw_tick(&self, out: &mut String, place: usize, tick: &str) {
        _ = write!(
            out,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            self.middle(place),
            self.bottom + 15.0,
            escape(tick)
        );
    }
}

/// A grid of numbers: `cells[row][column]`, `None` where nothing was measured.
#[derive(Clone, Debug)]
pub struct HeatMap {
    /// Said to those who cannot see it.
    pub title: String,
    /// Under the columns.
    pub x_label: String,
    /// Beside the rows.
    pub y_label: String,
    /// Of each column.
    pub columns: Vec<String>,
    /// Of each row, the first at the bottom.
    pub rows: Vec<String>,
    /// The numbers.
    pub cells: Vec<Vec<Option<f64>>>,
    /// How a number is written in its cell.
    pub format: fn(f64) -> String,
    /// Whether a small number is the good one: it gets the strong colour.
    pub low_is_good: bool,
    /// (row, column) drawn with a broken outline: the default.
    pub default: Option<(usize, usize)>,
    /// (row, column) drawn with a strong outline: the choice.
    pub pick: Option<(usize, usize)>,
}

impl HeatMap {
    const LEFT: f64 = 110.0;
    const TOP: f64 = 20.0;
    const CELL: f64 = 40.0;

    /// The picture. Shades follow the logarithm when the numbers span more than a decade.
    pub fn to_svg(&self) -> String {
        let mut out = open(&self.title, self.bottom() + 52.0);
        let shades = Shades::of(self);
        for (row, name) in self.rows.iter().enumerate() {
            _ = write!(
                out,
                "<text class=\"tick name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                Self::LEFT - 10.0,
                self.row_top(row) + Self::CELL / 2.0 + 4.0,
                escape(name)
            );
            for column in 0..self.columns.len() {
                self.draw_cell(&mut out, row, column, &shades);
            }
        }
        for (place, class) in [(self.default, "default"), (self.pick, "pick")] {
            if let Some((row, column)) = place {
                _ = write!(
                    out,
                    "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"3\"/>",
                    self.column_left(column) + 2.0,
                    self.row_top(row) + 2.0,
                    self.column_width() - 4.0,
                    Self::CELL - 4.0
                );
            }
        }
        self.draw_columns_and_axes(&mut out);
        out.push_str("</svg>");
        out
    }

    /// Below the first row, which is the lowest.
    fn bottom(&self) -> f64 {
        Self::TOP + Self::CELL * self.rows.len() as f64
    }

    fn row_top(&self, row: usize) -> f64 {
        self.bottom() - Self::CELL * (row + 1) as f64
    }

    fn column_width(&self) -> f64 {
        (WIDTH - Self::LEFT - 20.0) / self.columns.len().max(1) as f64
    }

    fn column_left(&self, column: usize) -> f64 {
        Self::LEFT + self.column_width() * column as f64
    }

    fn draw_cell(&self, out: &mut String, row: usize, column: usize, shades: &Shades) {
        const CELL: f64 = HeatMap::CELL;
        let (left, top, width) = (self.column_left(column), self.row_top(row), self.column_width());
        let middle = (left + width / 2.0, top + CELL / 2.0 + 4.0);
        let Some(value) = self.cells.get(row).and_then(|cells| cells.get(column)).copied().flatten() else {
            _ = write!(
                out,
                "<rect class=\"cell band\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{CELL}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">–</text>",
                middle.0, middle.1
            );
            return;
        };
        let strength = shades.strength(value);
        // Dark cells are the good ones, with light text: readable in print, in the dark and without colour.
        let (light, text) = (92.0 - 62.0 * strength, if strength > 0.45 { "#fff" } else { "#10202f" });
        _ = write!(
            out,
            "<rect class=\"cell\" style=\"fill:hsl(212 {:.0}% {light:.0}%)\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{CELL}\"><title>{}, {}: {}</title></rect>\
             <text class=\"tick\" style=\"fill:{text}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            35.0 + 35.0 * strength,
            escape(&self.rows[row]),
            escape(&self.columns[column]),
            escape(&(self.format)(value)),
            middle.0,
            middle.1,
            escape(&(self.format)(value))
        );
    }

    /// The names below the columns, and those of both axes.
    fn draw_columns_and_axes(&self, out: &mut String) {
        for (column, name) in self.columns.iter().enumerate() {
            _ = write!(
                out,
                "<text class=\"tick name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                Self::LEFT + self.column_width() * (column as f64 + 0.5),
                self.bottom() + 18.0,
                escape(name)
            );
        }
        _ = write!(
            out,
            "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text><text class=\"axis\" transform=\"translate(15 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            Self::LEFT + (WIDTH - Self::LEFT - 20.0) / 2.0,
            self.bottom() + 42.0,
            escape(&self.x_label),
            Self::TOP + Self::CELL * self.rows.len() as f64 / 2.0,
            escape(&self.y_label)
        );
    }
}

/// How strong the colour of a number is.
struct Shades {
    low: f64,
    high: f64,
    logarithmic: bool,
    low_is_good: bool,
}

impl Shades {
    fn of(map: &HeatMap) -> Self {
        let known: Vec<f64> = map.cells.iter().flatten().flatten().copied().filter(|value| value.is_finite()).collect();
        let low = known.iter().copied().fold(f64::INFINITY, f64::min);
        let high = known.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self { low, high, logarithmic: low > 0.0 && high / low > 10.0, low_is_good: map.low_is_good }
    }

    /// From 0 for the worst number to 1 for the best.
    fn strength(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.5 };
        if self.low_is_good { 1.0 - share } else { share }
    }
}

/// A row of a forest plot: a ratio of ours to theirs with its interval.
#[derive(Clone, Debug)]
pub struct ForestRow {
    /// What was compared.
    pub name: String,
    /// The ratio.
    pub ratio: Interval,
    /// Whether more is better.
    pub more_is_better: bool,
}

/// Ratios with their intervals around 1, on a logarithmic axis; grey where the interval holds 1.
pub fn forest(title: &str, rows: &[ForestRow], left_word: &str, right_word: &str) -> String {
    const ROW: f64 = 34.0;
    const NAMES: f64 = 250.0;
    const NUMBERS: f64 = 190.0;
    let height = 34.0 + ROW * rows.len() as f64 + 40.0;
    let (mut low, mut high) = (0.8f64, 1.25f64);
    for row in rows {
        low = low.min(row.ratio.low / 1.1).max(0.01);
        high = high.max(row.ratio.high * 1.1).min(100.0);
    }
    let place = |value: f64| {
        let share = (value.clamp(low, high) / low).ln() / (high / low).ln();
        NAMES + share * (WIDTH - NAMES - NUMBERS)
    };
    let bottom = 34.0 + ROW * rows.len() as f64;
    let mut out = open(title, height);
    for tick in [0.01, 0.02, 0.05, 0.1, 0.2, 0.33, 0.5, 0.8, 1.0, 1.25, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0] {
        if tick >= low && tick <= high {
            let (at, class) = (place(tick), if tick == 1.0 { "base" } else { "grid" });
            _ = write!(
                out,
                "<path class=\"{class}\" d=\"M{at:.1} 26V{bottom:.1}\"/><text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick}×</text>",
                bottom + 16.0
            );
        }
    }
    _ = write!(
        out,
        "<text class=\"tick\" x=\"{:.1}\" y=\"16\" text-anchor=\"end\">← {}</text><text class=\"tick\" x=\"{:.1}\" y=\"16\">{} →</text>",
        place(1.0) - 8.0,
        escape(left_word),
        place(1.0) + 8.0,
        escape(right_word)
    );
    for (row, index) in rows.iter().zip(0u32..) {
        let middle = 34.0 + ROW * (f64::from(index) + 0.5);
        let found = finding(&row.ratio);
        let colour = match (found, row.more_is_better) {
            (Finding::NoDifferenceShown, _) => "var(--soft)",
            (Finding::Higher, true) | (Finding::Lower, false) => "var(--good)",
            _ => "var(--bad)",
        };
        let text = format!("{:.2}×  [{:.2}, {:.2}]", row.ratio.value, row.ratio.low, row.ratio.high);
        _ = write!(
            out,
            "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <path style=\"stroke:{colour};stroke-width:2.5\" d=\"M{:.1} {middle:.1}H{:.1}M{:.1} {:.1}v10M{:.1} {:.1}v10\"/>\
             <circle style=\"fill:{colour}\" cx=\"{:.1}\" cy=\"{middle:.1}\" r=\"5.5\"><title>{}: {}</title></circle>\
             <text class=\"tick name\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            NAMES - 14.0,
            middle + 4.0,
            escape(&row.name),
            place(row.ratio.low),
            place(row.ratio.high),
            place(row.ratio.low),
            middle - 5.0,
            place(row.ratio.high),
            middle - 5.0,
            place(row.ratio.value),
            escape(&row.name),
            escape(&text),
            WIDTH - NUMBERS + 16.0,
            middle + 4.0,
            escape(&text)
        );
    }
    out.push_str("</svg>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heat_map_names_every_cell_and_outlines_the_pick() {
        let map = HeatMap {
            title: "p99".to_owned(),
            x_label: "linger".to_owned(),
            y_label: "batch".to_owned(),
            columns: vec!["0 ms".to_owned(), "5 ms".to_owned()],
            rows: vec!["16 KiB".to_owned(), "64 KiB".to_owned()],
            cells: vec![vec![Some(1000.0), None], vec![Some(50_000.0), Some(f64::NAN)]],
            format: crate::bench::units::micros,
            low_is_good: true,
            default: Some((0, 1)),
            pick: Some((1, 0)),
        };
        let svg = map.to_svg();
        assert!(svg.contains("50.0 ms") && svg.contains("class=\"pick\"") && svg.contains("class=\"default\""));
        assert!(svg.contains(">–<") && svg.ends_with("</svg>"));
    }

    #[test]
    fn a_ratio_without_a_shown_difference_is_grey() {
        let row = |low, high| ForestRow {
            name: "MB/s".to_owned(),
            ratio: Interval { value: 1.0, low, high },
            more_is_better: true,
        };
        let svg = forest("ratios", &[row(0.9, 1.1), row(1.1, 1.3), row(0.5, 0.7)], "Kafka", "Ringlog");
        assert!(
            svg.contains("stroke:var(--soft)")
                && svg.contains("stroke:var(--good)")
                && svg.contains("stroke:var(--bad)")
        );
    }

    fn panel(groups: usize, things: usize) -> Panel {
        let bar = |value: usize| Bar {
            name: format!("shard {value}"),
            value: value as f64,
            text: format!("{value}00"),
            style: 0,
        };
        let group = || (0..things).map(|value| (value.to_string(), bar(value))).collect();
        Panel { name: "writes".to_owned(), groups: (0..groups).map(|_| group()).collect() }
    }

    #[test]
    fn few_upright_bars_have_their_numbers_over_them_and_many_the_largest_beside_the_name() {
        let few = panels("t", &[], &[panel(1, 3)]);
        assert!(few.contains(">200</text>") && !few.contains("at most"), "{few}");
        let many = panels("t", &[("a", 0), ("b", 1)], &[panel(2, 100)]);
        assert!(!many.contains(">200</text>") && many.contains(">at most 9900</text>"));
        assert_eq!(many.matches("<title>shard 99: 9900</title>").count(), 2);
        // The last of them still stands within the picture, and the tallest below its panel's name.
        let places = |name: &str| -> Vec<f64> {
            many.split("<rect")
                .skip(1)
                .filter_map(|rect| rect.split(name).nth(1)?.split('"').nth(1)?.parse().ok())
                .collect()
        };
        assert_eq!(places(" x=").len(), 200);
        assert!(places(" x=").iter().all(|x| (0.0..WIDTH / 3.0).contains(x)));
        assert!(places(" y=").iter().all(|y| *y > 20.0));
    }

    #[test]
    fn panels_of_nothing_have_no_bars_and_no_broken_numbers() {
        for groups in [Vec::new(), vec![Vec::new()]] {
            let svg = panels("t", &[], &[Panel { name: "none".to_owned(), groups }]);
            assert!(svg.ends_with("</svg>") && !svg.contains("NaN") && !svg.contains("inf") && !svg.contains("<rect"));
        }
    }

    #[test]
    fn parts_follow_each_other_and_each_group_has_its_own_scale() {
        let part = |value: f64| Bar { name: format!("part {value}"), value, text: format!("{value} s"), style: 0 };
        let stack = |values: &[f64]| Stack {
            name: "a".to_owned(),
            parts: values.iter().map(|value| part(*value)).collect(),
            text: "all".to_owned(),
        };
        let svg = stacks("t", &[("part", 0)], &[vec![stack(&[1.0, 3.0]), stack(&[2.0])], vec![stack(&[1000.0])]]);
        // 440 units of room for 4 s in the first group, and for 1000 s in the second.
        for rect in
            ["x=\"200.0\" y=\"30.0\" width=\"110.0\"", "x=\"310.0\" y=\"30.0\" width=\"330.0\"", "width=\"220.0\""]
        {
            assert!(svg.contains(rect), "{rect} in {svg}");
        }
        assert_eq!(svg.matches("width=\"440.0\"").count(), 1, "{svg}");
        assert!(svg.contains("<title>part 1000: 1000 s</title>") && svg.contains(">3 s</text>"), "{svg}");
    }

    #[test]
    fn stacks_of_nothing_have_no_broken_numbers_and_no_words_without_room() {
        let part = Bar { name: "a".to_owned(), value: 0.0, text: "0 µs".to_owned(), style: 9 };
        let empty = Stack { name: "a".to_owned(), parts: vec![part], text: String::new() };
        let svg = stacks("t", &[("a", 0)], &[Vec::new(), vec![empty]]);
        assert!(!svg.contains("NaN") && !svg.contains("inf") && svg.contains("width=\"0.0\""), "{svg}");
        assert!(!svg.contains(">0 µs</text>") && svg.contains("<title>a: 0 µs</title>"), "{svg}");
    }

    #[test]
    fn bars_of_nothing_have_no_length() {
        let row = Bar { name: "a".to_owned(), value: -1.0, text: "none".to_owned(), style: 0 };
        assert!(bars("t", &[row], None).contains("width=\"0.0\""));
    }
}
