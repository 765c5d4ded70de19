-- T5, retrieval-augmented generation over SQuAD: five contexts of the corpus `squad` for each question.
SELECT q.question, ai_complete(prompt('You are a data analyst. Use the provided JSON data to answer the user query based on the specified fields. Respond with only the answer, no extra formatting.

Answer the below query:
Given a question and supporting contexts, answer the provided question.

Given the following data:
{*}', q.*), max_tokens => 11) AS answer
FROM (
    SELECT question, texts[1] AS context1, texts[2] AS context2, texts[3] AS context3, texts[4] AS context4,
        texts[5] AS context5
    FROM (SELECT question, ai_retrieve(question, 'squad', 5) AS texts FROM squad) AS found
) AS q;
