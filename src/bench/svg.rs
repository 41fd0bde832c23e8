//! Charts as SVG text: lines, areas and dots over two axes.
//!
//! Pure. Owns scales, ticks, legends and the style sheet all figures share. Does not own which figures a report has.
//! Always true: a chart says the same without colour (dash patterns and markers differ too), in the dark, on paper, and
//! outside its page ([`standalone`] carries its own style). Numbers reach the text escaped; nothing is fetched.

use std::fmt::Write as _;

/// How many line styles there are before they repeat: colours (told apart by all common kinds of colour blindness) and
/// dash patterns change together.
pub const STYLES: usize = 6;
/// Of the drawing, in its own units.
pub const WIDTH: f64 = 860.0;
/// Points of one line that are drawn; the picture has no more columns than that.
const POINTS_MAX: usize = 700;
/// Points of one line that get a tooltip.
const TOOLTIPS_MAX: usize = 120;

const LEFT: f64 = 74.0;
const RIGHT: f64 = 18.0;
const BOTTOM: f64 = 46.0;
const TOP: f64 = 14.0;
const LEGEND_ROW: f64 = 22.0;

/// What every figure's style sheet says; a page that holds figures includes it once.
pub const STYLE: &str = "\
.chart{--ink:#1c2430;--soft:#5b6675;--line:#d9dee5;--faint:#eef1f5;--paper:#fff;--s0:#0b66c3;--s1:#c8500a;--s2:#08805a;--s3:#9a3f86;--s4:#8a6d00;--s5:#4a5568;--good:#08805a;--bad:#b3261e;\
font:12.5px/1.4 ui-sans-serif,system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}\
@media (prefers-color-scheme:dark){.chart{--ink:#e6eaf0;--soft:#9aa6b5;--line:#313a47;--faint:#202833;--paper:#151b23;--s0:#62a9f5;--s1:#f59255;--s2:#4cc79b;--s3:#d98cc9;--s4:#d9b94a;--s5:#aab4c2;--good:#4cc79b;--bad:#f2857d}}\
@media print{.chart{--ink:#000;--soft:#444;--line:#ccc;--faint:#f0f0f0;--paper:#fff;--s0:#0b66c3;--s1:#c8500a;--s2:#08805a;--s3:#9a3f86;--s4:#8a6d00;--s5:#4a5568;--good:#08805a;--bad:#b3261e}}\
.chart text{fill:var(--soft)}.chart .name{fill:var(--ink)}.chart .axis{font-size:12px}.chart .tick{font-size:11.5px;font-variant-numeric:tabular-nums}\
.chart .grid{stroke:var(--line);stroke-width:1;shape-rendering:crispEdges}.chart .minor{stroke:var(--faint)}.chart .base{stroke:var(--soft);stroke-width:1;shape-rendering:crispEdges}\
.chart .band{fill:var(--faint)}.chart .band-name{paint-order:stroke;stroke:var(--faint);stroke-width:4px;stroke-linejoin:round}.chart .mark{stroke:var(--bad);stroke-width:1.2;stroke-dasharray:2 3;fill:none}.chart .marktext{fill:var(--bad);font-size:11.5px}\
.chart .l{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}.chart .a{stroke:none;opacity:.1}.chart .d{stroke:var(--paper);stroke-width:1.4}.chart .h{fill:transparent}\
.chart .s0{stroke:var(--s0)}.chart .s1{stroke:var(--s1);stroke-dasharray:7 3.5}.chart .s2{stroke:var(--s2);stroke-dasharray:2 3.2}.chart .s3{stroke:var(--s3);stroke-dasharray:10 3.5 2 3.5}.chart .s4{stroke:var(--s4);stroke-dasharray:5 2 1.5 2 1.5 2}.chart .s5{stroke:var(--s5);stroke-dasharray:1 2.6}\
.chart .f0{fill:var(--s0)}.chart .f1{fill:var(--s1)}.chart .f2{fill:var(--s2)}.chart .f3{fill:var(--s3)}.chart .f4{fill:var(--s4)}.chart .f5{fill:var(--s5)}.chart .solid{stroke-dasharray:none}\
.chart .grey{stroke:var(--soft);fill:var(--soft)}.chart .pick{fill:none;stroke:var(--ink);stroke-width:2.5}.chart .default{fill:none;stroke:var(--ink);stroke-width:1.5;stroke-dasharray:3 2.5}.chart .cell{stroke:var(--paper);stroke-width:1.5}";

