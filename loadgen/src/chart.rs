//! Charts: panels of lines or of stacked bars with one legend, as one SVG that needs nothing else. Pure.

use std::fmt::Write as _;

use crate::plot::{Across, Area, AxisLabels, Plot, Rectangle, STYLE, WIDTH, escape, picture};

/// Space of a panel in SVG units: around its axes, and its height.
const PANEL_LEFT: f64 = 62.0;
const PANEL_RIGHT: f64 = 14.0;
const PANEL_TOP: f64 = 26.0;
const PANEL_BOTTOM: f64 = 50.0;
/// Least width of a panel among several, and the heights of one alone and of one among several.
const PANEL_WIDTH_MIN: f64 = 290.0;
const HEIGHT_ALONE: f64 = 340.0;
const HEIGHT_AMONG: f64 = 280.0;
/// Height of a line of notes.
const NOTE_LINE: f64 = 15.0;
/// Height of a line of the legend, and about how wide a letter is.
const LEGEND_LINE: f64 = 20.0;
const LETTER: f64 = 7.0;

/// A name and the colour that stands for it.
#[derive(Clone, Debug, PartialEq)]
pub struct LegendEntry {
    pub name: String,
    pub colour: &'static str,
}

impl LegendEntry {
    /// A name and its colour.
    pub fn new(name: impl Into<String>, colour: &'static str) -> Self {
        Self { name: name.into(), colour }
    }
}

/// A bar made of parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What it is, for its tooltip and the label below; the label is left out where it would not fit.
    pub name: String,
    /// The height of each part, from below.
    pub parts: Vec<f64>,
}

/// What a panel shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Marks {
    /// Lines through points.
    Lines(Vec<(LegendEntry, Vec<(f64, f64)>)>),
    /// Bars made of parts, in groups; each group stands at its place on an axis of names.
    Stacks {
        parts: Vec<LegendEntry>,
        /// The bars of each group.
        groups: Vec<Vec<Bar>>,
    },
}

/// One set of axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// What stands above it.
    pub title: String,
    /// What stands in its upper left corner, line by line.
    pub notes: Vec<String>,
    /// The x axis.
    pub across: Across,
    /// Label and unit of the x axis.
    pub x_label: String,
    /// Label and unit of the y axis.
    pub y_label: String,
    /// Where the y axis begins; bars want 0.
    pub y_from: f64,
    /// What it shows.
    pub marks: Marks,
    /// Dashed lines to compare with, and what they stand for.
    pub rules: Vec<(f64, String)>,
}

/// Panels under one legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What a screen reader says.
    pub title: String,
    /// The panels, row by row.
    pub panels: Vec<Panel>,
    /// How many stand side by side.
    pub columns: usize,
}

impl Chart {
    /// The picture, for a page that has [`STYLE`].
    pub fn svg(&self) -> String {
        let columns = self.columns.max(1);
        let width = WIDTH.max(columns as f64 * PANEL_WIDTH_MIN);
        let (mut body, legend) = self.legend(width);
        let panel_width = width / columns as f64;
        let panel_height = if self.panels.len() == 1 { HEIGHT_ALONE } else { HEIGHT_AMONG };
        for (i, panel) in self.panels.iter().enumerate() {
            let left = (i % columns) as f64 * panel_width;
            let top = legend + (i / columns) as f64 * panel_height;
            body += &panel.draw(Area {
                left: left + PANEL_LEFT,
                top: top + PANEL_TOP,
                right: left + panel_width - PANEL_RIGHT,
                bottom: top + panel_height - PANEL_BOTTOM,
            });
        }
        let rows = self.panels.len().div_ceil(columns);
        picture((width, legend + rows as f64 * panel_height), &self.title, &body)
    }

    /// The picture as a file of its own.
    pub fn file(&self) -> String {
        let svg = self.svg();
        let (head, rest) = svg.split_once('>').expect("a picture has an opening tag");
        format!(
            "{head} xmlns=\"http://www.w3.org/2000/svg\"><style>{STYLE}</style>\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>{rest}\n"
        )
    }

    /// The legend of all panels, and its height.
    fn legend(&self, width: f64) -> (String, f64) {
        let mut keys: Vec<&LegendEntry> = Vec::new();
        for key in self.panels.iter().flat_map(Panel::keys) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let (mut body, mut x, mut y) = (String::new(), PANEL_LEFT, 0.0);
        for key in &keys {
            let needs = 30.0 + LETTER * key.name.chars().count() as f64;
            if x + needs > width && x > PANEL_LEFT {
                (x, y) = (PANEL_LEFT, y + LEGEND_LINE);
            }
            _ = write!(
                body,
                r#"<rect x="{x:.1}" y="{:.1}" width="10" height="10" fill="{}"/><text x="{:.1}" y="{:.1}">{}</text>"#,
                y + 4.0,
                key.colour,
                x + 15.0,
                y + 13.0,
                escape(&key.name)
            );
            x += needs;
        }
        (body, if keys.is_empty() { 0.0 } else { y + LEGEND_LINE })
    }
}

impl Panel {
    fn keys(&self) -> Vec<&LegendEntry> {
        match &self.marks {
            Marks::Lines(lines) => lines.iter().map(|(key, _)| key).collect(),
            Marks::Stacks { parts, .. } => parts.iter().collect(),
        }
    }

