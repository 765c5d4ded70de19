-- T4, LLM aggregation over Movies: the mean of the scores that the model gives.
SELECT avg(ai_score(prompt('You are a data analyst. Use the provided JSON data to answer the user query based on the specified fields. Respond with only the answer, no extra formatting.

Answer the below query:
Given the following fields of a movie description and a user review, assign a sentiment score for the review out of 5. Answer with ONLY a single integer between 1 (bad) and 5 (good).

Given the following data:
{*}', m.*), 'sentiment', 1, 5)) AS average_score
FROM movies AS m;
