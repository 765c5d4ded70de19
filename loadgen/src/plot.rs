//! Plots as inline SVG: axes, lines, bars, points. Pure; colours come from the page's style sheet.

use std::fmt::Write as _;

/// Size of a plot and of the space its labels take, in SVG units.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 110.0;
const BOTTOM: f64 = 46.0;
const TOP: f64 = 12.0;
const RIGHT: f64 = 16.0;
/// Colours of series, told apart by most eyes (Okabe and Ito).
pub const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

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

/// A plot under construction: linear axes from 0.
pub struct Plot {
    body: String,
    x_max: f64,
    y_max: f64,
    height: f64,
}

impl Plot {
    /// Axes up to the largest values, with labels.
    pub fn new(x_max: f64, y_max: f64, x_label: &str, y_label: &str) -> Self {
        let mut plot = Self::bare(x_max, y_max, HEIGHT, x_label);
        for tick in ticks(plot.y_max) {
            let y = plot.y(tick);
            let label = short(tick);
            _ = write!(
                plot.body,
                r#"<line class="grid" x1="{LEFT}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}"/><text x="{:.1}" y="{:.1}" text-anchor="end">{label}</text>"#,
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0
            );
        }
        let middle = TOP + (HEIGHT - TOP - BOTTOM) / 2.0;
        _ = write!(
            plot.body,
            r#"<text transform="translate(14 {middle:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
            escape(y_label)
        );
        plot
    }

    /// An x axis alone, for bars that name themselves.
    pub fn bare(x_max: f64, y_max: f64, height: f64, x_label: &str) -> Self {
        let sound = |value: f64| if value.is_finite() && value > 0.0 { value } else { 1.0 };
        let mut plot = Self { body: String::new(), x_max: sound(x_max), y_max: sound(y_max), height };
        let base = height - BOTTOM;
        for tick in ticks(plot.x_max) {
            let x = plot.x(tick);
            _ = write!(
                plot.body,
                r#"<line class="grid" x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{base:.1}"/><text x="{x:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                base + 16.0,
                short(tick)
            );
        }
        _ = write!(
            plot.body,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            LEFT + (WIDTH - LEFT - RIGHT) / 2.0,
            height - 8.0,
            escape(x_label)
        );
        plot
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (value / self.x_max).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        self.height - BOTTOM - (value / self.y_max).clamp(0.0, 1.0) * (self.height - BOTTOM - TOP)
    }

    /// A line through points in data units.
    pub fn line(&mut self, points: &[(f64, f64)], colour: &str) {
        let path: Vec<String> =
            points.iter().map(|(x, y)| format!("{:.1},{:.1}", self.x(*x), self.y(*y))).collect();
        _ = write!(
            self.body,
            r#"<polyline fill="none" stroke="{colour}" stroke-width="2" points="{}"/>"#,
            path.join(" ")
        );
    }

    /// A point with a tooltip.
    pub fn point(&mut self, x: f64, y: f64, colour: &str, tip: &str) {
        let (x, y) = (self.x(x), self.y(y));
        _ = write!(
            self.body,
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.5" fill="{colour}" fill-opacity="0.7"><title>{}</title></circle>"#,
            escape(tip)
        );
    }

    /// A horizontal bar from `x` to `x + length` (data units) at `top` (SVG units below the upper edge).
    pub fn bar(&mut self, (x, length): (f64, f64), (top, thickness): (f64, f64), colour: &str, tip: &str) {
        let (from, to) = (self.x(x), self.x(x + length));
        _ = write!(
            self.body,
            r#"<rect x="{from:.1}" y="{:.1}" width="{:.2}" height="{thickness:.1}" fill="{colour}"><title>{}</title></rect>"#,
            TOP + top,
            (to - from).max(0.3),
            escape(tip)
        );
    }

    /// Text left of the axis, for a bar at `top`.
    pub fn name(&mut self, top: f64, text: &str) {
        _ = write!(
            self.body,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            LEFT - 6.0,
            TOP + top,
            escape(text)
        );
    }

    /// The finished picture; `title` is what a screen reader says.
    pub fn finish(self, title: &str) -> String {
        format!(
            r#"<svg role="img" viewBox="0 0 {WIDTH} {:.0}"><title>{}</title>{}</svg>"#,
            self.height,
            escape(title),
            self.body
        )
    }

    /// Height of a plot that has room for `inner` SVG units between its axes.
    pub fn height_for(inner: f64) -> f64 {
        inner + TOP + BOTTOM
    }
}

/// Round values from 0 to `max`: four to ten of them.
fn ticks(max: f64) -> Vec<f64> {
    let raw = max / 5.0;
    let power = 10f64.powf(raw.log10().floor());
    let step =
        [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|m| m * power).find(|step| *step >= raw).unwrap_or(raw);
    (0..=10).map(|i| f64::from(i) * step).take_while(|tick| *tick <= max * 1.000_001).collect()
}

/// A number for an axis.
fn short(value: f64) -> String {
    let text = if value >= 100.0 || value == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_axis() {
        assert_eq!(ticks(10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(1.0).len(), 6);
        for max in [0.003, 7.0, 99.0, 123_456.0] {
            let ticks = ticks(max);
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
        let svg = plot.finish("a & b");
        assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("<script>"), "{svg}");
        assert!(svg.contains("a &amp; b") && svg.contains("&lt;x&gt;"));
    }
}
