//! Plots as inline SVG: axes, lines, bars, points. Pure; colours come from the page's style sheet.
//!
//! A plot fills an area of its picture. A picture of one plot is finished here; one of several panels, with
//! a legend, is put together in [`crate::chart`].

use std::fmt::Write as _;

/// Size of a picture of one plot and of the space its labels take, in SVG units.
pub const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 110.0;
const BOTTOM: f64 = 46.0;
const TOP: f64 = 12.0;
const RIGHT: f64 = 16.0;
/// Colours of series: six that most eyes tell apart (Okabe and Ito), then darker and greyer ones.
pub const COLOURS: [&str; 12] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7b1f56", "#4d4d4d", "#8c6d31",
    "#9aa700", "#7a8fa6", "#b22222",
];
/// How text and grid look, in a page and in a file of its own.
pub const STYLE: &str = "svg text{font:12px system-ui,sans-serif;fill:#555}svg .strong{font-weight:600}\
.grid{stroke:#ddd}.rule{stroke:#c00;stroke-dasharray:6 4}svg .ruled{fill:#c00;font-weight:600;paint-order:stroke;stroke:#fff;stroke-width:4px}\
svg .note{font-size:11px;paint-order:stroke;stroke:#fff;stroke-width:3px}";

/// The colour of a series.
pub fn colour(series: usize) -> &'static str {
    COLOURS[series % COLOURS.len()]
}

/// Text that is safe inside HTML and SVG, attributes too.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// What the x axis counts.
#[derive(Clone, Debug, PartialEq)]
pub enum Across {
    /// Numbers, from the first to the second.
    Numbers(f64, f64),
    /// Things by name: the i-th stands at `i + 0.5`. An empty name is no tick.
    Names(Vec<String>),
}

impl Across {
    fn range(&self) -> (f64, f64) {
        match self {
            Self::Numbers(from, to) if from.is_finite() && to.is_finite() && from < to => (*from, *to),
            Self::Numbers(..) => (0.0, 1.0),
            Self::Names(names) => (0.0, names.len().max(1) as f64),
        }
    }

    fn ticks(&self) -> Vec<(f64, String)> {
        let (from, to) = self.range();
        match self {
            Self::Numbers(..) => ticks(from, to).into_iter().map(|value| (value, short(value))).collect(),
            Self::Names(names) => {
                let places = names.iter().enumerate().filter(|(_, name)| !name.is_empty());
                places.map(|(i, name)| (i as f64 + 0.5, name.clone())).collect()
            }
        }
    }
}

/// The rectangle between a plot's axes, in SVG units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    /// Its left edge.
    pub left: f64,
    /// Its upper edge.
    pub top: f64,
    /// Its right edge.
    pub right: f64,
    /// Its lower edge.
    pub bottom: f64,
}

/// What the axes of a plot are called.
#[derive(Clone, Copy, Debug)]
pub struct AxisLabels<'a> {
    /// Below the x axis.
    pub x: &'a str,
    /// Beside the y axis.
    pub y: &'a str,
}

/// A filled rectangle: from a corner, this wide and this high. In which units, the function that takes it
/// says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rectangle {
    /// Where it begins, across.
    pub x: f64,
    /// Where it begins, from above or from below.
    pub y: f64,
    /// Its extent across.
    pub width: f64,
    /// Its extent upwards or downwards.
    pub height: f64,
}

/// A plot under construction, with linear axes.
pub struct Plot {
    body: String,
    area: Area,
    x: (f64, f64),
    y: (f64, f64),
    height: f64,
}

impl Plot {
    /// Axes from 0 up to the largest values, with labels.
    pub fn new(x_max: f64, y_max: f64, x_label: &str, y_label: &str) -> Self {
        let mut plot = Self::bare(x_max, y_max, HEIGHT, x_label);
        plot.y_axis(y_label, 14.0);
        plot
    }

    /// An x axis alone, for bars that name themselves.
    pub fn bare(x_max: f64, y_max: f64, height: f64, x_label: &str) -> Self {
        let area = Area { left: LEFT, top: TOP, right: WIDTH - RIGHT, bottom: height - BOTTOM };
        let across = Across::Numbers(0.0, x_max);
        let mut plot = Self::empty(area, &across, (0.0, y_max), height);
        plot.x_axis(&across, x_label);
        plot
    }