/// How a value becomes a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from zero or from the smallest value.
    Linear,
    /// Each power of ten the same width; values below the smallest positive one sit on the edge.
    Log,
}

/// One axis.
#[derive(Clone)]
pub struct Axis {
    /// What it shows, with its unit.
    pub label: String,
    /// Its scale.
    pub scale: Scale,
    /// How a tick is written.
    pub format: fn(f64) -> String,
    /// Ends, where the data should not choose them.
    pub range: Option<(f64, f64)>,
    /// Ticks, where round numbers would be wrong.
    pub ticks: Option<Vec<(f64, String)>>,
}

impl Axis {
    /// Linear, ends chosen by the data, zero included.
    pub fn linear(label: &str, format: fn(f64) -> String) -> Self {
        Self { label: label.to_owned(), scale: Scale::Linear, format, range: None, ticks: None }
    }

    /// Logarithmic, ends chosen by the data.
    pub fn log(label: &str, format: fn(f64) -> String) -> Self {
        Self { scale: Scale::Log, ..Self::linear(label, format) }
    }
}

/// One line, or a cloud of dots.
#[derive(Clone, Default)]
pub struct Line {
    /// In the legend.
    pub name: String,
    /// In the order in which they are joined.
    pub points: Vec<(f64, f64)>,
    /// Which of the [`STYLES`].
    pub style: usize,
    /// Fill down to the axis.
    pub area: bool,
    /// A dot at each point.
    pub dots: bool,
    /// No line between the points.
    pub scattered: bool,
    /// A label beside each point; as many as points, or none.
    pub labels: Vec<String>,
}

impl Line {
    /// A plain line.
    pub fn new(name: impl Into<String>, style: usize, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, style, ..Self::default() }
    }
}

/// A limit or an event drawn across the plot.
#[derive(Clone)]
pub enum Mark {
    /// Along a value of the vertical axis.
    Across(f64, String),
    /// At a value of the horizontal axis.
    At(f64, String),
}

/// A figure of lines.
#[derive(Clone)]
pub struct Chart {
    /// Said to those who cannot see it.
    pub title: String,
    /// Horizontal.
    pub x: Axis,
    /// Vertical.
    pub y: Axis,
    /// What is drawn.
    pub lines: Vec<Line>,
    /// Shaded stretches of the horizontal axis and what they are.
    pub bands: Vec<(f64, f64, String)>,
    /// Limits and events.
    pub marks: Vec<Mark>,
    /// Height of the whole picture.
    pub height: f64,
}