    /// The largest value, rules included, with a little air above and room for the notes.
    fn y_max(&self, height: f64) -> f64 {
        let values: Vec<f64> = match &self.marks {
            Marks::Lines(lines) => {
                lines.iter().flat_map(|(_, points)| points.iter().map(|(_, y)| *y)).collect()
            }
            Marks::Stacks { groups, .. } => {
                groups.iter().flatten().map(|bar| bar.parts.iter().sum()).collect()
            }
        };
        let rules = self.rules.iter().map(|(y, _)| *y);
        let most = values.into_iter().chain(rules).filter(|y| y.is_finite()).fold(0.0, f64::max);
        let free = 0.05 + NOTE_LINE * self.notes.len() as f64 / height;
        self.y_from + (most - self.y_from) / (1.0 - free.min(0.5))
    }

    fn draw(&self, area: Area) -> String {
        let y = (self.y_from, self.y_max(area.bottom - area.top));
        let mut plot = Plot::within(area, &self.across, y, AxisLabels { x: &self.x_label, y: &self.y_label });
        plot.text(
            (area.left + (area.right - area.left) / 2.0, area.top - 9.0),
            "middle",
            "strong",
            &self.title,
        );
        match &self.marks {
            Marks::Lines(lines) => self.draw_lines(&mut plot, lines),
            Marks::Stacks { parts, groups } => draw_stacks(&mut plot, area, parts, groups),
        }
        // The highest says its name above itself and the others below, so that two that are close stay
        // legible.
        let highest = self.rules.iter().map(|(y, _)| *y).fold(f64::MIN, f64::max);
        for (y, text) in &self.rules {
            plot.rule(*y, text, *y == highest);
        }
        for (i, note) in self.notes.iter().enumerate() {
            plot.text((area.left + 8.0, area.top + 13.0 + NOTE_LINE * i as f64), "start", "note", note);
        }
        plot.into_body()
    }

    fn draw_lines(&self, plot: &mut Plot, lines: &[(LegendEntry, Vec<(f64, f64)>)]) {
        for (key, points) in lines {
            plot.line(points, key.colour);
            for (x, y) in points {
                let at = match &self.across {
                    Across::Numbers(..) => format!("{x:.2}"),
                    Across::Names(names) => names.get(*x as usize).cloned().unwrap_or_default(),
                };
                plot.point(*x, *y, key.colour, &format!("{}, {} {at}: {y:.3}", key.name, self.x_label));
            }
        }
    }
}

fn draw_stacks(plot: &mut Plot, area: Area, parts: &[LegendEntry], groups: &[Vec<Bar>]) {
    let group_width = (area.right - area.left) / groups.len().max(1) as f64;
    for (place, bars) in groups.iter().enumerate() {
        // A tenth of the place stays free on either side of its bars.
        let width = 0.8 / bars.len().max(1) as f64;
        for (i, bar) in bars.iter().enumerate() {
            let x = place as f64 + 0.1 + i as f64 * width;
            let mut from = 0.0;
            for (key, part) in parts.iter().zip(&bar.parts) {
                let tip = format!("{}: {} {part:.3}", bar.name, key.name);
                plot.column(Rectangle { x, y: from, width: width * 0.92, height: *part }, key.colour, &tip);
                from += part;
            }
            let fits = LETTER * bar.name.chars().count() as f64 <= width * group_width + LETTER;
            if fits && bars.len() > 1 {
                let middle = area.left + (x + width / 2.0) * group_width;
                plot.text((middle, area.bottom + 32.0), "middle", "", &bar.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::colour;

    fn panel(marks: Marks, across: Across) -> Panel {
        Panel {
            title: "a < b".into(),
            notes: vec!["ours: 2.1".into()],
            across,
            x_label: "load (1/s)".into(),
            y_label: "latency (s)".into(),
            y_from: 0.0,
            marks,
            rules: vec![(2.0, "paper: 2.0".into())],
        }
    }

    #[test]
    fn a_chart_has_one_legend_a_tooltip_per_mark_and_stands_alone_as_a_file() {
        let line = |name: &str, i| (LegendEntry::new(name, colour(i)), vec![(0.5, 1.0), (1.0, 3.0)]);
        let lines = Marks::Lines(vec![line("vLLM", 0), line("RelServe", 1)]);
        let bar = |name: &str| Bar { name: name.into(), parts: vec![1.0, 2.0] };
        let stacks = Marks::Stacks {
            parts: vec![LegendEntry::new("core", colour(0)), LegendEntry::new("tail", colour(1))],
            groups: vec![vec![bar("SP"), bar("RS")]; 3],
        };
        let names = Across::Names(vec!["a".into(), String::new(), "c".into()]);
        let panels = vec![panel(lines.clone(), Across::Numbers(0.5, 1.0)), panel(stacks, names)];
        let chart = Chart {
            title: "t".into(),
            panels: [panels, vec![panel(lines, Across::Numbers(0.5, 1.0))]].concat(),
            columns: 2,
        };
        let svg = chart.svg();
        assert_eq!(svg.matches(">vLLM</text>").count(), 1, "the legend names a line once");
        assert_eq!(svg.matches("<title>").count(), 1 + 8 + 12, "the picture, the points, the parts");
        assert_eq!((svg.matches(">paper: 2.0<").count(), svg.matches(">ours: 2.1<").count()), (3, 3));
        assert!(svg.contains("a &lt; b") && !svg.contains("NaN"));
        let file = chart.file();
        assert!(file.starts_with("<svg") && file.contains("xmlns=") && file.contains("<style>"));
    }
}
