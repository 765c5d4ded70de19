//! The table: its lines, its intervals, what is pooled.

use super::super::measures::Measure;
use super::super::tasks::{PromptShape, TaskRow};
use super::*;

fn row(accepted: &str, third: Option<usize>) -> TaskRow {
    TaskRow { accepted: vec![accepted.into()], third, ..TaskRow::default() }
}

fn tasks() -> Vec<EvalTask> {
    let labels = Measure::Label(vec!["no".into(), "yes".into()]);
    let documents = PromptShape::Documents { instruction: "" };
    vec![
        EvalTask {
            name: "classify-movies",
            form: PromptShape::Records { columns: Vec::new(), question: String::new() },
            measure: labels,
            output_max: 4,
            rows: ["yes", "no", "yes", "no"].map(|label| row(label, None)).to_vec(),
        },
        EvalTask {
            name: "rag",
            form: documents,
            measure: Measure::Words,
            output_max: 4,
            rows: [0, 1, 2].map(|third| row("red fox", Some(third))).to_vec(),
        },
    ]
}

fn run(task: usize, variant: &str, answers: &[&str]) -> VariantAnswers {
    let variant = VARIANTS.iter().find(|one| one.name == variant).expect("there is one");
    VariantAnswers { task, variant, answers: answers.iter().map(|text| Ok((*text).to_owned())).collect() }
}

#[test]
fn the_table_has_a_line_for_each_task_and_variant() {
    let mut failed = run(1, "q8", &["red fox", "red", ""]);
    failed.answers[2] = Err("too long".into());
    let runs = [
        run(0, "baseline", &["yes", "yes", "Yes.", "no"]),
        run(0, "reordered", &["no", "no", "yes", "no"]),
        run(1, "baseline", &["a red fox", "red", "blue"]),
        run(1, "spans", &["red fox", "fox", "fox"]),
        failed,
    ];
    let lines = lines(&tasks(), &runs, 1);
    insta::assert_snapshot!(markdown(&lines), @r"
    | task | variant | rows | accuracy | F1 | agreement | same text | difference |
    | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
    | classify-movies | baseline | 4 | 75 [25, 100] |  |  |  |  |
    | classify-movies | reordered | 4 | 75 [25, 100] |  | 50 % | 25 % | 0 [-75.0, +75.0] |
    | rag | baseline | 3 | 33 [0, 100] | 56 [0, 100] |  |  |  |
    | rag | spans | 3 | 33 [0, 100] | 78 [67, 100] | 33 % | 0 % | +22.2 [0, +66.7] |
    | rag | q8 | 3 (1 failed) | 33 [0, 100] | 56 [0, 100] | 67 % | 33 % | 0 [0, 0] |
    | rag, answer in the first third | baseline | 1 | 100 [100, 100] | 100 [100, 100] |  |  |  |
    | rag, answer in the first third | spans | 1 | 100 [100, 100] | 100 [100, 100] | 100 % | 0 % | 0 [0, 0] |
    | rag, answer in the middle third | baseline | 1 | 0 [0, 0] | 67 [67, 67] |  |  |  |
    | rag, answer in the middle third | spans | 1 | 0 [0, 0] | 67 [67, 67] | 0 % | 0 % | 0 [0, 0] |
    | rag, answer in the last third | baseline | 1 | 0 [0, 0] | 0 [0, 0] |  |  |  |
    | rag, answer in the last third | spans | 1 | 0 [0, 0] | 67 [67, 67] | 0 % | 0 % | +66.7 [+66.7, +66.7] |
    | all rows of these tasks | spans | 3 |  |  | 33 % | 0 % | +22.2 [0, +66.7] |
    | all rows of these tasks | reordered | 4 |  |  | 50 % | 25 % | 0 [-75.0, +75.0] |
    | all rows of these tasks | q8 | 3 (1 failed) |  |  | 67 % | 33 % | 0 [0, 0] |
    ");
    let names: Vec<&str> = lines.iter().filter(|line| line.task == "rag").map(|line| line.variant).collect();
    assert_eq!(names, ["baseline", "spans", "q8"]);
    let first = lines.iter().filter(|line| line.task.starts_with("rag, answer in the first"));
    assert_eq!(first.map(|line| line.variant).collect::<Vec<_>>(), ["baseline", "spans"]);
}

#[test]
fn agreement_is_of_labels_and_the_same_text_of_letters() {
    let runs = [
        run(0, "baseline", &["yes", "no", "yes", "no"]),
        run(0, "constraints", &["Yes.", "no", "yes", "yes"]),
    ];
    let lines = lines(&tasks()[..1], &runs, 1);
    let held = &lines[1];
    assert_eq!((held.agreement, held.same_text), (Some(0.75), Some(0.5)));
    let difference = held.difference.expect("it is paired");
    assert!(difference.low < 0.0 && difference.high <= 0.0, "one of four went wrong: {difference:?}");
    assert_eq!(lines[0].difference, None);
    assert_eq!(lines.len(), 2, "one task has no line of all");
}

#[test]
fn points_are_signed_and_never_minus_nothing() {
    assert_eq!([-0.0001, 0.0, 0.123_4, -0.05].map(points), ["0", "0", "+12.3", "-5.0"]);
}