impl Chart {
    /// Without lines yet.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { title: title.into(), x, y, lines: Vec::new(), bands: Vec::new(), marks: Vec::new(), height: 320.0 }
    }

    /// Whether there is anything to see.
    pub fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.points.is_empty())
    }

    /// The picture, to be put into a page with [`STYLE`].
    pub fn to_svg(&self) -> String {
        let names: Vec<(&str, usize)> = self
            .lines
            .iter()
            .filter(|line| !line.points.is_empty())
            .map(|line| (line.name.as_str(), line.style))
            .collect();
        let (legend, legend_height) = legend(&names);
        let top = TOP + legend_height;
        let all = || self.lines.iter().flat_map(|line| line.points.iter().copied());
        let mut ys: Vec<f64> = all().map(|point| point.1).collect();
        ys.extend(self.marks.iter().filter_map(|mark| match mark {
            Mark::Across(value, _) => Some(*value),
            Mark::At(..) => None,
        }));
        let x = Placed::new(&self.x, all().map(|point| point.0), LEFT, WIDTH - RIGHT, 9);
        let y = Placed::new(&self.y, ys.into_iter(), self.height - BOTTOM, top, 6);
        let mut out = open(&self.title, self.height);
        for (from, to, name) in &self.bands {
            let (left, right) = (x.place(*from), x.place(*to));
            if right - left > 0.5 {
                _ = write!(
                    out,
                    "<rect class=\"band\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
                    right - left,
                    self.height - BOTTOM - top,
                    escape(name)
                );
            }
        }
        self.draw_axes(&mut out, &x, &y, top);
        // Their names come after the grid, which would strike them through.
        for (from, to, name) in &self.bands {
            let (left, right) = (x.place(*from), x.place(*to));
            if right - left > 8.0 * name.len() as f64 {
                let (at, down) = (left + 6.0, top + 14.0);
                _ = write!(out, "<text class=\"tick band-name\" x=\"{at:.1}\" y=\"{down:.1}\">{}</text>", escape(name));
            }
        }
        out.push_str(&legend);
        for line in &self.lines {
            self.draw_line(&mut out, line, &x, &y);
        }
        for mark in &self.marks {
            match mark {
                Mark::Across(value, name) => {
                    let at = y.place(*value);
                    _ = write!(
                        out,
                        "<path class=\"mark\" d=\"M{LEFT} {at:.1}H{:.1}\"/><text class=\"marktext\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                        WIDTH - RIGHT,
                        WIDTH - RIGHT - 4.0,
                        at - 5.0,
                        escape(name)
                    );
                }
                Mark::At(value, name) => {
                    let at = x.place(*value);
                    let (anchor, shift) = if at > WIDTH * 0.7 { ("end", -5.0) } else { ("start", 5.0) };
                    _ = write!(
                        out,
                        "<path class=\"mark\" d=\"M{at:.1} {top:.1}V{:.1}\"/><text class=\"marktext\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
                        self.height - BOTTOM,
                        at + shift,
                        top + 14.0,
                        escape(name)
                    );
                }
            }
        }
        out.push_str("</svg>");
        out
    }

    fn draw_axes(&self, out: &mut String, x: &Placed, y: &Placed, top: f64) {
        let bottom = self.height - BOTTOM;
        for (value, text) in &y.ticks {
            let at = y.place(*value);
            let class = if text.is_empty() { "grid minor" } else { "grid" };
            _ = write!(out, "<path class=\"{class}\" d=\"M{LEFT} {at:.1}H{:.1}\"/>", WIDTH - RIGHT);
            if !text.is_empty() {
                _ = write!(
                    out,
                    "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                    LEFT - 8.0,
                    at + 4.0,
                    escape(text)
                );
            }
        }
        for (value, text) in &x.ticks {
            let at = x.place(*value);
            _ = write!(out, "<path class=\"base\" d=\"M{at:.1} {bottom:.1}v4\"/>");
            if !text.is_empty() {
                _ = write!(
                    out,
                    "<text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                    bottom + 17.0,
                    escape(text)
                );
            }
        }
        _ = write!(out, "<path class=\"base\" d=\"M{LEFT} {bottom:.1}H{:.1}\"/>", WIDTH - RIGHT);
        _ = write!(
            out,
            "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            (LEFT + WIDTH - RIGHT) / 2.0,
            self.height - 10.0,
            escape(&self.x.label)
        );
        let middle = (top + bottom) / 2.0;
        _ = write!(
            out,
            "<text class=\"axis\" transform=\"translate(15 {middle:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            escape(&self.y.label)
        );
    }

    fn draw_line(&self, out: &mut String, line: &Line, x: &Placed, y: &Placed) {
        let style = line.style % STYLES;
        let points: Vec<(f64, f64)> = thin(&line.points).into_iter().map(|(a, b)| (x.place(a), y.place(b))).collect();
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
        let mut path = String::new();
        for (index, (left, top)) in points.iter().enumerate() {
            _ = write!(path, "{}{left:.1} {top:.1}", if index == 0 { "M" } else { "L" });
        }
        if line.area {
            let floor = self.height - BOTTOM;
            _ = write!(
                out,
                "<path class=\"a f{style}\" d=\"{path}L{:.1} {floor:.1}L{:.1} {floor:.1}Z\"/>",
                last.0, first.0
            );
        }
        if !line.scattered {
            _ = write!(out, "<path class=\"l s{style}\" d=\"{path}\"/>");
        }
        // Tooltips on dots that may be invisible: they need no script.
        let step = line.points.len().div_ceil(TOOLTIPS_MAX).max(1);
        for (index, (a, b)) in line.points.iter().enumerate().step_by(step) {
            let (left, top) = (x.place(*a), y.place(*b));
            let label = line.labels.get(index).map(String::as_str).unwrap_or_default();
            let tooltip = escape(&format!(
                "{}{}{}: {} at {}",
                line.name,
                if label.is_empty() { "" } else { " " },
                label,
                (self.y.format)(*b),
                (self.x.format)(*a)
            ));
            let (class, radius) = if line.dots { (format!("d f{style}"), 4.5) } else { ("h".to_owned(), 7.0) };
            _ = write!(
                out,
                "<circle class=\"{class}\" cx=\"{left:.1}\" cy=\"{top:.1}\" r=\"{radius}\"><title>{tooltip}</title></circle>"
            );
            if !label.is_empty() {
                let (anchor, shift) = if left > WIDTH * 0.8 { ("end", -9.0) } else { ("start", 9.0) };
                _ = write!(
                    out,
                    "<text class=\"tick name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
                    left + shift,
                    top - 7.0,
                    escape(label)
                );
            }
        }
    }
}

