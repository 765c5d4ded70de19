"""What a column asks, without LibreOffice and without a server."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "pythonpath"))
sys.dont_write_bytecode = True

import relserve_cells as cells  # noqa: E402


def function(name, *parameters):
    kinds = {"low": "number"}
    return {"name": name, "parameters": [
        {"name": given.rstrip("?"), "kind": kinds.get(given.rstrip("?"), "text"), "optional": given.endswith("?")} for given in parameters]}


ASK = function("ask", "prompt", "context?")
RATE = function("rate", "text", "criterion?", "low?")
CLASSIFY = function("classify", "text", "labels")
HEADERS = ["Review", "Stars"]
ROWS = [["fine", 5], ["", ""], ["poor", ""]]


class Columns(unittest.TestCase):
    def args(self, wanted, over, texts, rows=ROWS):
        return [call and call["args"] for call in cells.column_calls(wanted, over, texts, HEADERS, rows)]

    def test_a_function_runs_over_its_column_and_blank_rows_ask_nothing(self):
        self.assertEqual(self.args(CLASSIFY, 0, {"labels": "a, b"}), [["fine", "a, b"], None, ["poor", "a, b"]])
        self.assertEqual(self.args(RATE, 1, {"criterion": "", "low": "2"}), [[5, None, 2], None, None])
        self.assertEqual(self.args(RATE, 0, {"criterion": "", "low": ""}), [["fine"], None, ["poor"]])

    def test_a_prompt_names_columns_in_any_case(self):
        self.assertEqual(self.args(ASK, 0, {"prompt": "{review}: {Stars}?"}), [["fine: 5?"], None, ["poor: ?"]])

    def test_what_makes_no_column_is_said(self):
        for wanted, texts, words in [
            (ASK, {"prompt": "Why?"}, "names no column"), (ASK, {"prompt": "{Price}"}, "no column {Price}"),
            (CLASSIFY, {"labels": " "}, "labels is missing"), (RATE, {"low": "few"}, "no whole number"),
        ]:
            with self.assertRaisesRegex(cells.Problem, words):
                self.args(wanted, 0, texts)

    def test_a_table_has_titles_where_its_first_row_has_short_texts_only(self):
        self.assertEqual(cells.table([["Review", ""], ["fine", 5.0]]), (["Review", "B"], [["fine", 5]]))
        self.assertEqual(cells.table([["fine", 5.0]]), (["A", "B"], [["fine", 5]]))
        self.assertEqual(cells.table([["x" * 80], ["y"]])[0], ["A"])
        self.assertEqual(cells.table([["T"], [None], [float("nan")], [0.5]])[1], [[""], [""], [0.5]])
        self.assertEqual([cells.letters(column) for column in (0, 25, 26, 701, 702)], ["A", "Z", "AA", "ZZ", "AAA"])

    def test_only_functions_of_one_row_are_offered_with_what_a_column_does_not_say(self):
        offered = cells.functions({"data": [ASK, function("list", "prompt"), function("fill", "examples", "input")]})
        self.assertEqual([[item["name"] for item in cells.fields(wanted)] for wanted in offered], [["prompt"]])
        self.assertEqual([item["name"] for item in cells.fields(RATE)], ["criterion", "low"])


class Fills(unittest.TestCase):
    def test_equal_calls_go_once_failures_are_words_and_what_a_server_leaves_out_is_not_asked_for_ever(self):
        asked, shown = [], {}

        class Server:
            is_stopped = False

            def cells(self, calls, model, answered):
                asked.append((len(calls), model))
                answered(0, "good", None)
                answered(1, None, "no")

        calls = [{"function": "ask", "args": [text]} if text else None for text in ("a", "b", "a", "", "c")]
        done = cells.fill(Server(), "m", calls, lambda rows, value: shown.update(dict.fromkeys(rows, value)), lambda _: None)
        self.assertEqual((done, asked), ((2, "no"), [(3, "m")]))
        self.assertEqual(shown, {0: "good", 2: "good", 1: "#N/A no", 4: "#N/A the server left the cell out"})


if __name__ == "__main__":
    unittest.main()