    /// Axes around an area of a larger picture.
    pub fn within(area: Area, across: &Across, y: (f64, f64), labels: AxisLabels<'_>) -> Self {
        let mut plot = Self::empty(area, across, y, area.bottom + BOTTOM);
        plot.x_axis(across, labels.x);
        plot.y_axis(labels.y, area.left - 40.0);
        plot
    }

    fn empty(area: Area, across: &Across, (y_min, y_max): (f64, f64), height: f64) -> Self {
        let is_sound = y_min.is_finite() && y_max.is_finite() && y_min < y_max;
        let y = if is_sound { (y_min, y_max) } else { (0.0, 1.0) };
        Self { body: String::new(), area, x: across.range(), y, height }
    }

    fn x_axis(&mut self, across: &Across, label: &str) {
        let Area { left, top, right, bottom } = self.area;
        let named = matches!(across, Across::Names(_));
        for (value, text) in across.ticks() {
            let x = self.x(value);
            if !named {
                self.put(format_args!(
                    r#"<line class="grid" x1="{x:.1}" x2="{x:.1}" y1="{top}" y2="{bottom:.1}"/>"#
                ));
            }
            self.text((x, bottom + 16.0), "middle", "", &text);
        }
        if named {
            self.put(format_args!(
                r#"<line class="grid" x1="{left:.1}" x2="{right:.1}" y1="{bottom:.1}" y2="{bottom:.1}"/>"#
            ));
        }
        self.text((left + (right - left) / 2.0, bottom + 38.0), "middle", "", label);
    }

    fn y_axis(&mut self, label: &str, label_x: f64) {
        let Area { left, top, right, bottom } = self.area;
        for tick in ticks(self.y.0, self.y.1) {
            let y = self.y(tick);
            self.put(format_args!(
                r#"<line class="grid" x1="{left}" x2="{right:.1}" y1="{y:.1}" y2="{y:.1}"/>"#
            ));
            self.text((left - 6.0, y + 4.0), "end", "", &short(tick));
        }
        let middle = top + (bottom - top) / 2.0;
        self.put(format_args!(
            r#"<text transform="translate({label_x:.1} {middle:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
            escape(label)
        ));
    }

    fn put(&mut self, what: std::fmt::Arguments<'_>) {
        self.body.write_fmt(what).expect("a string takes what is written to it");
    }

    fn x(&self, value: f64) -> f64 {
        let (from, to) = self.x;
        self.area.left + ((value - from) / (to - from)).clamp(0.0, 1.0) * (self.area.right - self.area.left)
    }

    fn y(&self, value: f64) -> f64 {
        let (from, to) = self.y;
        self.area.bottom - ((value - from) / (to - from)).clamp(0.0, 1.0) * (self.area.bottom - self.area.top)
    }