/// A picture that stands alone: to be downloaded.
pub fn standalone(svg: &str) -> String {
    let (head, rest) = svg.split_once('>').unwrap_or((svg, ""));
    format!(
        "{head} xmlns=\"http://www.w3.org/2000/svg\"><style>{STYLE}</style><rect width=\"100%\" height=\"100%\" fill=\"var(--paper)\"/>{rest}"
    )
}

/// The opening tag of a picture of [`WIDTH`] and `height`, named for those who cannot see it.
pub fn open(title: &str, height: f64) -> String {
    format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\"><title>{}</title>",
        escape(title),
        escape(title)
    )
}

/// Text safe within markup and attributes.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // XML has no place for the other control characters.
            control if control.is_control() && control != '\n' && control != '\t' => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}

/// Names with a piece of their line each, in rows; and how high they are. One name alone needs no legend but gets one all
/// the same when it says what the axis does not.
pub fn legend(names: &[(&str, usize)]) -> (String, f64) {
    if names.is_empty() {
        return (String::new(), 0.0);
    }
    let mut out = String::new();
    let (mut left, mut row) = (LEFT, 0.0);
    for (name, style) in names {
        let width = 44.0 + 6.9 * name.chars().count() as f64;
        if left + width > WIDTH - RIGHT && left > LEFT {
            left = LEFT;
            row += 1.0;
        }
        let middle = TOP + row * LEGEND_ROW;
        _ = write!(
            out,
            "<path class=\"l s{}\" d=\"M{left:.1} {middle:.1}h24\"/><text class=\"name\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            style % STYLES,
            left + 30.0,
            middle + 4.0,
            escape(name)
        );
        left += width;
    }
    (out, (row + 1.0) * LEGEND_ROW)
}

/// At most [`POINTS_MAX`] points, keeping of each stretch the lowest and the highest: a spike of one second is what people
/// look for.
fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= POINTS_MAX {
        return points.to_vec();
    }
    let stretch = points.len().div_ceil(POINTS_MAX / 2);
    let mut kept = Vec::with_capacity(POINTS_MAX);
    for piece in points.chunks(stretch) {
        let by_height = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        if let (Some(low), Some(high)) = (piece.iter().min_by(by_height), piece.iter().max_by(by_height)) {
            let (first, second) = if low.0 <= high.0 { (low, high) } else { (high, low) };
            kept.extend([*first, *second]);
        }
    }
    kept
}

/// An axis laid over a stretch of the picture.
struct Placed {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    ticks: Vec<(f64, String)>,
}

impl Placed {
    fn new(axis: &Axis, values: impl Iterator<Item = f64>, from: f64, to: f64, ticks_wanted: usize) -> Self {
        let values: Vec<f64> =
            values.filter(|value| value.is_finite() && (axis.scale == Scale::Linear || *value > 0.0)).collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = match (axis.range, axis.scale) {
            (Some(range), _) => range,
            _ if values.is_empty() => (if axis.scale == Scale::Log { 1.0 } else { 0.0 }, 10.0),
            (None, Scale::Linear) => {
                let high = if high > 0.0 { high * 1.06 } else { 1.0 };
                (low.min(0.0), high)
            }
            (None, Scale::Log) => {
                let (low, high) = (low / 1.25, high * 1.25);
                if high / low < 10.0 { ((low * high).sqrt() / 3.2, (low * high).sqrt() * 3.2) } else { (low, high) }
            }
        };
        let ticks = match (&axis.ticks, axis.scale) {
            (Some(ticks), _) => ticks.clone(),
            (None, Scale::Linear) => linear_ticks(low, high, ticks_wanted, axis.format),
            (None, Scale::Log) => log_ticks(low, high, axis.format),
        };
        Self { scale: axis.scale, low, high, from, to, ticks }
    }

    fn place(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value.max(self.low).ln() - self.low.ln()) / (self.high.ln() - self.low.ln()),
        };
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        self.from + (self.to - self.from) * share
    }
}

