//! The report as a page, as a Markdown table and as JSON.

use serde_json::{Value, json};

use crate::html::document;
use crate::plot::escape;
use crate::reproduce::Scope;
use crate::reproduce::figure::{Claim, Figure, FigureTable, Verdict};

const TITLE: &str = "RelServe: the paper's figures, regenerated";
const STYLE: &str = "<style>body{max-width:1200px}table{border-collapse:collapse;margin:1em 0;font-size:14px}\
td,th{border-bottom:1px solid #ccc;padding:.25em .7em;text-align:left;vertical-align:top}\
.holds{color:#00764f}.in-part{color:#a36a00}.fails{color:#b3261e}.verdict{font-weight:600;white-space:nowrap}td a{white-space:nowrap}\
summary{cursor:pointer}.wide{overflow-x:auto}</style>";

/// One self-contained page.
pub fn html(scope: &Scope, figures: &[Figure]) -> String {
    let mut body = format!("{STYLE}<h1>{}</h1>", escape(TITLE));
    body += &format!("<p>{}</p>", escape(&how(scope)));
    body += "<h2>All claims</h2>";
    let all = figures.iter().map(|figure| (Some(figure), figure.claims.as_slice()));
    body += &claims(&all.collect::<Vec<_>>());
    for figure in figures {
        body += &format!("<h2 id=\"{}\">{}</h2>", figure.id, escape(figure.title));
        body += &format!("<p>{}</p>{}", escape(&figure.setting), figure.chart.svg());
        body += &claims(&[(None, figure.claims.as_slice())]);
        for table in &figure.tables {
            body += &rows(table);
        }
    }
    document(TITLE, &body)
}

/// How the numbers came about.
fn how(scope: &Scope) -> String {
    let seeds: Vec<String> = (1..=scope.seeds).map(|seed| seed.to_string()).collect();
    format!(
        "The real scheduler in virtual time: durations of steps come from each machine's cost model, lengths from a \
         seeded generator of the paper's workload. {} relQueries of 1..{} rows a trace; means over seeds {}. A ratio is \
         one of means, as in the paper. Explanations are in docs/REPRODUCTION.md, by section.",
        scope.size.relqueries,
        scope.size.rows_max,
        seeds.join(", ")
    )
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::InPart => "in-part",
        Verdict::Fails => "fails",
    }
}

/// Claims as a table; with the figure each belongs to, where it is told.
fn claims(groups: &[(Option<&Figure>, &[Claim])]) -> String {
    let named = groups.iter().any(|(figure, _)| figure.is_some());
    let mut table = format!(
        "<div class=\"wide\"><table><tr>{}<th>the paper</th><th>here</th><th>verdict</th><th>explained in</th></tr>",
        if named { "<th>figure</th>" } else { "" }
    );
    for (figure, claims) in groups {
        for claim in *claims {
            let link = figure.map_or_else(String::new, |figure| {
                format!("<td><a href=\"#{}\">{}</a></td>", figure.id, escape(short(figure)))
            });
            table += &format!(
                "<tr>{link}<td>{}</td><td>{}</td><td class=\"verdict {}\">{}</td><td>{}</td></tr>",
                escape(&claim.paper),
                escape(&claim.ours),
                class(claim.verdict),
                claim.verdict,
                escape(claim.see.unwrap_or_default())
            );
        }
    }
    table + "</table></div>"
}

/// The figure's number alone.
fn short(figure: &Figure) -> &str {
    figure.title.split(':').next().unwrap_or(figure.title)
}

fn rows(table: &FigureTable) -> String {
    let line = |cells: &[String], tag: &str| {
        let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
        format!("<tr>{cells}</tr>")
    };
    let body: String = table.rows.iter().map(|row| line(row, "td")).collect();
    format!(
        "<details{}><summary>{}</summary><div class=\"wide\"><table>{}{body}</table></div></details>",
        if table.is_open { " open" } else { "" },
        escape(&table.caption),
        line(&table.header, "th")
    )
}

/// All claims as one Markdown table, for a document.
pub fn markdown(figures: &[Figure]) -> String {
    let mut text =
        "| figure | the paper | here | verdict | explained in |\n| --- | --- | --- | --- | --- |\n"
            .to_owned();
    for figure in figures {
        for claim in &figure.claims {
            let see = claim.see.unwrap_or_default();
            text += &format!(
                "| {} | {} | {} | {} | {see} |\n",
                short(figure),
                claim.paper,
                claim.ours,
                claim.verdict
            );
        }
    }
    text
}

/// All numbers.
pub fn json(scope: &Scope, figures: &[Figure]) -> Value {
    let figure = |figure: &Figure| json!({ "id": figure.id, "title": figure.title, "setting": figure.setting, "claims": figure.claims, "data": figure.data });
    json!({
        "schema": "relserve-reproduction/1",
        "seeds": scope.seeds,
        "relqueries": scope.size.relqueries,
        "rows_max": scope.size.rows_max,
        "figures": figures.iter().map(figure).collect::<Vec<Value>>(),
    })
}