    /// Text at a place of the picture (SVG units), of a class of the style sheet.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: &str, class: &str, text: &str) {
        let class = if class.is_empty() { String::new() } else { format!(r#" class="{class}""#) };
        self.put(format_args!(
            r#"<text{class} x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#,
            escape(text)
        ));
    }

    /// A line through points in data units.
    pub fn line(&mut self, points: &[(f64, f64)], colour: &str) {
        let path: Vec<String> =
            points.iter().map(|(x, y)| format!("{:.1},{:.1}", self.x(*x), self.y(*y))).collect();
        self.put(format_args!(
            r#"<polyline fill="none" stroke="{colour}" stroke-width="2" points="{}"/>"#,
            path.join(" ")
        ));
    }

    /// A point with a tooltip.
    pub fn point(&mut self, x: f64, y: f64, colour: &str, tip: &str) {
        let (x, y) = (self.x(x), self.y(y));
        self.put(format_args!(
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.5" fill="{colour}" fill-opacity="0.7"><title>{}</title></circle>"#,
            escape(tip)
        ));
    }

    /// A horizontal bar: `x` and `width` in data units, `y` and `height` in SVG units below the upper edge.
    pub fn bar(&mut self, bar: Rectangle, colour: &str, tip: &str) {
        let (from, to) = (self.x(bar.x), self.x(bar.x + bar.width));
        let (y, width) = (self.area.top + bar.y, (to - from).max(0.3));
        self.rectangle(Rectangle { x: from, y, width, height: bar.height }, colour, tip);
    }

    /// An upright bar, in data units: `y` is its foot.
    pub fn column(&mut self, column: Rectangle, colour: &str, tip: &str) {
        let (left, right) = (self.x(column.x), self.x(column.x + column.width));
        let (low, high) = (self.y(column.y), self.y(column.y + column.height));
        self.rectangle(Rectangle { x: left, y: high, width: right - left, height: low - high }, colour, tip);
    }

    /// A rectangle in SVG units, from its upper left corner.
    fn rectangle(&mut self, rectangle: Rectangle, colour: &str, tip: &str) {
        let Rectangle { x, y, width, height } = rectangle;
        self.put(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.2}" height="{height:.1}" fill="{colour}"><title>{}</title></rect>"#,
            escape(tip)
        ));
    }

    /// A dashed line at `y` (data units) that says what it stands for, above it or below.
    pub fn rule(&mut self, y: f64, text: &str, above: bool) {
        let Area { left, top, right, .. } = self.area;
        let y = self.y(y);
        self.put(format_args!(
            r#"<line class="rule" x1="{left:.1}" x2="{right:.1}" y1="{y:.1}" y2="{y:.1}"/>"#
        ));
        let beside = if above { y - 6.0 } else { y + 15.0 };
        self.text((right - 4.0, beside.max(top + 10.0)), "end", "ruled", text);
    }

    /// Text left of the axis, for a bar at `top`.
    pub fn name(&mut self, top: f64, text: &str) {
        self.text((self.area.left - 6.0, self.area.top + top), "end", "", text);
    }

    /// The finished picture; `title` is what a screen reader says.
    pub fn finish(self, title: &str) -> String {
        picture((WIDTH, self.height), title, &self.body)
    }

    /// What was drawn, for a picture that has more in it.
    pub fn into_body(self) -> String {
        self.body
    }

    /// Height of a plot that has room for `inner` SVG units between its axes.
    pub fn height_for(inner: f64) -> f64 {
        inner + TOP + BOTTOM
    }
}

/// A picture of what was drawn.
pub fn picture((width, height): (f64, f64), title: &str, body: &str) -> String {
    format!(
        r#"<svg role="img" viewBox="0 0 {width:.0} {height:.0}"><title>{}</title>{body}</svg>"#,
        escape(title)
    )
}

/// Round values between `from` and `to`: four to ten of them.
fn ticks(from: f64, to: f64) -> Vec<f64> {
    let raw = (to - from) / 5.0;
    let power = 10f64.powf(raw.log10().floor());
    let step =
        [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|m| m * power).find(|step| *step >= raw).unwrap_or(raw);
    let first = (from / step - 1e-6).ceil();
    (0..=10).map(|i| (first + f64::from(i)) * step).take_while(|tick| *tick <= to + step * 1e-6).collect()
}

/// A number for an axis, in at most five letters.
fn short(value: f64) -> String {
    if value >= 10_000.0 {
        return format!("{}k", short(value / 1_000.0));
    }
    let text = if value >= 100.0 || value == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_axis() {
        assert_eq!(ticks(0.0, 10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(0.0, 1.0).len(), 6);
        let texts: Vec<String> = ticks(0.5, 1.0).into_iter().map(short).collect();
        assert_eq!(short(22_500.0), "22.5k");
        assert_eq!(texts, ["0.5", "0.6", "0.7", "0.8", "0.9", "1"]);
        for max in [0.003, 7.0, 99.0, 123_456.0] {
            let ticks = ticks(0.0, max);
            assert!(
                (4..=11).contains(&ticks.len()) && ticks.last() > Some(&(max * 0.74)),
                "{max}: {ticks:?}"
            );
        }
    }

    #[test]
    fn a_plot_of_anything_is_finite_and_escaped() {
        let mut plot = Plot::new(f64::NAN, 0.0, "<x>", "y");
        plot.point(f64::INFINITY, -3.0, colour(9), "\"<script>\"");
        plot.line(&[(0.0, 0.0), (1.0, 1.0)], colour(0));
        plot.column(Rectangle { x: 0.2, y: 0.0, width: 0.1, height: f64::INFINITY }, colour(1), "&");
        plot.rule(7.0, "<r>", true);
        let svg = plot.finish("a & b");
        assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("<script>"), "{svg}");
        assert!(svg.contains("a &amp; b") && svg.contains("&lt;x&gt;"));
    }
}