/// `50.0 k` as `50 k`: ticks are round, and their digits are noise.
fn without_zeros(text: String) -> String {
    let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
    if !number.contains('.') {
        return text;
    }
    let number = number.trim_end_matches('0').trim_end_matches('.');
    if unit.is_empty() { number.to_owned() } else { format!("{number} {unit}") }
}

fn linear_ticks(low: f64, high: f64, wanted: usize, format: fn(f64) -> String) -> Vec<(f64, String)> {
    let rough = (high - low) / wanted as f64;
    if rough <= 0.0 || !rough.is_finite() {
        return Vec::new();
    }
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(10.0 * power);
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last).map(|count| (count as f64 * step, without_zeros(format(count as f64 * step)))).collect()
}

fn log_ticks(low: f64, high: f64, format: fn(f64) -> String) -> Vec<(f64, String)> {
    let decades = (high / low).log10();
    let mut ticks = Vec::new();
    let mut power = 10f64.powf(low.log10().floor());
    while power <= high {
        for factor in 1..10 {
            let value = power * f64::from(factor);
            if value < low || value > high {
                continue;
            }
            let named = factor == 1 || (decades < 2.5 && (factor == 2 || factor == 5));
            if named || decades < 3.5 {
                ticks.push((value, if named { without_zeros(format(value)) } else { String::new() }));
            }
        }
        power *= 10.0;
    }
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let mut chart = Chart::new(
            "A & B",
            Axis::linear("seconds", |value| format!("{value}")),
            Axis::log("µs", super::super::units::micros),
        );
        chart.lines.push(Line::new("p50 <quick>", 0, vec![(0.0, 100.0), (1.0, 1000.0), (2.0, 10.0)]));
        chart.lines.push(Line { dots: true, ..Line::new("p99", 1, vec![(0.0, 5000.0), (2.0, 50_000.0)]) });
        chart.bands.push((0.0, 1.0, "warm-up".to_owned()));
        chart.marks.push(Mark::Across(20_000.0, "limit".to_owned()));
        chart
    }

    /// Tags open and close in order: what an XML reader would refuse is found here.
    fn well_formed(markup: &str) {
        let mut open = Vec::new();
        for tag in markup.split('<').skip(1) {
            let (tag, _) = tag.split_once('>').expect("every tag is closed");
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name.to_owned()));
            } else if !tag.ends_with('/') {
                open.push(tag.split(' ').next().unwrap().to_owned());
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn a_chart_is_well_formed_escaped_and_named() {
        let svg = chart().to_svg();
        well_formed(&svg);
        well_formed(&standalone(&svg));
        assert!(svg.contains("aria-label=\"A &amp; B\"") && svg.contains("p50 &lt;quick&gt;"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert!(
            standalone(&svg).contains("xmlns=\"http://www.w3.org/2000/svg\"")
                && standalone(&svg).contains("prefers-color-scheme:dark")
        );
    }

    #[test]
    fn empty_and_hostile_data_draw_no_nonsense() {
        let mut chart = chart();
        chart.lines = vec![
            Line::new("none", 0, vec![]),
            Line::new("odd", 1, vec![(0.0, f64::NAN), (f64::INFINITY, -5.0), (1.0, 0.0)]),
        ];
        let svg = chart.to_svg();
        well_formed(&svg);
        assert!(!svg.contains("NaN\"") && !svg.contains("cx=\"inf"), "{svg}");
    }

    #[test]
    fn ticks_are_round_and_within_the_axis() {
        let texts = |ticks: Vec<(f64, String)>| ticks.into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(
            texts(linear_ticks(0.0, 106.0, 6, |value| format!("{value}"))),
            ["0", "20", "40", "60", "80", "100"]
        );
        let named: Vec<String> = texts(log_ticks(80.0, 12_000.0, |value| format!("{value}")))
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect();
        assert_eq!(named, ["100", "200", "500", "1000", "2000", "5000", "10000"]);
        assert!(linear_ticks(0.0, 0.0, 6, |_| String::new()).is_empty());
    }

    #[test]
    fn thinning_keeps_the_spike() {
        let mut points: Vec<(f64, f64)> = (0..10_000).map(|index| (f64::from(index), 1.0)).collect();
        points[7777].1 = 99.0;
        let kept = thin(&points);
        assert!(kept.len() <= POINTS_MAX + 2 && kept.iter().any(|point| point.1 == 99.0));
        assert!(kept.is_sorted_by(|a, b| a.0 <= b.0));
    }
}
