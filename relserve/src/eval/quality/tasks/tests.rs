//! Tasks: their rows, their prompts, and what cannot be asked.

use base::text::ByteText;

use super::*;

fn sizes(rows: usize, context: usize) -> TaskSizes<'static> {
    TaskSizes { rows, needle_tokens: 2_000, seed: 3, context, tokenizer: &ByteText }
}

fn built_in(rows: usize, context: usize) -> (Vec<EvalTask>, Vec<String>) {
    tasks(TaskData::BuiltIn, &TASKS, &sizes(rows, context)).expect("the tables are sound")
}

fn task<'a>(tasks: &'a [EvalTask], name: &str) -> &'a EvalTask {
    tasks.iter().find(|task| task.name == name).unwrap_or_else(|| panic!("{name} is missing"))
}

#[test]
fn the_built_in_tables_bear_all_tasks_but_two() {
    let (tasks, notes) = built_in(12, 8_192);
    let names: Vec<&str> = tasks.iter().map(|task| task.name).collect();
    assert_eq!(names, ["classify-products", "extract", "qa", "rag", "needle", "summary", "few-shot"]);
    assert_eq!(
        notes,
        [
            "classify-movies: not run: there is no table movies",
            "classify-beer: not run: there is no table beer"
        ]
    );
    for task in &tasks {
        let expected = match task.name {
            "rag" => 6,
            "needle" => 3,
            _ => 12,
        };
        assert_eq!(task.rows.len(), expected, "{}", task.name);
    }
}

#[test]
fn labels_are_balanced_and_no_record_says_its_own() {
    let (tasks, _) = built_in(10, 8_192);
    for name in ["classify-products", "few-shot"] {
        let task = task(&tasks, name);
        let positive = task.rows.iter().filter(|row| row.accepted == ["positive"]).count();
        assert_eq!(positive, 5, "{name}");
        let first = &task.rows[0].accepted;
        assert!(task.rows.iter().any(|row| row.accepted != *first), "{name}");
        for row in &task.rows {
            assert!(!row.cells.iter().any(|cell| cell.parse::<f64>().is_ok()), "the rating is left out");
            let example = row.question.trim_end_matches("Sentiment:");
            assert!(row.documents.iter().all(|shown| !shown.contains(example) || example.is_empty()));
        }
    }
}

#[test]
fn a_rag_prompt_has_4_to_10_passages_and_its_answer_in_one_of_them() {
    let (tasks, _) = built_in(36, 8_192);
    let rows = &task(&tasks, "rag").rows;
    let mut thirds = [0; 3];
    for row in rows {
        assert!((4..=10).contains(&row.documents.len()));
        let answer = crate::eval::quality::measures::normalised(&row.accepted[0]);
        let normalised = |text: &String| crate::eval::quality::measures::normalised(text);
        let places: Vec<usize> =
            (0..row.documents.len()).filter(|at| normalised(&row.documents[*at]).contains(&answer)).collect();
        assert_eq!(places.len(), 1, "{row:?}");
        let third = row.third.expect("it has one");
        assert_eq!(places[0] * 3 / row.documents.len(), third);
        thirds[third] += 1;
    }
    assert_eq!(thirds, [6, 6, 6]);
    let lengths: std::collections::BTreeSet<usize> = rows.iter().map(|row| row.documents.len()).collect();
    assert!(lengths.len() > 2, "{lengths:?}");
}

#[test]
fn prompts_fit_the_context_and_the_needle_is_in_the_haystack() {
    let (tasks, _) = built_in(24, 1_500);
    for task in &tasks {
        for row in &task.rows {
            let text: usize = row.documents.iter().chain(&row.cells).map(String::len).sum();
            assert!(text + row.question.len() < 1_500, "{}", task.name);
        }
    }
    let rows = &task(&tasks, "needle").rows;
    for row in rows {
        let holding = row.documents.iter().filter(|text| text.contains(&row.accepted[0])).count();
        assert_eq!(holding, 1);
    }
    let counts: Vec<usize> = rows.iter().map(|row| row.documents.len()).collect();
    assert!(counts.is_sorted() && counts.first() < counts.last(), "{counts:?}");
}

#[test]
fn what_is_drawn_depends_on_the_seed_alone() {
    let of = |seed| {
        let sizes = TaskSizes { seed, ..sizes(8, 4_096) };
        tasks(TaskData::BuiltIn, &["rag", "needle"], &sizes).expect("the tables are sound")
    };
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

#[test]
fn a_table_without_a_column_and_a_context_without_room_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("movies.csv"), "genres,movie_info\nDrama,x\n").expect("it is written");
    let source = TaskData::open(Some(folder.path())).expect("it has a table");
    let error = tasks(source, &TASKS, &sizes(4, 4_096)).expect_err("a column is missing").to_string();
    assert!(error.contains("movies.csv: there is no column `production_company`"), "{error}");
    let (small, notes) = built_in(4, 64);
    assert_eq!(small, []);
    assert!(notes.iter().any(|note| note.starts_with("qa: not run: no row of ")), "{notes:?}");
}
